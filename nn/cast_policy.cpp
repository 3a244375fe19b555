#include "nn/cast_policy.h"

#include "core/error.h"
#include "nn/policy_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <tuple>
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
  struct Line {
    toml::source_position position;
    std::string place, pattern;
    CastRule rule;
  };
  std::vector<Line> lines;
  const toml::table table = parse_policy_file(kOp, text, source);
  for (const auto& [key, node] : table) {
    const std::string place = at(source, key.source().begin);
    const std::optional<std::string> rule = node.value_exact<std::string>();
    check(rule.has_value(), kOp, "{}: '{}': expected \"lower\", \"float32\" or \"keep\", got another type", place,
          excerpt(key.str()));
    try {
      lines.push_back({key.source().begin, place, std::string(key.str()), cast_rule_from_string(*rule)});
    } catch (const Error& error) {
      fail(kOp, "{}: '{}': {}", place, excerpt(key.str()), reason(error));
    }
  }
  check(!lines.empty(), kOp, "{}: expected lines \"op\" = \"rule\", got none", source);
  // A TOML table is sorted by name; the order of the file is what counts here.
  std::sort(lines.begin(), lines.end(), [](const Line& a, const Line& b) {
    return std::tie(a.position.line, a.position.column) < std::tie(b.position.line, b.position.column);
  });
  CastPolicy policy;
  for (const Line& line : lines) {
    try {
      policy.set(line.pattern, line.rule);
    } catch (const Error& error) {
      fail(kOp, "{}: {}", line.place, reason(error));
    }
  }
  return policy;
}

std::string read_cast_policy(const std::filesystem::path& file) {
  return read_policy_file(kOp, file);
}

}  // namespace norma::nn
