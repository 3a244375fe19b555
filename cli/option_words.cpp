#include "base/error.h"
#include "base/nearest_name.h"
#include "cli/option.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <CLI/CLI.hpp>

#include <algorithm>
#include <set>

namespace norma::cli {

namespace {

/// The option of that name, "--seed" or "-b"; nullptr if there is none.
const CLI::Option* find(const CLI::App& app, const std::string& name) {
  return name.size() > 1 && name[0] == '-' ? app.get_option_no_throw(name) : nullptr;
}

bool is_switch(const CLI::Option& option) {
  return option.get_items_expected_max() == 0;
}

/// The options that the words or an earlier file have, and the options that these exclude.
std::set<const CLI::Option*> decided(const CLI::App& app, const std::vector<std::string>& words) {
  std::set<const CLI::Option*> given;
  for (const CLI::Option* option : app.get_options()) {
    if (option->count() > 0) {
      given.insert(option);
    }
  }
  for (size_t i = 0; i < words.size(); ++i) {
    if (const CLI::Option* option = find(app, words[i].substr(0, words[i].find('=')))) {
      given.insert(option);
      i += !is_switch(*option) && words[i].find('=') == std::string::npos ? 1 : 0;  // its value
    }
  }
  std::set<const CLI::Option*> all = given;
  for (const CLI::Option* option : given) {
    const std::set<CLI::Option*> others = option->get_excludes();
    all.insert(others.begin(), others.end());
  }
  return all;
}

void give_line(CLI::Option& option, std::string_view op, const ConfigLine& line) {
  if (is_switch(option)) {
    check(line.on_or_off, op, "{}: {}: expected true or false, got {}", line.place, line.name, shown(line.value()));
    option.add_result(option.get_flag_value(line.name, line.value()));
    return;
  }
  check(!line.on_or_off, op, "{}: {}: expected {}, got {}", line.place, line.name, expected_of(option), line.value());
  for (const std::string& item : option.get_items_expected_max() > 1 ? line.items : std::vector{line.value()}) {
    option.add_result(item);
  }
}

}  // namespace

std::string ConfigLine::value() const {
  return fmt::format("{}", fmt::join(items, ","));
}

std::string shown(const std::string& text) {
  constexpr size_t kLongest = 100;
  if (text.empty()) {
    return "an empty text";
  }
  std::string line = text.size() > kLongest ? text.substr(0, kLongest) + "…" : text;
  std::replace_if(
      line.begin(), line.end(), [](char c) { return static_cast<unsigned char>(c) < ' '; }, ' ');
  return line;
}

std::string value_in(const std::vector<std::string>& words, const std::string& name) {
  for (size_t i = 0; i < words.size(); ++i) {
    if (words[i] == name && i + 1 < words.size()) {
      return words[i + 1];
    }
    if (words[i].starts_with(name + "=")) {
      return words[i].substr(name.size() + 1);
    }
  }
  return "";
}

void give_lines(CLI::App& app, const std::vector<std::string>& words, const std::vector<ConfigLine>& lines) {
  std::vector<std::string> known;
  for (const CLI::Option* option : app.get_options()) {
    known.insert(known.end(), option->get_lnames().begin(), option->get_lnames().end());
  }
  const std::set<const CLI::Option*> given = decided(app, words);
  for (const ConfigLine& line : lines) {
    check(std::ranges::find(known, line.name) != known.end(), app.get_name(), "{}: {}", line.place,
          unknown_name("option", line.name, known));
    for (const char* own : {"config", "help", "resume"}) {  // a file that names the next one might never end
      check(line.name != own, app.get_name(), "{}: {}: expected on the command line, got it in a file", line.place,
            own);
    }
    CLI::Option& option = *app.get_option("--" + line.name);
    if (!given.contains(&option)) {
      give_line(option, app.get_name(), line);
    }
  }
}

std::vector<std::string> checked_words(const CLI::App& app, const std::vector<std::string>& words) {
  std::vector<std::string> checked;
  for (size_t i = 0; i < words.size(); ++i) {
    const size_t equals = words[i].find('=');
    const std::string name = words[i].substr(0, equals);
    const CLI::Option* option = find(app, name);
    if (option == nullptr || is_switch(*option)) {
      const std::string value = equals == std::string::npos ? "true" : words[i].substr(equals + 1);
      check(option == nullptr || value == "true" || value == "false", app.get_name(), "{}: expected no value, got {}",
            name, shown(value));
      checked.push_back(words[i]);
      continue;
    }
    if (equals + 1 == words[i].size()) {
      checked.insert(checked.end(), {name, ""});
      continue;
    }
    checked.push_back(words[i]);
    if (equals == std::string::npos) {
      check(i + 1 < words.size() && find(app, words[i + 1]) == nullptr, app.get_name(), "{}: expected {}, got nothing",
            name, expected_of(*option));
      checked.push_back(words[++i]);
    }
  }
  return checked;
}

void check_given(const CLI::App& app) {
  for (const CLI::Option* option : app.get_options()) {
    check(!is_switch(*option) || option->count() <= 1, app.get_name(), "{}: expected once, got {} times",
          option->get_name(), option->count());
  }
}

}  // namespace norma::cli
