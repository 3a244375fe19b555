#include "cli/option.h"

#include "base/error.h"

#include <CLI/CLI.hpp>

#include <algorithm>
#include <map>
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

Option with_value(CLI::App& app, CLI::Option* option, const std::string& expected) {
  facts()[option].expected = expected;
  // Else CLI11 would drop values, or complain in its own words, before we see them.
  return {app, option->multi_option_policy(CLI::MultiOptionPolicy::TakeAll)};
}

}  // namespace

Option& Option::type_name(const std::string& name) {
  option_->type_name(name);
  return *this;
}

Option& Option::default_str(const std::string& text) {
  option_->default_str(text);
  return *this;
}

Option& Option::group(const std::string& heading) {
  option_->group(heading);
  return *this;
}

Option& Option::choices(std::vector<std::string> names) {
  facts()[option_].choices = std::move(names);
  return *this;
}

Option& Option::required() {
  option_->required();
  return *this;
}

bool Option::given() const {
  return option_->count() > 0;
}

bool Option::typed() const {
  return std::ranges::find(app_->parse_order(), option_) != app_->parse_order().end();
}

CLI::App& add_subcommand(CLI::App& program, const std::string& name, const std::string& description,
                         const std::string& footer) {
  CLI::App* app = program.add_subcommand(name, description);
  app->footer(footer);
  return *app;
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

Option add_item(CLI::App& app, const std::string& names, const std::string& expected,
                std::function<bool(const std::string&)> take, const std::string& description) {
  const std::string name = shown_name(names);
  const auto callback = [&app, name, expected, take = std::move(take)](const CLI::results_t& given) {
    check(given.size() == 1, app.get_name(), "{}: expected once, got {} times", name, given.size());
    check(take(given.front()), app.get_name(), "{}: expected {}, got {}", name, expected, shown(given.front()));
    return true;
  };
  return with_value(app, app.add_option(names, callback, description), expected);
}

Option add_items(CLI::App& app, const std::string& names, const std::string& expected, std::function<void()> begin,
                 std::function<bool(const std::string&)> take, const std::string& description) {
  const std::string name = shown_plural(names);
  const auto callback = [&app, name, expected, begin = std::move(begin),
                         take = std::move(take)](const CLI::results_t& given) {
    begin();
    for (const std::string& text : given) {
      for (const std::string& item : split_list(text)) {
        check(take(item), app.get_name(), "{}: expected {}, got {}", name, expected, shown(item));
      }
    }
    return true;
  };
  CLI::Option* option = app.add_option(names, callback, description);
  const Option added = with_value(app, option, expected);
  option->expected(CLI::detail::expected_max_vector_size);
  return added;
}

Option add(CLI::App& app, const train::OptionRow& row) {
  std::string names;
  for (const std::string& name : row.names) {
    names += (names.empty() ? "" : ",") + std::string(name.size() == 1 ? "-" : "--") + name;
  }
  names += row.has_opposite ? ",!--no-" + row.names.back() : "";
  const auto begin = [begin = row.begin] {
    if (begin) {
      begin();
    }
  };
  const auto begin_and_take = [begin, take = row.take](const std::string& word) {
    begin();
    return take(word);
  };
  Option added = row.is_switch() ? add_switch(
                                       app, names, [=](bool on) { begin_and_take(on ? "true" : "false"); }, row.help)
                 : row.is_list ? add_items(app, names, row.expected, begin, row.take, row.help)
                               : add_item(app, names, row.expected, begin_and_take, row.help);
  if (!row.is_switch()) {
    added.type_name(row.value_name).default_str(row.otherwise);
  }
  return added.group(row.heading).choices(row.choices);
}

Option add_config(CLI::App& app) {
  const auto take = [](const std::string& file) { return !file.empty(); };  // run_command() has read it
  return add_item(app, kConfigOption, "a path", take,
                  "options from a file of lines batch-size = 128; those on the command line come first");
}

Option add_list(CLI::App& app, const std::string& names, const std::string& what, std::vector<std::string>& items,
                const std::string& description) {
  const auto take = [&items](const std::string& item) { return train::into(items.emplace_back())(item); };
  return add_items(
      app, names, what, [&items] { items.clear(); }, take, description);
}

Option add_repeated(CLI::App& app, const std::string& names, const std::string& what, std::vector<std::string>& items,
                    const std::string& description) {
  const std::string name = shown_plural(names);
  const auto callback = [&app, &items, name, what](const CLI::results_t& given) {
    for (const std::string& text : given) {
      check(!text.empty(), app.get_name(), "{}: expected {}, got {}", name, what, shown(text));
    }
    items = given;
    return true;
  };
  CLI::Option* option = app.add_option(names, callback, description);
  const Option added = with_value(app, option, what);
  option->expected(CLI::detail::expected_max_vector_size)->allow_extra_args(false);
  return added;
}

Option add_values(CLI::App& app, const std::string& names, const Range<int64_t>& range, std::vector<int64_t>& items,
                  const std::string& description) {
  const auto take = [range, &items](const std::string& item) { return train::into(items.emplace_back(), range)(item); };
  return add_items(
      app, names, to_string(range), [&items] { items.clear(); }, take, description);
}

Option add_words(CLI::App& app, const std::string& name, std::vector<std::string>& items,
                 const std::string& description) {
  CLI::Option* option = app.add_option(name, items, description);
  const Option added = with_value(app, option, name);
  option->expected(0, CLI::detail::expected_max_vector_size)->type_name(name + " …");
  return added;
}

Option add_switch(CLI::App& app, const std::string& names, std::function<void(bool)> take,
                  const std::string& description) {
  const std::function<void(int64_t)> count = [take = std::move(take)](int64_t given) { take(given > 0); };
  return {app, app.add_flag_function(names, count, description)};
}

Option add_switch(CLI::App& app, const std::string& names, bool& value, const std::string& description) {
  return add_switch(
      app, names, [&value](bool on) { value = on; }, description);
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

}  // namespace norma::cli
