#pragma once

#include "train/recipe_option.h"

#include <string>
#include <type_traits>
#include <variant>

namespace norma::test {

/// Gives the field of an option another value than the default.
inline void give_other_value(const train::RecipeOption& option, train::Recipe& recipe) {
  std::visit(
      [&]<class F>(const F& field) {
        auto& value = recipe.*(field.at);
        if constexpr (std::is_same_v<F, train::SwitchField>) {
          value = !value;
        } else if constexpr (std::is_same_v<F, train::TextField>) {
          const auto names = option.names != nullptr ? option.names() : std::vector<std::string>{"0.3"};
          const bool is_absence = option.or_none && names.back() == train::kNone;
          value = names.back() == value || is_absence ? names.front() : names.back();
        } else if constexpr (std::is_same_v<F, train::TextsField>) {
          value = {"linear=keep", "relu=float32"};
        } else if constexpr (std::is_same_v<F, train::FileField>) {
          value = option.name == "norm-policy" ? "\"*\" = \"none\"\n" : "\"relu\" = \"keep\"\n";
          recipe.*(field.name) = option.name + ".toml";
        } else if constexpr (requires { value.push_back({}); }) {
          using Item = std::decay_t<decltype(value.front())>;
          value = std::is_integral_v<Item> ? std::vector<Item>{3, 7} : std::vector<Item>{Item(0.25), Item(0.75)};
        } else {
          using Item = decltype(field.range.low);
          const Item some = std::is_integral_v<Item> ? Item{7} : Item(0.25);
          const Item another = std::is_integral_v<Item> ? Item{5} : Item(0.75);
          value = value == some ? another : some;
        }
      },
      option.field);
}

/// The default recipe, but for one option.
inline train::Recipe with_other_value(const train::RecipeOption& option) {
  train::Recipe recipe;
  give_other_value(option, recipe);
  return recipe;
}

}  // namespace norma::test
