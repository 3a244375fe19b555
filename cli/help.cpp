#include "cli/help.h"

#include "core/excerpt.h"

#include <fmt/format.h>

#include <algorithm>
#include <sstream>
#include <vector>

namespace norma::cli {

namespace {

constexpr size_t kLeft = 30;    // columns of the names
constexpr size_t kWidth = 100;  // columns in all

/// `left`, and beside it (below, where it is too long) `right` in lines of whole words.
std::string entry(const std::string& left, const std::string& right) {
  std::string text = "  " + left;
  size_t column = columns_of(text);
  if (column + 2 > kLeft) {
    text += '\n';
    column = 0;
  }
  std::istringstream words(right);
  bool first = true;
  for (std::string word; words >> word;) {
    if (!first && column + 1 + columns_of(word) > kWidth) {
      text += '\n';
      column = 0;
      first = true;
    }
    if (first) {
      text += std::string(kLeft - column, ' ');
      column = kLeft;
    } else {
      text += ' ';
      ++column;
    }
    text += word;
    column += columns_of(word);
    first = false;
  }
  return text + '\n';
}

}  // namespace

std::string shown_names(const CLI::Option& option) {
  std::vector<std::string> names;
  for (const std::string& name : option.get_snames()) {
    names.push_back("-" + name);
  }
  const std::vector<std::string>& long_names = option.get_lnames();
  const auto has = [&](const std::string& name) {
    return std::find(long_names.begin(), long_names.end(), name) != long_names.end();
  };
  for (const std::string& name : long_names) {
    if (has("no-" + name)) {
      names.push_back("--[no-]" + name);
    } else if (!(name.starts_with("no-") && has(name.substr(3)))) {
      names.push_back("--" + name);
    }
  }
  return fmt::format("{}", fmt::join(names, ", "));
}

std::string shown_text(const CLI::Option& option) {
  std::string text = option.get_description();
  if (option.get_required()) {
    text += " (required)";
  } else if (!option.get_default_str().empty() && option.get_type_size() != 0) {
    text += " [" + option.get_default_str() + "]";
  }
  return text;
}

HelpFormatter::HelpFormatter() {
  column_width(kLeft);
}

std::string HelpFormatter::make_option(const CLI::Option* option, bool is_positional) const {
  std::string left = is_positional ? option->get_type_name() : shown_names(*option);
  if (!is_positional && option->get_type_size() != 0) {  // a flag takes no value
    left += " " + option->get_type_name();
  }
  return entry(left, shown_text(*option));
}

std::string HelpFormatter::make_subcommand(const CLI::App* subcommand) const {
  return entry(subcommand->get_name(), subcommand->get_description());
}

}  // namespace norma::cli
