#include "train/recipe_option.h"

#include "base/toml_lines.h"
#include "files.h"
#include "json.h"
#include "number_of_fields.h"
#include "session/resume.h"
#include "train/other_values.h"

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <limits>
#include <set>
#include <string>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

using namespace norma;
using namespace norma::train;
using norma::test::error_of;
using norma::test::with_other_value;

namespace {

/// The text of a TOML value as a word of the command line.
std::string word_of(const TomlScalar& value) {
  return std::visit(
      []<class T>(const T& its) {
        if constexpr (std::is_same_v<T, std::monostate>) {
          return std::string("?");
        } else {
          return fmt::format("{}", its);
        }
      },
      value);
}

/// What the lines of a TOML file make of the default recipe. The names of files are in `folder`.
Recipe recipe_from_toml(const std::string& text, const std::filesystem::path& folder) {
  Recipe recipe;
  for (const TomlLine& line : parse_toml_lines("test", text, "args.toml", {.line = "", .key = ""})) {
    const RecipeOption& option = recipe_option(line.key);
    Recipe given;
    option.clear(given);
    for (const TomlScalar& item : line.list.value_or(std::vector<TomlScalar>{line.value})) {
      const bool is_file = std::holds_alternative<FileField>(option.field);
      CHECK(option.take(given, is_file ? (folder / word_of(item)).string() : word_of(item)));
    }
    if (const auto* file = std::get_if<FileField>(&option.field)) {
      given.*(file->name) = std::filesystem::path(given.*(file->name)).filename().string();
    }
    option.give(given, recipe);
  }
  return recipe;
}

}  // namespace

TEST_CASE("recipe options: every field of a recipe has one") {
  CHECK(test::parse_json(to_json(Recipe{})).size() == test::number_of_fields<Recipe>());
}

TEST_CASE("recipe options: another value of each is in JSON, in args.toml and among the differences") {
  const test::TemporaryFolder folder;
  const Recipe defaults;
  std::set<std::string> seen = {to_json(defaults)};
  for (const RecipeOption& option : recipe_options()) {
    CAPTURE(option.name);
    const Recipe recipe = with_other_value(option);
    if (const auto* file = std::get_if<FileField>(&option.field)) {
      test::write_file(folder / recipe.*(file->name), recipe.*(file->at));
    }
    const std::string json = to_json(recipe);
    CHECK(seen.insert(json).second);
    CHECK(to_json(recipe_from_json(json)) == json);
    CHECK(to_json(recipe_from_toml(to_toml(recipe), folder.path())) == json);
    const std::vector<std::string> lines = differences(defaults, recipe);
    CHECK(std::any_of(lines.begin(), lines.end(),
                      [&](const std::string& line) { return line.starts_with(option.name + " "); }));
  }
}

TEST_CASE("recipe options: a resumed run may change them as their description says") {
  for (const RecipeOption& option : recipe_options()) {
    CAPTURE(option.name);
    const Recipe recipe = with_other_value(option);
    const std::string another = error_of([&] { check_same_run({}, recipe); });
    CHECK_MESSAGE(another.starts_with(option.on_resume == OnResume::another_run
                                          ? fmt::format("resume: {}: the run was started with ", option.name)
                                          : "no error"),
                  another);
    const std::string late = error_of([&] { check_changes_count({}, recipe, 3); });
    const bool refused = late.starts_with("resume: the run is complete after 3 steps, and would not heed ") &&
                         late.find(fmt::format(" {} ", option.name)) != std::string::npos;
    CHECK_MESSAGE((option.on_resume == OnResume::always ? late == "no error" : refused), late);
  }
}

TEST_CASE("recipe options: a number outside its range is refused by the option's name") {
  for (const RecipeOption& option : recipe_options()) {
    CAPTURE(option.name);
    const auto is_refused = [&]<class F, class T>(const F& field, const T number) {
      Recipe recipe;
      if constexpr (requires { (recipe.*(field.at)).push_back(number); }) {
        recipe.*(field.at) = {number};
      } else {
        recipe.*(field.at) = number;
      }
      CHECK(error_of([&] { check_recipe(recipe); }) ==
            fmt::format("train: {}: expected {}, got {}", option.name, to_string(field.range), number));
      CHECK_FALSE(option.take(recipe, fmt::format("{}", number)));
    };
    std::visit(
        [&](const auto& field) {
          if constexpr (requires { field.range; }) {
            const auto& range = field.range;
            using Item = std::decay_t<decltype(range.low)>;
            if (range.high == std::numeric_limits<Item>::max()) {
              return;  // all numbers are in it
            }
            is_refused(field, static_cast<Item>(range.high + 1));
            is_refused(field, static_cast<Item>(range.low - 1));
            if (!range.with_high) {
              is_refused(field, range.high);
            }
            if (!range.with_low) {
              is_refused(field, range.low);
            }
          }
        },
        option.field);
  }
}

TEST_CASE("recipe options: what replaces another one") {
  const RecipeOption& epochs = recipe_option("epochs");
  const RecipeOption& images = recipe_option("images");
  Recipe recipe;
  CHECK(epochs.items(recipe) == std::vector<std::string>{"3"});
  CHECK(images.items(recipe).empty());
  CHECK(epochs.default_text(recipe) == "3");
  CHECK(images.default_text(recipe) == "0: see --epochs");
  recipe.images = 64;
  CHECK(epochs.items(recipe).empty());
  CHECK(images.items(recipe) == std::vector<std::string>{"64"});
  CHECK(epochs.default_text(recipe) == "see --images");
  CHECK(images.default_text(recipe) == "64");
  epochs.give({}, recipe);
  CHECK(recipe.images == 0);
}
