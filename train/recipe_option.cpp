#include "train/recipe_option.h"

#include "base/error.h"
#include "base/lists.h"
#include "base/nearest_name.h"
#include "base/toml_lines.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <type_traits>

namespace norma::train {

namespace {

using Words = std::vector<std::string>;

// The items of a value: none, one, or all of a list.

template <class T>
std::vector<T> items_of(const T& value) {
  return {value};
}
Words items_of(const std::string& value) {
  return value.empty() ? Words{} : Words{value};
}
template <class T>
std::vector<T> items_of(const std::optional<T>& value) {
  return value ? std::vector<T>{*value} : std::vector<T>{};
}
template <class T>
std::vector<T> items_of(const std::vector<T>& values) {
  return values;
}

/// RecipeOption::take() for each kind of field.
bool take_word(const SwitchField& field, const std::string& word, Recipe& recipe) {
  recipe.*(field.at) = word == "true";
  return true;
}
bool take_word(const TextField& field, const std::string& word, Recipe& recipe) {
  if (field.check != nullptr) {
    field.check(word);
  }
  recipe.*(field.at) = word;
  return !word.empty();
}
bool take_word(const TextsField& field, const std::string& word, Recipe& recipe) {
  field.check(word);
  (recipe.*(field.at)).push_back(word);
  return true;
}
bool take_word(const FileField& field, const std::string& word, Recipe& recipe) {
  recipe.*(field.name) = word;
  recipe.*(field.at) = word.empty() ? "" : field.read(word);
  return !word.empty();
}
template <class T>
bool take_word(const NumberField<T>& field, const std::string& word, Recipe& recipe) {
  T& value = recipe.*(field.at);
  if constexpr (requires { value.emplace_back(); }) {
    return into(value.emplace_back(), field.range)(word);
  } else {
    return into(value, field.range)(word);
  }
}

}  // namespace

RecipeOption::RecipeOption(std::string long_name, RecipeField its_field, std::string text, RecipeOptionDetails details)
    : RecipeOptionDetails(std::move(details)), name(std::move(long_name)), field(its_field), help(std::move(text)) {
  std::string usual_name = is_list() ? "LIST" : "NAME";
  std::string usual = "a name";
  std::visit(
      [&]<class F>(const F& its) {
        if constexpr (std::is_same_v<F, FileField>) {
          usual_name = "FILE.toml";
          usual = "a path";
        } else if constexpr (requires { its.range; }) {
          constexpr bool kWhole = std::is_integral_v<decltype(its.range.low)>;
          usual_name = is_list() ? "LIST" : kWhole ? "N" : "X";
          const bool any = !kWhole && its.range.contains(std::numeric_limits<decltype(its.range.low)>::lowest());
          usual = any ? "a number" : to_string(its.range);
        }
      },
      field);
  value_name = value_name.empty() ? usual_name : value_name;
  expected = (expected.empty() ? usual : expected) + (may_be_absent() && !is_list() ? ", or none" : "");
  if (key.empty()) {
    key = name;
    std::ranges::replace(key, '-', '_');
  }
}

bool RecipeOption::is_list() const {
  return std::holds_alternative<NumberField<std::vector<int64_t>>>(field) ||
         std::holds_alternative<NumberField<std::vector<double>>>(field) || std::holds_alternative<TextsField>(field);
}

bool RecipeOption::is_text() const {
  return std::holds_alternative<TextField>(field) || std::holds_alternative<TextsField>(field) ||
         std::holds_alternative<FileField>(field);
}

bool RecipeOption::may_be_absent() const {
  return or_none || is_list() || std::holds_alternative<FileField>(field) ||
         std::holds_alternative<NumberField<std::optional<int64_t>>>(field) ||
         std::holds_alternative<NumberField<std::optional<double>>>(field);
}

std::string RecipeOption::help_text() const {
  constexpr std::string_view kNames = "{names}";
  std::string text = help;
  if (const size_t at = text.find(kNames); at != std::string::npos) {
    text.replace(at, kNames.size(), or_list(names()));
  }
  return text;
}

std::string RecipeOption::default_text(const Recipe& defaults) const {
  const Words own = items(defaults);
  if (!absent.empty() && own == items(Recipe{})) {
    return absent;
  }
  if (own.empty() && !(replaces + replaced_by).empty()) {
    return (replaces.empty() ? "" : "0: ") + ("see --" + replaces) + replaced_by;
  }
  return own.empty() ? kNone : fmt::format("{}", fmt::join(own, ","));
}

OptionRow RecipeOption::row(const Recipe& defaults) const {
  const std::string state = items(defaults) == Words{"true"} ? " [on]" : " [off]";
  return {.names = letter == 0 ? Words{name} : Words{std::string(1, letter), name},
          .heading = heading,
          .value_name = is_switch() ? "" : value_name,
          .expected = expected,
          .help = help_text() + (is_switch() ? state : ""),
          .take = {},
          .otherwise = default_text(defaults),
          .choices = names == nullptr ? Words{} : names(),
          .is_list = is_list(),
          .has_opposite = is_switch(),
          .excludes = replaces.empty() ? Words{} : Words{replaces}};
}

std::vector<std::string> RecipeOption::items(const Recipe& recipe) const {
  if (const auto* file = std::get_if<FileField>(&field)) {
    return (recipe.*(file->at)).empty() ? Words{} : Words{recipe.*(file->name)};
  }
  Words words;
  std::visit(
      [&](const auto& its) {
        const auto items = items_of(recipe.*(its.at));
        for (const typename decltype(items)::value_type& item : items) {  // not the reference of a std::vector<bool>
          words.push_back(fmt::format("{}", item));
        }
      },
      field);
  const bool off = !replaces.empty() && words == Words{"0"};
  const bool replaced = !replaced_by.empty() && !recipe_option(replaced_by).items(recipe).empty();
  return off || replaced ? Words{} : words;
}

std::string RecipeOption::toml(const Recipe& recipe) const {
  Words words = items(recipe);
  const auto* number = std::get_if<NumberField<uint64_t>>(&field);
  if (is_text() || (number != nullptr && !std::in_range<int64_t>(recipe.*(number->at)))) {
    words = mapped(words, toml_string);
  }
  return words.empty() || !is_list() ? fmt::format("{}", fmt::join(words, ""))
                                     : fmt::format("[{}]", fmt::join(words, ", "));
}

bool RecipeOption::take(Recipe& recipe, const std::string& word) const {
  if (word == kNone && may_be_absent()) {
    const bool first = !is_list() || items(recipe).empty();
    clear(recipe);
    return first;
  }
  return std::visit([&](const auto& its) { return take_word(its, word, recipe); }, field);
}

void RecipeOption::clear(Recipe& recipe) const {
  std::visit([&](const auto& its) { recipe.*(its.at) = {}; }, field);
}

void RecipeOption::give(const Recipe& from, Recipe& to) const {
  std::visit([&](const auto& its) { to.*(its.at) = from.*(its.at); }, field);
  if (const auto* file = std::get_if<FileField>(&field)) {
    to.*(file->name) = from.*(file->name);
  }
  if (!replaced_by.empty()) {
    recipe_option(replaced_by).clear(to);
  }
}

void RecipeOption::check_value(const Recipe& recipe) const {
  std::visit(
      [&](const auto& its) {
        if constexpr (requires { its.range; }) {
          for (const auto item : items_of(recipe.*(its.at))) {
            check_range("train", name, item, its.range);
          }
        }
        if constexpr (std::is_same_v<std::decay_t<decltype(its)>, TextField>) {
          if (its.check != nullptr && !(recipe.*(its.at)).empty()) {
            its.check(recipe.*(its.at));
          }
        }
      },
      field);
  if (!kind.empty()) {
    const Words known = names();
    const std::string& text = recipe.*(std::get<TextField>(field).at);
    const std::string value = kind == "model" ? models::network_of(text) : text;
    check(is_in(known, value), "train", "{}{}", kind == "name" ? name + ": " : "", unknown_name(kind, value, known));
  }
}

const RecipeOption* find_recipe_option(std::string_view name) {
  const std::vector<RecipeOption>& all = recipe_options();
  const auto found = std::ranges::find_if(all, [&](const RecipeOption& one) { return one.name == name; });
  return found == all.end() ? nullptr : &*found;
}

const RecipeOption& recipe_option(std::string_view name) {
  const RecipeOption* found = find_recipe_option(name);
  check(found != nullptr, "recipe", "unknown option '{}'", name);
  return *found;
}

std::string to_toml(const Recipe& recipe) {
  std::string lines;
  for (const RecipeOption& option : recipe_options()) {
    const std::string value = option.toml(recipe);
    lines += value.empty() ? "" : fmt::format("{} = {}\n", option.name, value);
  }
  return lines;
}

std::vector<std::string> differences(const Recipe& before, const Recipe& after) {
  std::vector<std::string> lines;
  for (const RecipeOption& option : recipe_options()) {
    const auto shown = [&](const Recipe& recipe) {
      const std::string value = option.toml(recipe);
      return value.empty() ? kNone : value;
    };
    if (shown(before) != shown(after)) {
      lines.push_back(fmt::format("{} {} → {}", option.name, shown(before), shown(after)));
    }
  }
  return lines;
}

std::vector<std::string> without_effect(const Recipe& recipe, const std::vector<std::string>& given) {
  const Recipe defaults;
  std::vector<std::string> lines;
  for (const RecipeOption& option : recipe_options()) {
    const bool off = option.needs.is_given != nullptr && !option.needs.is_given(recipe);
    const bool meant = option.items(recipe) != option.items(defaults) || is_in(given, option.name);
    if (off && meant) {
      lines.push_back(fmt::format("{} has no effect without {}", option.name, option.needs.name));
    }
  }
  return lines;
}

}  // namespace norma::train
