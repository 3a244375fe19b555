#pragma once

#include "core/error.h"

#include <fmt/format.h>
#define TOML_HEADER_ONLY 1
#include <toml++/toml.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <string_view>

// What the policy files (nn/norm_policy.h, nn/cast_policy.h) share: TOML with a pattern and a text in each line.

namespace norma::nn {

/// "p.toml:2:9"
inline std::string at(const std::string& source, const toml::source_position& position) {
  return fmt::format("{}:{}:{}", source, position.line, position.column);
}

/// "layer1.0.bn1" for {layer1 = {0 = {bn1 = …}}}, which is what TOML makes of a key with dots and no quotes.
inline std::string dotted(std::string path, const toml::node& node) {
  const toml::table* table = node.as_table();
  while (table != nullptr && !table->empty()) {
    path += '.';
    path += table->begin()->first.str();
    table = table->begin()->second.as_table();
  }
  return path;
}

/// "another type", or for a table how to write what was meant.
inline std::string type_text(const std::string& key, const toml::node& node) {
  return node.is_table() ? fmt::format("a table: a pattern with dots needs quotes, \"{}\"", dotted(key, node))
                         : "another type";
}

/// The key of a line. toml++ names it wrongly when it has been there before.
inline std::string key_of_line(std::string_view text, size_t line) {
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

/// Throws Error of `op` with line and column for text that is no TOML and for a key that comes twice.
inline toml::table parse_policy_file(std::string_view op, std::string_view text, const std::string& source) {
  try {
    return toml::parse(text, source);
  } catch (const toml::parse_error& error) {
    const std::string place = at(source, error.source().begin);
    const bool twice = error.description().find("cannot redefine") != std::string_view::npos;
    const std::string key = twice ? key_of_line(text, error.source().begin.line) : "";
    check(key.empty(), op, "{}: '{}': expected each pattern once, got it again", place, key);
    fail(op, "{}: {}", place, error.description());
  }
}

/// The text of a file. Throws Error of `op` when it cannot be read.
inline std::string read_policy_file(std::string_view op, const std::filesystem::path& file) {
  std::ifstream in(file);
  // A folder opens like a file, and fails only when it is read.
  check(in.good() && !std::filesystem::is_directory(file), op, "cannot read '{}'", file.string());
  return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
}

}  // namespace norma::nn
