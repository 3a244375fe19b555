#include "nn/cast_policy.h"

#include "base/error.h"
#include "base/excerpt.h"
#include "base/input_file.h"
#include "nn/policy_file.h"

#include <fmt/format.h>

#include <string>
#include <vector>

namespace norma::nn {
namespace {

constexpr std::string_view kOp = "cast policy";

/// The text of an Error after its op.
std::string reason(const Error& error) {
  const std::string text = error.what();
  return text.substr(text.find(": ") + 2);
}

}  // namespace

CastPolicy parse_cast_policy(std::string_view text, const std::string& source) {
  struct Rule {
    TomlLine line;
    CastRule rule;
  };
  std::vector<Rule> rules;
  for (const TomlLine& line : parse_policy_file(kOp, text, source)) {
    check(line.text() != nullptr, kOp, "{}: '{}': expected \"lower\", \"float32\" or \"keep\", got another type",
          line.key_place, excerpt(line.key));
    try {
      rules.push_back({line, cast_rule_from_string(*line.text())});
    } catch (const Error& error) {
      fail(kOp, "{}: '{}': {}", line.key_place, excerpt(line.key), reason(error));
    }
  }
  check(!rules.empty(), kOp, "{}: expected lines \"op\" = \"rule\", got none", source);
  CastPolicy policy;
  for (const auto& [line, rule] : rules) {
    try {
      policy.set(line.key, rule);
    } catch (const Error& error) {
      fail(kOp, "{}: {}", line.key_place, reason(error));
    }
  }
  return policy;
}

std::string read_cast_policy(const std::filesystem::path& file) {
  return read_text_file(kOp, file, kMaxTomlBytes);
}

void set_cast(CastPolicy& policy, const std::string& text) {
  const size_t equals = text.find('=');
  check(equals != std::string::npos && equals > 0, "cast",
        "expected the name of an op, = and a rule, as in layer_norm_2d=lower, got '{}'", excerpt(text));
  try {
    policy.set(text.substr(0, equals), cast_rule_from_string(text.substr(equals + 1)));
  } catch (const Error& error) {
    fail("cast", "'{}': {}", excerpt(text), reason(error));
  }
}

std::string to_text(const CastPolicy& policy) {
  std::string text = "\"*\" = \"keep\"\n";
  for (const std::string& op : CastPolicy::ops()) {
    if (const CastRule rule = policy.rule(op); rule != CastRule::keep) {
      text += fmt::format("\"{}\" = \"{}\"\n", op, to_string(rule));
    }
  }
  return text;
}

}  // namespace norma::nn
