#pragma once

#include "train/recipe.h"

#include <string>
#include <string_view>
#include <vector>

// The parts of check_recipe().

namespace norma::train {

/// Throws Error "train: unknown KIND 'NAME'; did you mean …?".
void check_known(std::string_view kind, const std::string& name, const std::vector<std::string>& known);

/// The optimizer, its schedule and its loss.
void check_optimisation(const Recipe& recipe);

}  // namespace norma::train
