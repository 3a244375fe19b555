#include "nn/norm/policy.h"

#include "base/error.h"
#include "base/excerpt.h"
#include "base/input_file.h"
#include "nn/module.h"
#include "nn/norm/convert.h"
#include "nn/norm/factory.h"
#include "nn/norm/norm.h"
#include "nn/policy_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

namespace norma::nn {
namespace {

constexpr std::string_view kOp = "norm policy";
// The keys that stand for no layer.
constexpr std::string_view kFreeze = "freeze";
constexpr std::string_view kPlacement = "placement";

NormPlacement placement_of(const TomlLine& line) {
  for (const NormPlacement placement : kNormPlacements) {
    if (line.text() != nullptr && *line.text() == to_string(placement)) {
      return placement;
    }
  }
  fail(kOp, "{}: placement: expected inside, pre, post or peri, got {}", line.value_place,
       line.text() != nullptr ? "'" + excerpt(*line.text()) + "'" : type_of(line));
}

}  // namespace

std::string_view to_string(NormPlacement placement) {
  switch (placement) {
    case NormPlacement::inside: return "inside";
    case NormPlacement::pre: return "pre";
    case NormPlacement::post: return "post";
    case NormPlacement::peri: return "peri";
  }
  return "?";
}

NormPolicy parse_norm_policy(std::string_view text, const std::string& source) {
  NormPolicy policy{.source = source, .rules = {}};
  for (const TomlLine& line : parse_policy_file(kOp, text, source)) {
    if (line.key == kFreeze) {
      check(line.text() != nullptr, kOp, "{}: freeze: expected patterns such as \"layer1.*,bn1.*\", got {}",
            line.value_place, type_of(line));
      policy.freeze = freeze_patterns(*line.text(), line.value_place);
      continue;
    }
    if (line.key == kPlacement) {
      policy.placement = placement_of(line);
      policy.placement_line = line.line;
      continue;
    }
    check(line.text() != nullptr, kOp, "{}: '{}': expected a norm spec such as \"group:32\", got {}", line.value_place,
          excerpt(line.key), type_of(line));
    try {
      parse_norm(*line.text());
    } catch (const Error& error) {
      fail(kOp, "{}: '{}': {}", line.value_place, excerpt(line.key), error.what());
    }
    policy.rules.push_back({.pattern = line.key, .norm = *line.text(), .line = line.line});
  }
  check(!policy.rules.empty() || !policy.freeze.empty() || policy.placement, kOp,
        "{}: expected lines \"pattern\" = \"norm\", got none", source);
  return policy;
}

std::string read_norm_policy(const std::filesystem::path& file) {
  return read_text_file(kOp, file, kMaxTomlBytes);
}

int64_t apply_norm_policy(Module& model, const NormPolicy& policy, const NormDefaults& defaults) {
  std::map<std::string, const NormRule*> chosen;
  std::vector<std::string> layers;
  for (const auto& [path, module, slot] : model.replaceable_modules()) {
    const auto* norm = dynamic_cast<const Norm*>(module);
    if (norm != nullptr && norm->channels() > 0) {
      layers.push_back(path);
    }
  }
  std::map<const NormRule*, std::vector<std::string>> named_by;
  for (const NormRule& rule : policy.rules) {
    std::vector<std::string>& named = named_by[&rule];
    for (const std::string& path : layers) {
      if (matches_pattern(rule.pattern, path)) {
        chosen[path] = &rule;
        named.push_back(path);
      }
    }
    check(!named.empty(), kOp, "{}:{}: '{}': expected the name of a norm layer, got none of {}", policy.source,
          rule.line, excerpt(rule.pattern), layers.empty() ? "them: the model has no norms" : excerpt_list(layers));
  }
  for (const NormRule& rule : policy.rules) {
    const std::vector<std::string>& named = named_by[&rule];
    check(std::any_of(named.begin(), named.end(), [&](const std::string& path) { return chosen[path] == &rule; }), kOp,
          "{}:{}: '{}': expected a norm layer that no later line decides, got {}", policy.source, rule.line,
          excerpt(rule.pattern), excerpt_list(named));
  }
  // All are made before the first is put in, since groups may not divide the channels.
  std::vector<std::pair<std::string, std::shared_ptr<Module>>> replacements;
  for (const auto& [path, module, slot] : model.replaceable_modules()) {
    const auto found = chosen.find(path);
    if (found == chosen.end()) {
      continue;
    }
    NormChoice choice = parse_norm(found->second->norm);
    check(
        !slot.one_pixel || !norm_definition(choice.name).needs_pixels, kOp,
        "{}:{}: '{}': {}: expected a norm for a single pixel, got {}; a later line \"{}\" = \"layer2d\" is what --norm "
        "{} does",
        policy.source, found->second->line, found->second->pattern, path, choice.name, path, choice.name);
    for (const auto& [option, value] : defaults) {
      choice = with_default(choice, option, value);
    }
    try {
      replacements.emplace_back(path, converted_norm(model, dynamic_cast<const Norm&>(*module), choice));
    } catch (const Error& error) {
      fail(kOp, "{}:{}: '{}': {}: {}", policy.source, found->second->line, found->second->pattern, path, error.what());
    }
  }
  for (auto& [path, norm] : replacements) {
    model.replace_module(path, std::move(norm));
  }
  return static_cast<int64_t>(replacements.size());
}

}  // namespace norma::nn
