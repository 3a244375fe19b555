#include "cli/option.h"

#include "base/error.h"
#include "base/excerpt.h"
#include "base/lists.h"
#include "base/nearest_name.h"
#include "cli/command.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <CLI/CLI.hpp>

#include <algorithm>
#include <map>
#include <set>
#include <utility>

namespace norma::cli {

namespace {

/// Facts about options that CLI11 has no place for.
struct Facts {
  std::string expected;
  std::vector<std::string> choices;
};

/// The facts belong to the program that run_command() has made last; only one at a time runs.
std::map<const CLI::Option*, Facts>& facts() {
  static std::map<const CLI::Option*, Facts> of_all;
  return of_all;
}

/// The first long name of "-b,--batch-size".
std::string shown_name(const std::string& names) {
  const size_t start = names.find("--");
  return names.substr(start, names.find(',', start) - start);
}

/// The last name of "--model,--models", of which several can be given.
std::string shown_plural(const std::string& names) {
  return names.substr(names.rfind("--"));
}

Option with_text(CLI::App& app, CLI::Option* option, const OptionText& text) {
  if (!text.value.empty()) {
    option->type_name(text.value);
  }
  if (!text.heading.empty()) {
    option->group(text.heading);
  }
  option->default_str(text.otherwise)->required(text.required);
  facts()[option].choices = text.choices;
  return {app, option};
}

Option with_value(CLI::App& app, CLI::Option* option, const std::string& expected, const OptionText& text) {
  facts()[option].expected = expected;
  // Else CLI11 would drop values, or complain in its own words, before we see them.
  return with_text(app, option->multi_option_policy(CLI::MultiOptionPolicy::TakeAll), text);
}

}  // namespace

void Option::require() {
  option_->required();
}

bool Option::given() const {
  return option_->count() > 0;
}

bool Option::typed() const {
  return std::ranges::find(app_->parse_order(), option_) != app_->parse_order().end();
}

void describe(CLI::App& app, const std::string& name, const std::string& more) {
  const std::vector<EmbeddedText> texts = help_texts();
  const std::string text(std::ranges::find(texts, name, &EmbeddedText::name)->text);
  const size_t end = text.find('\n');
  app.description(text.substr(0, end));
  app.footer(end + 1 < text.size() ? text.substr(end + 1, text.size() - end - 2) + more : more);
}

CLI::App& add_subcommand(CLI::App& program, const std::string& name, const std::string& more) {
  CLI::App& app = *program.add_subcommand(name);
  describe(app, name, more);
  return app;
}

const std::string& command_name(const CLI::App& app) {
  return app.get_name();
}

Option option_of(CLI::App& app, const std::string& name) {
  return {app, app.get_option(name)};
}

std::vector<std::string> split_list(const std::string& text) {
  std::vector<std::string> items(1);
  int depth = 0;
  for (const char c : text) {
    depth += c == '[' ? 1 : c == ']' ? -1 : 0;
    if (c == ',' && depth <= 0) {
      items.emplace_back();
    } else {
      items.back() += c;
    }
  }
  return items;
}

Option add_item(CLI::App& app, const std::string& names, const std::string& expected, TakeWord take,
                const std::string& description, const OptionText& text) {
  const std::string name = shown_name(names);
  const auto callback = [&app, name, expected, take = std::move(take)](const CLI::results_t& given) {
    check(given.size() == 1, app.get_name(), "{}: expected once, got {} times", name, given.size());
    check(take(given.front()), app.get_name(), "{}: expected {}, got {}", name, expected, shown(given.front()));
    return true;
  };
  return with_value(app, app.add_option(names, callback, description), expected, text);
}

Option add_items(CLI::App& app, const std::string& names, const std::string& expected, std::function<void()> begin,
                 TakeWord take, const std::string& description, const OptionText& text) {
  const std::string name = shown_plural(names);
  const auto callback = [&app, name, expected, begin = std::move(begin),
                         take = std::move(take)](const CLI::results_t& given) {
    begin();
    for (const std::string& words : given) {
      for (const std::string& item : split_list(words)) {
        check(take(item), app.get_name(), "{}: expected {}, got {}", name, expected, shown(item));
      }
    }
    return true;
  };
  CLI::Option* option = app.add_option(names, callback, description);
  const Option added = with_value(app, option, expected, text);
  option->expected(CLI::detail::expected_max_vector_size);
  return added;
}

Option add(CLI::App& app, const train::OptionRow& row) {
  std::string names;
  for (const std::string& name : row.names) {
    names += (names.empty() ? "" : ",") + std::string(name.size() == 1 ? "-" : "--") + name;
  }
  names += row.has_opposite ? ",!--no-" + row.names.back() : "";
  const auto begin = row.begin ? row.begin : [] {};
  const auto begin_and_take = [begin, take = row.take](const std::string& word) {
    begin();
    return take(word);
  };
  if (row.is_switch()) {
    return add_switch(app, names, begin_and_take, row.help, {.heading = row.heading, .choices = row.choices});
  }
  const OptionText text{row.value_name, row.otherwise, row.heading, row.choices};
  return row.is_list ? add_items(app, names, row.expected, begin, row.take, row.help, text)
                     : add_item(app, names, row.expected, begin_and_take, row.help, text);
}

Option add_config(CLI::App& app, const OptionText& text) {
  const auto take = [](const std::string& file) { return !file.empty(); };  // run_command() has read it
  return add_item(app, kConfigOption, "a path", take,
                  "options from a file of lines batch-size = 128; those on the command line come first", text);
}

Option add_repeated(CLI::App& app, const std::string& names, const std::string& what, std::vector<std::string>& items,
                    const std::string& description, const OptionText& text) {
  const std::string name = shown_plural(names);
  const auto callback = [&app, &items, name, what](const CLI::results_t& given) {
    for (const std::string& word : given) {
      check(!word.empty(), app.get_name(), "{}: expected {}, got {}", name, what, shown(word));
    }
    items = given;
    return true;
  };
  CLI::Option* option = app.add_option(names, callback, description);
  const Option added = with_value(app, option, what, text);
  option->expected(CLI::detail::expected_max_vector_size)->allow_extra_args(false);
  return added;
}

Option add_words(CLI::App& app, const std::string& name, std::vector<std::string>& items,
                 const std::string& description, const OptionText& text) {
  CLI::Option* option = app.add_option(name, items, description);
  const Option added = with_value(app, option, name, text);
  option->expected(0, CLI::detail::expected_max_vector_size)->type_name(name + " …");
  return added;
}

Option add_switch(CLI::App& app, const std::string& names, TakeWord take, const std::string& description,
                  const OptionText& text) {
  const std::function<void(int64_t)> count = [take = std::move(take)](int64_t given) {
    take(given > 0 ? "true" : "false");
  };
  return with_text(app, app.add_flag_function(names, count, description), text);
}

void exclude(CLI::App& app, const std::string& one, const std::string& other) {
  app.get_option(one)->excludes(app.get_option(other));
}

const std::string& expected_of(const CLI::Option& option) {
  static const std::string nothing;
  const auto found = facts().find(&option);
  return found == facts().end() ? nothing : found->second.expected;
}

const std::vector<std::string>& choices_of(const CLI::Option& option) {
  static const std::vector<std::string> none;
  const auto found = facts().find(&option);
  return found == facts().end() ? none : found->second.choices;
}

void forget_options() {
  facts().clear();
}

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
  return text.empty() ? "an empty text" : excerpt(text);
}

std::vector<std::string> values_in(const std::vector<std::string>& words, const std::string& name) {
  std::vector<std::string> values;
  for (size_t i = 0; i < words.size(); ++i) {
    if (words[i].starts_with(name + "=")) {
      values.push_back(words[i].substr(name.size() + 1));
    } else if (words[i] == name && i + 1 < words.size() && !words[i + 1].starts_with("--")) {
      values.push_back(words[++i]);
    }
  }
  return values;
}

std::string value_in(const std::vector<std::string>& words, const std::string& name) {
  const std::vector<std::string> values = values_in(words, name);
  return values.empty() ? "" : values.front();
}

void give_lines(CLI::App& app, const std::vector<std::string>& words, const std::vector<ConfigLine>& lines) {
  std::vector<std::string> known;
  for (const CLI::Option* option : app.get_options()) {
    known.insert(known.end(), option->get_lnames().begin(), option->get_lnames().end());
  }
  const std::set<const CLI::Option*> given = decided(app, words);
  for (const ConfigLine& line : lines) {
    check(is_in(known, line.name), app.get_name(), "{}: {}", line.place, unknown_name("option", line.name, known));
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
