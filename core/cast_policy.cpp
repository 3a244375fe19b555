#include "base/excerpt.h"
#include "base/nearest_name.h"
#include "core/autocast.h"

#include <fnmatch.h>

#include <algorithm>
#include <array>
#include <string>
#include <unordered_map>

namespace norma {

namespace {

struct Entry {
  std::string_view op;
  CastRule rule;
};

constexpr auto kLower = CastRule::lower;
constexpr auto kFloat32 = CastRule::float32;
constexpr auto kKeep = CastRule::keep;

constexpr std::array kDefaults{
    // Products: nearly all of the arithmetic.
    Entry{"conv2d", kLower}, Entry{"linear", kLower}, Entry{"matmul", kLower},
    Entry{"scaled_dot_product_attention", kLower},
    // Exponentials of differences, and terms that are averaged into a loss.
    Entry{"softmax", kFloat32}, Entry{"log_softmax", kFloat32}, Entry{"cross_entropy", kFloat32},
    // Norms compute in float32 whatever their input is.
    Entry{"normalize", kKeep}, Entry{"norm_act", kKeep}, Entry{"batch_norm", kKeep}, Entry{"ghost_batch_norm", kKeep},
    Entry{"batch_renorm", kKeep}, Entry{"layer_norm", kKeep}, Entry{"layer_norm_2d", kKeep}, Entry{"group_norm", kKeep},
    Entry{"instance_norm", kKeep}, Entry{"rms_norm", kKeep}, Entry{"rms_norm_2d", kKeep}, Entry{"simple_norm", kKeep},
    Entry{"simple_norm_2d", kKeep}, Entry{"local_response_norm", kKeep}, Entry{"filter_response_norm", kKeep},
    Entry{"global_response_norm", kKeep}, Entry{"evo_norm_b0", kKeep}, Entry{"evo_norm_s0", kKeep},
    Entry{"dynamic_tanh", kKeep}, Entry{"dynamic_erf", kKeep}, Entry{"seed_norm", kKeep},
    Entry{"standardize_weight", kKeep},
    // Pointwise functions round once.
    Entry{"add", kKeep}, Entry{"sub", kKeep}, Entry{"mul", kKeep}, Entry{"div", kKeep}, Entry{"maximum", kKeep},
    Entry{"where", kKeep}, Entry{"neg", kKeep}, Entry{"exp", kKeep}, Entry{"log", kKeep}, Entry{"sqrt", kKeep},
    Entry{"rsqrt", kKeep}, Entry{"pow", kKeep}, Entry{"abs", kKeep}, Entry{"tanh", kKeep}, Entry{"sigmoid", kKeep},
    Entry{"erf", kKeep}, Entry{"relu", kKeep}, Entry{"silu", kKeep}, Entry{"gelu", kKeep}, Entry{"clamp", kKeep},
    Entry{"dropout", kKeep}, Entry{"drop_path", kKeep},
    // Sums are carried in float64 and rounded once.
    Entry{"max_pool2d", kKeep}, Entry{"avg_pool2d", kKeep}, Entry{"adaptive_avg_pool2d", kKeep}, Entry{"sum", kKeep},
    Entry{"mean", kKeep}, Entry{"var", kKeep}, Entry{"max", kKeep}, Entry{"max_along", kKeep}, Entry{"prod", kKeep}};

const std::unordered_map<std::string_view, size_t>& places() {
  static const auto map = [] {
    std::unordered_map<std::string_view, size_t> result;
    for (size_t i = 0; i < kDefaults.size(); ++i) {
      result.emplace(kDefaults[i].op, i);
    }
    return result;
  }();
  return map;
}

constexpr std::array kRules = {CastRule::lower, CastRule::float32, CastRule::keep};

}  // namespace

std::string_view to_string(CastRule rule) {
  switch (rule) {
    case CastRule::lower: return "lower";
    case CastRule::float32: return "float32";
    case CastRule::keep: return "keep";
  }
  return "?";
}

CastRule cast_rule_from_string(std::string_view name) {
  for (const CastRule rule : kRules) {
    if (to_string(rule) == name) {
      return rule;
    }
  }
  fail("cast policy", "expected lower, float32 or keep, got '{}'", excerpt(name));
}

CastPolicy::CastPolicy() {
  for (const Entry& entry : kDefaults) {
    rules_.push_back(entry.rule);
  }
}

void CastPolicy::set(std::string_view pattern, CastRule rule) {
  const std::string text(pattern);
  bool used = false;
  for (size_t i = 0; i < rules_.size(); ++i) {
    if (fnmatch(text.c_str(), ops()[i].c_str(), 0) == 0) {
      rules_[i] = rule;
      used = true;
    }
  }
  check(used, "cast policy", "{}", unknown_name("op", pattern, ops()));
}

CastRule CastPolicy::rule(std::string_view op) const {
  const auto found = places().find(op);
  if (found == places().end()) {  // not by check(): the nearest name would be looked for in every call of an op
    fail("cast policy", "{}", unknown_name("op", op, ops()));
  }
  return rules_[found->second];
}

bool CastPolicy::knows(std::string_view op) {
  return places().contains(op);
}

const std::vector<std::string>& CastPolicy::ops() {
  static const auto names = [] {
    std::vector<std::string> result;
    for (const Entry& entry : kDefaults) {
      result.emplace_back(entry.op);
    }
    return result;
  }();
  return names;
}

}  // namespace norma
