#pragma once

#include "base/error.h"
#include "train/recipe.h"

#include <functional>
#include <string>

namespace norma::test {

/// The text check_recipe throws for the default recipe after `change`; "" when it is content.
inline std::string complaint(const std::function<void(train::Recipe&)>& change) {
  train::Recipe recipe;
  change(recipe);
  try {
    train::check_recipe(recipe);
  } catch (const Error& e) {
    return e.what();
  }
  return "";
}

}  // namespace norma::test
