#pragma once

#include "lab/compare/comparison.h"
#include "small_runs.h"

#include <filesystem>

namespace norma::test {

/// Two norms in one network, two steps each, no timing.
inline lab::ComparisonOptions small_comparison(const std::filesystem::path& output) {
  lab::ComparisonOptions options;
  options.recipe = small_recipe("convnext_atto", {.images = 8, .test_images = 8});
  options.recipe.small_stem = true;
  options.models = {"convnext_atto"};
  options.norms = {"batch", "layer2d"};
  options.timing_rounds = 0;
  options.output = output;
  options.quiet = true;
  return options;
}

}  // namespace norma::test
