#include "cli/config_file.h"
#include "cli/option.h"
#include "cli/option_notes.h"
#include "core/error.h"
#include "core/nearest_name.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <CLI/CLI.hpp>

#include <algorithm>
#include <set>

namespace norma::cli {

namespace {

/// The option of that name, "--seed" or "-b"; nullptr: there is none.
const CLI::Option* find(const CLI::App& app, const std::string& name) {
  return name.size() > 1 && name[0] == '-' ? app.get_option_no_throw(name) : nullptr;
}

bool is_switch(const CLI::Option& option) {
  return notes().expected.count(&option) == 0;
}

/// The options that the words have, and those that these exclude.
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

/// The words that stand for a line of a file.
std::vector<std::string> words_of(const CLI::App& app, const CLI::Option& option, const ConfigLine& line) {
  const std::string name = "--" + line.name;
  if (!is_switch(option)) {
    check(!line.on_or_off, app.get_name(), "{}: {}: expected {}, got {}", line.place, line.name,
          notes().expected.at(&option), line.value);
    return line.value.empty() ? std::vector<std::string>{name, ""} : std::vector<std::string>{name + "=" + line.value};
  }
  check(line.on_or_off, app.get_name(), "{}: {}: expected true or false, got {}", line.place, line.name,
        shown(line.value));
  if (line.value == "true") {
    return {name};
  }
  // A switch that has no "--no-name" is off where it is not given.
  const std::string opposite = line.name.starts_with("no-") ? "--" + line.name.substr(3) : "--no-" + line.name;
  return find(app, opposite) == &option ? std::vector<std::string>{opposite} : std::vector<std::string>{};
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
    for (const char* own : {"config", "help", "resume"}) {  // a file that names the next one would not end
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

}  // namespace norma::cli
