#include "cli/help.h"

#include "base/excerpt.h"

#include <fmt/format.h>

#include <algorithm>
#include <sstream>
#include <vector>

namespace norma::cli {

namespace {

constexpr size_t kLeft = 30;    // columns of the names
constexpr size_t kWidth = 100;  // columns in all

/// `left`, and `right` beside it (below it, if `left` is too long) in lines of whole words.
std::string entry(const std::string& left, const std::string& right) {
  std::string text = "  " + left;
  size_t column = columns_of(text);
  if (column + 2 > kLeft) {
    text += '\n';
    column = 0;
  }
  std::istringstream words(right);
  for (std::string word; words >> word;) {
    if (column > kLeft && column + 1 + columns_of(word) > kWidth) {
      text += '\n';
      column = 0;
    }
    const size_t gap = column < kLeft ? kLeft - column : 1;
    text += std::string(gap, ' ') + word;
    column += gap + columns_of(word);
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

std::string value_name(const CLI::Option& option) {
  return option.get_type_size() == 0 ? "" : option.get_type_name();
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
  const std::string names = is_positional ? "" : shown_names(*option);
  const std::string value = value_name(*option);
  return entry(names + (names.empty() || value.empty() ? "" : " ") + value, shown_text(*option));
}

std::string HelpFormatter::make_subcommand(const CLI::App* subcommand) const {
  return entry(subcommand->get_name(), subcommand->get_description());
}

}  // namespace norma::cli
