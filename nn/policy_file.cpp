#include "nn/policy_file.h"

#include "core/error.h"
#include "core/excerpt.h"
#include "core/input_file.h"

#include <fmt/format.h>
#define TOML_HEADER_ONLY 1
#define TOML_MAX_NESTED_VALUES 4  // a policy nests none
#include <toml++/toml.h>

#include <algorithm>
#include <tuple>
#include <utility>

namespace norma::nn {
namespace {

/// "p.toml:2:9"
std::string at(const std::string& source, const toml::source_position& position) {
  return fmt::format("{}:{}:{}", source, position.line, position.column);
}

/// "layer1.0.bn1" for {layer1 = {0 = {bn1 = …}}}, which is what TOML makes of a key with dots and no quotes.
std::string dotted(std::string path, const toml::node& node) {
  const toml::table* table = node.as_table();
  while (table != nullptr && !table->empty()) {
    path += '.';
    path += table->begin()->first.str();
    table = table->begin()->second.as_table();
  }
  return path;
}

/// "another type", or for a table how to write what was meant.
std::string type_text(const std::string& key, const toml::node& node) {
  return node.is_table() ? fmt::format("a table: a pattern with dots needs quotes, \"{}\"", dotted(key, node))
                         : "another type";
}

/// The key of a line. toml++ names it wrongly when it has been there before.
std::string key_of_line(std::string_view text, size_t line) {
  for (size_t i = 1; i < line; ++i) {
    text.remove_prefix(text.find('\n') + 1);
  }
  try {
    const toml::table table = toml::parse(text.substr(0, text.find('\n')));
    return table.empty() ? "" : dotted(std::string(table.begin()->first.str()), table.begin()->second);
  } catch (const toml::parse_error&) {
    return "";
  }
}

constexpr uint64_t kMaxPolicyBytes = uint64_t{1} << 20;

/// Throws Error of `op` for a text or a line that is far longer than policies are: each dot of a key is a table in a
/// table for toml++, which walks them by recursion. Behind the bracket of a table, toml++ 3.3 assumes a
/// key without looking.
void check_policy_text(std::string_view op, std::string_view text, const std::string& source) {
  constexpr size_t kMaxLine = 1000;
  constexpr std::string_view kKeyStart = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-\"'";
  check(text.size() <= kMaxPolicyBytes, op, "{}: expected at most {}, got {}", source, byte_text(kMaxPolicyBytes),
        byte_text(text.size()));
  for (size_t line = 1; !text.empty(); ++line) {
    const size_t length = std::min(text.find('\n'), text.size());
    check(length <= kMaxLine, op, "{}:{}: expected a line of at most {} bytes, got {}", source, line, kMaxLine, length);
    const std::string_view whole = text.substr(0, length);
    const std::string_view content = whole.substr(std::min(whole.find_first_not_of(" \t"), length));
    const size_t head = content.starts_with('[') ? content.find_first_not_of(" \t", 1) : 0;
    check(head == 0 || (head < content.size() && kKeyStart.find(content[head]) != std::string_view::npos), op,
          "{}:{}: expected a line \"pattern\" = \"text\", got '{}'", source, line, excerpt(content));
    text.remove_prefix(std::min(length + 1, text.size()));
  }
}

toml::table parse_table(std::string_view op, std::string_view text, const std::string& source) {
  check_policy_text(op, text, source);
  try {
    return toml::parse(text, source);
  } catch (const toml::parse_error& error) {
    const std::string place = at(source, error.source().begin);
    const bool twice = error.description().find("cannot redefine") != std::string_view::npos;
    const std::string key = twice ? key_of_line(text, error.source().begin.line) : "";
    check(key.empty(), op, "{}: '{}': expected each pattern once, got it again", place, excerpt(key));
    fail(op, "{}: {}", place, excerpt(error.description(), 300));
  }
}

}  // namespace

std::vector<PolicyLine> parse_policy_file(std::string_view op, std::string_view text, const std::string& source) {
  std::vector<std::pair<toml::source_position, PolicyLine>> lines;
  const toml::table table = parse_table(op, text, source);
  for (const auto& [key, node] : table) {
    const toml::source_position position = node.source().begin;
    const std::string pattern(key.str());
    lines.emplace_back(position, PolicyLine{.pattern = pattern,
                                            .text = node.value_exact<std::string>(),
                                            .type = type_text(pattern, node),
                                            .pattern_place = at(source, key.source().begin),
                                            .text_place = at(source, position),
                                            .line = static_cast<int64_t>(position.line)});
  }
  // A TOML table is sorted by name; the order of the file is what counts here.
  std::sort(lines.begin(), lines.end(), [](const auto& a, const auto& b) {
    return std::tie(a.first.line, a.first.column) < std::tie(b.first.line, b.first.column);
  });
  std::vector<PolicyLine> result;
  for (auto& [position, line] : lines) {
    result.push_back(std::move(line));
  }
  return result;
}

std::string read_policy_file(std::string_view op, const std::filesystem::path& file) {
  return read_text_file(op, file, kMaxPolicyBytes);
}

}  // namespace norma::nn
