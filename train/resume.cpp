#include "train/resume.h"

#include "core/error.h"
#include "core/excerpt.h"
#include "models/registry.h"
#include "train/output.h"
#include "train/recipe_option.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace norma::train {

namespace {

/// The value for people.
std::string shown(const RecipeOption& option, const Recipe& recipe) {
  const std::vector<std::string> items = option.items(recipe);
  const std::string text = fmt::format("{}", fmt::join(items, ","));
  if (std::holds_alternative<FileField>(option.field)) {
    return items.empty() ? kNone : fmt::format("that of '{}'", text);
  }
  if (option.is_switch()) {
    return text == "true" ? "on" : "off";
  }
  if (option.is_text()) {
    return items.empty() ? kNone : fmt::format("'{}'", excerpt(text));
  }
  return items.empty() ? "the model's own" : text;
}

/// True iff both have the same value; for a file, the same text under any name.
bool is_same(const RecipeOption& option, const Recipe& a, const Recipe& b) {
  const auto* file = std::get_if<FileField>(&option.field);
  return file != nullptr ? a.*(file->at) == b.*(file->at) : option.items(a) == option.items(b);
}

Recipe with_norm(Recipe recipe) {
  recipe.norm = recipe.norm.empty() ? models::own_norm(recipe.model) : recipe.norm;
  return recipe;
}

}  // namespace

void check_same_run(const Recipe& before, const Recipe& now) {
  const Recipe first = with_norm(before);
  const Recipe second = with_norm(now);
  for (const RecipeOption& option : recipe_options()) {
    if (option.on_resume == OnResume::another_run && !is_same(option, first, second)) {
      const std::string was = shown(option, first);
      const std::string is = shown(option, second);
      fail("resume", "{}: the run was started with {}, and cannot go on with {}", option.name, was,
           std::holds_alternative<FileField>(option.field) && is == was ? "another text in that file" : is);
    }
  }
}

void check_changes_count(const Recipe& before, const Recipe& now, int64_t steps) {
  Recipe heeded = now;
  for (const RecipeOption& option : recipe_options()) {
    if (option.on_resume == OnResume::always) {
      option.give(before, heeded);
    }
  }
  const std::vector<std::string> changes = differences(before, heeded);
  check(changes.empty(), "resume",
        "the run is complete after {} steps, and would not heed {}: --epochs or --images make it longer", steps,
        fmt::format("{}", fmt::join(changes, ", ")));
}

void check_data_dir(std::string_view op, const Recipe& of_checkpoint, const Recipe& now) {
  const std::string& folder = of_checkpoint.data_dir;
  check(folder.empty() || now.data_dir != folder || path_exists(op, folder), op,
        "data-dir: there is no '{}', as the checkpoint has it: --data-dir says where it is", folder);
}

}  // namespace norma::train
