#pragma once

#include "core/memory_format.h"
#include "train/recipe.h"

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace norma::lab {

/// Where a training run stands in a grid: its value on each axis. All else is the same in the whole comparison.
struct Settings {
  std::string model;
  std::string norm;
  uint64_t seed = 0;
  // As in train::Recipe where nothing else is said.
  int64_t batch_size = 128;
  double lr = 2e-3;
  std::string precision = "float32";
  MemoryFormat format = MemoryFormat::channels_last;
  std::string dataset = "fashion_mnist";

  friend bool operator==(const Settings&, const Settings&) = default;
};

/// Those of a recipe.
Settings settings_of(const train::Recipe& recipe);

/// `common` with these settings. What only the other family of networks has is left out, as is a cast policy where the
/// precision has none, and the data's folder where the dataset is generated.
train::Recipe recipe_of(const train::Recipe& common, const Settings& settings);

/// What the steps of several norms are timed for together: norm, seed and lr are empty.
Settings timing_group(Settings settings);

/// An axis of a grid.
struct Axis {
  std::string_view name;  ///< for people: "batch size"
  std::string (*value)(const Settings& settings);
};

/// All axes but model, norm and seed, in the order in which they are shown: dataset, batch size, lr, precision, format.
const std::vector<Axis>& further_axes();

}  // namespace norma::lab
