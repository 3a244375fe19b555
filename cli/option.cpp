#include "cli/option.h"

#include "cli/option_notes.h"
#include "core/error.h"
#include "core/parse_number.h"

#include <CLI/CLI.hpp>

#include <optional>
#include <utility>

namespace norma::cli {

namespace {

/// The first long name of "-b,--batch-size".
std::string shown_name(const std::string& names) {
  const size_t start = names.find("--");
  return names.substr(start, names.find(',', start) - start);
}

/// The last name of "--model,--models", of which several can be given.
std::string shown_plural(const std::string& names) {
  return names.substr(names.rfind("--"));
}

/// The items of a list, separated by commas outside brackets.
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

Option note(CLI::Option* option, const std::string& expected) {
  notes().expected[option] = expected;
  // Else CLI11 would drop values, or complain in its own words, before we see them.
  return Option(option->multi_option_policy(CLI::MultiOptionPolicy::TakeAll));
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

Option& Option::required() {
  option_->required();
  return *this;
}

bool Option::given() const {
  return option_->count() > 0;
}

bool Option::typed() const {
  return given() && notes().from_file.count(option_) == 0;
}

CLI::App& add_subcommand(CLI::App& program, const std::string& name, const std::string& description,
                         const std::string& footer) {
  CLI::App* app = program.add_subcommand(name, description);
  app->footer(footer);
  return *app;
}

Option option_of(CLI::App& app, const std::string& name) {
  return Option(app.get_option(name));
}

Option add_item(CLI::App& app, const std::string& names, const std::string& expected,
                std::function<bool(const std::string&)> take, const std::string& description) {
  const std::string name = shown_name(names);
  const auto callback = [&app, name, expected, take = std::move(take)](const CLI::results_t& given) {
    check(given.size() == 1, app.get_name(), "{}: expected once, got {} times", name, given.size());
    check(take(given.front()), app.get_name(), "{}: expected {}, got {}", name, expected, shown(given.front()));
    return true;
  };
  return note(app.add_option(names, callback, description), expected);
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
  const Option noted = note(option, expected);
  option->expected(CLI::detail::expected_max_vector_size);
  return noted;
}

template <class T>
Option add_value(CLI::App& app, const std::string& names, const Range<T>& range, std::function<void(T)> take,
                 const std::string& description) {
  const auto take_text = [range, take = std::move(take)](const std::string& text) {
    const std::optional<T> value = parse_number<T>(text);
    const bool fits = value && range.contains(*value);
    if (fits) {
      take(*value);
    }
    return fits;
  };
  return add_item(app, names, to_string(range), take_text, description);
}

template Option add_value(CLI::App&, const std::string&, const Range<int64_t>&, std::function<void(int64_t)>,
                          const std::string&);
template Option add_value(CLI::App&, const std::string&, const Range<uint64_t>&, std::function<void(uint64_t)>,
                          const std::string&);
template Option add_value(CLI::App&, const std::string&, const Range<double>&, std::function<void(double)>,
                          const std::string&);

Option add_text(CLI::App& app, const std::string& names, const std::string& what,
                std::function<void(const std::string&)> take, const std::string& description) {
  const auto take_text = [take = std::move(take)](const std::string& text) {
    if (!text.empty()) {
      take(text);
    }
    return !text.empty();
  };
  return add_item(app, names, what, take_text, description);
}

Option add_text(CLI::App& app, const std::string& names, const std::string& what, std::string& text,
                const std::string& description) {
  return add_text(
      app, names, what, [&text](const std::string& given) { text = given; }, description);
}

Option add_path(CLI::App& app, const std::string& names, std::string& path, const std::string& description) {
  return add_text(app, names, "a path", path, description);
}

Option add_config(CLI::App& app) {
  return add_text(
      app, kConfigOption, "a path", [](const std::string&) {},
      "options from a file of lines batch-size = 128; those on the command line come first");
}

Option add_list(CLI::App& app, const std::string& names, const std::string& what, std::vector<std::string>& items,
                const std::string& description) {
  const auto take = [&items](const std::string& item) {
    items.push_back(item);
    return !item.empty();
  };
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
  const Option noted = note(option, what);
  option->expected(CLI::detail::expected_max_vector_size)->allow_extra_args(false);
  return noted;
}

template <class T>
Option add_values(CLI::App& app, const std::string& names, const Range<T>& range, std::vector<T>& items,
                  const std::string& description) {
  const auto take = [range, &items](const std::string& item) {
    const std::optional<T> value = parse_number<T>(item);
    items.push_back(value.value_or(T{}));
    return value && range.contains(*value);
  };
  return add_items(
      app, names, to_string(range), [&items] { items.clear(); }, take, description);
}

template Option add_values(CLI::App&, const std::string&, const Range<int64_t>&, std::vector<int64_t>&,
                           const std::string&);
template Option add_values(CLI::App&, const std::string&, const Range<uint64_t>&, std::vector<uint64_t>&,
                           const std::string&);
template Option add_values(CLI::App&, const std::string&, const Range<double>&, std::vector<double>&,
                           const std::string&);

Option add_words(CLI::App& app, const std::string& name, std::vector<std::string>& items,
                 const std::string& description) {
  CLI::Option* option = app.add_option(name, items, description);
  const Option noted = note(option, name);
  option->expected(0, CLI::detail::expected_max_vector_size)->type_name(name + " …");
  return noted;
}

Option add_switch(CLI::App& app, const std::string& names, std::function<void(bool)> take,
                  const std::string& description) {
  const std::function<void(int64_t)> count = [take = std::move(take)](int64_t given) { take(given > 0); };
  return Option(app.add_flag_function(names, count, description));
}

Option add_switch(CLI::App& app, const std::string& names, bool& value, const std::string& description) {
  return add_switch(
      app, names, [&value](bool on) { value = on; }, description);
}

void exclude(CLI::App& app, const std::vector<std::string>& names) {
  notes().exclusive.emplace_back(&app, names);
}

}  // namespace norma::cli
