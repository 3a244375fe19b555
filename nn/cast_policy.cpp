#include "nn/cast_policy.h"

#include "core/error.h"
#include "core/excerpt.h"
#include "nn/policy_file.h"

#include <fmt/format.h>

#include <string>
#include <vector>

namespace norma::nn {
namespace {

constexpr std::string_view kOp = "cast policy";

/// The text of an Error behind its op.
std::string reason(const Error& error) {
  const std::string text = error.what();
  return text.substr(text.find(": ") + 2);
}

}  // namespace

CastPolicy parse_cast_policy(std::string_view text, const std::string& source) {
  struct Rule {
    PolicyLine line;
    CastRule rule;
  };
  std::vector<Rule> rules;
  for (const PolicyLine& line : parse_policy_file(kOp, text, source)) {
    check(line.text.has_value(), kOp, "{}: '{}': expected \"lower\", \"float32\" or \"keep\", got another type",
          line.pattern_place, excerpt(line.pattern));
    try {
      rules.push_back({line, cast_rule_from_string(*line.text)});
    } catch (const Error& error) {
      fail(kOp, "{}: '{}': {}", line.pattern_place, excerpt(line.pattern), reason(error));
    }
  }
  check(!rules.empty(), kOp, "{}: expected lines \"op\" = \"rule\", got none", source);
  CastPolicy policy;
  for (const auto& [line, rule] : rules) {
    try {
      policy.set(line.pattern, rule);
    } catch (const Error& error) {
      fail(kOp, "{}: {}", line.pattern_place, reason(error));
    }
  }
  return policy;
}

std::string read_cast_policy(const std::filesystem::path& file) {
  return read_policy_file(kOp, file);
}

}  // namespace norma::nn
