#pragma once

#include "core/memory_format.h"
#include "train/recipe.h"

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace norma::lab {

/// The place of a training run in a grid: its value on each axis. All else is the same in the whole comparison.
struct Settings {
  std::string model;
  std::string norm;
  uint64_t seed = 0;
  // The members below mean the same as in train::Recipe, unless a comment says otherwise.
  int64_t batch_size = 128;
  double lr = 2e-3;
  std::string precision = "float32";
  MemoryFormat format = MemoryFormat::channels_last;
  std::string dataset = "fashion_mnist";

  friend bool operator==(const Settings&, const Settings&) = default;
};

/// The settings in a recipe.
Settings settings_of(const train::Recipe& recipe);

/// `common` with these settings. It leaves out options of the other family of networks, a cast policy if the precision
/// has none, and the data's folder if the dataset is generated.
train::Recipe recipe_of(const train::Recipe& common, const Settings& settings);

/// The settings shared by norms whose steps are timed together: norm, seed and lr are empty.
Settings timing_group(Settings settings);

/// An axis of a grid.
struct Axis {
  std::string_view name;  ///< for people: "batch size"
  std::string (*value)(const Settings& settings);
};

/// All axes but model, norm and seed, in the order of display: dataset, batch size, lr, precision, format.
const std::vector<Axis>& further_axes();

}  // namespace norma::lab
