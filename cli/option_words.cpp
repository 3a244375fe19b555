#include "cli/option.h"
#include "cli/option_notes.h"
#include "core/error.h"
#include "core/excerpt.h"
#include "core/input_file.h"
#include "core/nearest_name.h"
#include "core/toml_lines.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <CLI/CLI.hpp>

#include <algorithm>
#include <optional>
#include <set>
#include <variant>

namespace norma::cli {

namespace {

/// The option of that name, "--seed" or "-b"; nullptr if there is none.
const CLI::Option* find(const CLI::App& app, const std::string& name) {
  return name.size() > 1 && name[0] == '-' ? app.get_option_no_throw(name) : nullptr;
}

bool is_switch(const CLI::Option& option) {
  return notes().expected.count(&option) == 0;
}

/// The options in the words, and the options that these exclude.
std::set<const CLI::Option*> decided(const CLI::App& app, const std::vector<std::string>& words) {
  std::set<const CLI::Option*> options;
  for (size_t i = 0; i < words.size(); ++i) {
    const CLI::Option* option = find(app, words[i].substr(0, words[i].find('=')));
    if (option == nullptr) {
      continue;
    }
    options.insert(option);
    for (const auto& [of, names] : notes().exclusive) {
      if (of != &app) {
        continue;
      }
      std::set<const CLI::Option*> group;
      for (const std::string& name : names) {
        group.insert(app.get_option_no_throw(name));
      }
      if (group.count(option) > 0) {
        options.insert(group.begin(), group.end());
      }
    }
    i += !is_switch(*option) && words[i].find('=') == std::string::npos ? 1 : 0;
  }
  return options;
}

/// The words that a line of a file stands for.
std::vector<std::string> words_of(const CLI::App& app, const CLI::Option& option, const ConfigLine& line) {
  const std::string name = "--" + line.name;
  if (!is_switch(option)) {
    check(!line.on_or_off, app.get_name(), "{}: {}: expected {}, got {}", line.place, line.name,
          notes().expected.at(&option), line.value);
    std::vector<std::string> words;
    for (const std::string& item : option.get_expected_max() > 1 ? line.items : std::vector{line.value}) {
      if (item.empty()) {
        words.insert(words.end(), {name, ""});
      } else {
        words.push_back(name + "=" + item);
      }
    }
    return words;
  }
  check(line.on_or_off, app.get_name(), "{}: {}: expected true or false, got {}", line.place, line.name,
        shown(line.value));
  if (line.value == "true") {
    return {name};
  }
  // A switch without a "--no-name" is off when it is not given.
  const std::string opposite = line.name.starts_with("no-") ? "--" + line.name.substr(3) : "--no-" + line.name;
  return find(app, opposite) == &option ? std::vector<std::string>{opposite} : std::vector<std::string>{};
}

/// A text or a number as a word of the command line; none for any other value.
std::optional<std::string> word(const TomlScalar& value) {
  if (const auto* text = std::get_if<std::string>(&value)) {
    return *text;
  }
  if (const auto* whole = std::get_if<int64_t>(&value)) {
    return fmt::format("{}", *whole);
  }
  if (const auto* number = std::get_if<double>(&value)) {
    return fmt::format("{}", *number);
  }
  return std::nullopt;
}

/// The words of a value or a list; none if the list is empty or there are other values.
std::optional<std::vector<std::string>> words(const TomlLine& line) {
  std::vector<std::string> items;
  for (const TomlScalar& value : line.list ? *line.list : std::vector{line.value}) {
    const std::optional<std::string> item = word(value);
    if (!item) {
      return std::nullopt;
    }
    items.push_back(*item);
  }
  return items.empty() ? std::nullopt : std::optional(items);
}

ConfigLine config_line(std::string_view op, const TomlLine& line) {
  if (const auto* on = std::get_if<bool>(&line.value)) {
    return {.name = line.key, .value = *on ? "true" : "false", .on_or_off = true, .place = line.key_place};
  }
  const std::optional<std::vector<std::string>> items = words(line);
  check(items.has_value(), op, "{}: {}: expected a text, a number, true, false or a list of texts or numbers",
        line.value_place, excerpt(line.key));
  return {
      .name = line.key, .value = fmt::format("{}", fmt::join(*items, ",")), .items = *items, .place = line.key_place};
}

}  // namespace

OptionNotes& notes() {
  static OptionNotes instance;
  return instance;
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

std::vector<std::string> with_lines(const CLI::App& app, const std::vector<std::string>& words,
                                    const std::vector<ConfigLine>& lines) {
  std::vector<std::string> known;
  for (const CLI::Option* option : app.get_options()) {
    known.insert(known.end(), option->get_lnames().begin(), option->get_lnames().end());
  }
  std::vector<std::string> all = words;
  const std::set<const CLI::Option*> given = decided(app, words);
  for (const ConfigLine& line : lines) {
    const CLI::Option* option = find(app, "--" + line.name);
    const bool positive = std::find(known.begin(), known.end(), line.name) != known.end();
    check(option != nullptr && positive, app.get_name(), "{}: {}", line.place,
          unknown_name("option", line.name, known));
    for (const char* own : {"config", "help", "resume"}) {  // a file that names the next one might never end
      check(line.name != own, app.get_name(), "{}: {}: expected on the command line, got it in a file", line.place,
            own);
    }
    if (given.count(option) == 0) {
      const std::vector<std::string> more = words_of(app, *option, line);
      all.insert(all.end(), more.begin(), more.end());
      notes().from_file.insert(option);
    }
  }
  return all;
}

std::vector<std::string> checked_words(const CLI::App& app, const std::vector<std::string>& words) {
  std::vector<std::string> checked;
  for (size_t i = 0; i < words.size(); ++i) {
    const size_t equals = words[i].find('=');
    const std::string name = words[i].substr(0, equals);
    const CLI::Option* option = find(app, name);
    if (option == nullptr || is_switch(*option)) {
      check(option == nullptr || equals == std::string::npos, app.get_name(), "{}: expected no value, got {}", name,
            equals == std::string::npos ? "" : shown(words[i].substr(equals + 1)));
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
            name, notes().expected.at(option));
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
  for (const auto& [of, names] : notes().exclusive) {
    if (of != &app) {
      continue;
    }
    std::vector<std::string> given;
    for (const std::string& name : names) {
      if (app.get_option(name)->count() > 0) {
        given.push_back(name);
      }
    }
    check(given.size() <= 1, app.get_name(), "{}: expected one of them", fmt::join(given, ", "));
  }
}

std::vector<ConfigLine> read_config(std::string_view op, const std::filesystem::path& file) {
  const TomlForm form{.line = "option = value", .key = "option", .max_line_bytes = 4000};
  std::vector<ConfigLine> result;
  for (const TomlLine& line : parse_toml_lines(op, read_text_file(op, file, kMaxTomlBytes), file.string(), form)) {
    result.push_back(config_line(op, line));
  }
  return result;
}

}  // namespace norma::cli
