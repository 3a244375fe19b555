#pragma once

#include "train/recipe.h"

#include <string>

namespace norma::test {

struct RunSize {
  int64_t batch_size = 4;
  int64_t images = 12;
  int64_t test_images = 4;
};

/// A run of a few steps on drawn shapes of 32 pixels. A ConvNeXt takes patches of 4 pixels, for time.
inline train::Recipe small_recipe(const std::string& model = "convnext_atto", const RunSize& size = {}) {
  train::Recipe recipe;
  recipe.model = model;
  if (model.starts_with("convnext")) {
    recipe.patch_size = 4;
  }
  recipe.dataset = "shapes";
  recipe.batch_size = size.batch_size;
  recipe.images = size.images;
  recipe.test_images = size.test_images;
  return recipe;
}

}  // namespace norma::test
