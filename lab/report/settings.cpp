#include "lab/report/settings.h"

#include <fmt/format.h>

namespace norma::lab {

Settings settings_of(const train::Recipe& recipe) {
  return {.model = recipe.model,
          .norm = recipe.norm,
          .seed = recipe.seed,
          .batch_size = recipe.batch_size,
          .lr = recipe.lr,
          .precision = recipe.precision,
          .format = recipe.channels_last ? MemoryFormat::channels_last : MemoryFormat::contiguous,
          .dataset = recipe.dataset};
}

train::Recipe recipe_of(const train::Recipe& common, const Settings& settings) {
  train::Recipe recipe = common;
  recipe.model = settings.model;
  recipe.norm = settings.norm;
  recipe.seed = settings.seed;
  recipe.batch_size = settings.batch_size;
  recipe.lr = settings.lr;
  recipe.precision = settings.precision;
  recipe.channels_last = settings.format == MemoryFormat::channels_last;
  recipe.dataset = settings.dataset;
  if (!recipe.cast_policy.empty() && !train::parse_precision(recipe.precision).autocast) {
    recipe.cast_policy.clear();
    recipe.cast_policy_file.clear();
  }
  if (recipe.dataset == "shapes") {
    recipe.data_dir.clear();
  }
  if (settings.model.starts_with("convnext")) {
    recipe.small_stem = false;
    recipe.zero_init_last = false;
  } else {
    recipe.patch_size.reset();
    recipe.layer_scale.reset();
  }
  return recipe;
}

Settings timing_group(Settings settings) {
  settings.norm.clear();
  settings.seed = 0;
  settings.lr = 0;
  return settings;
}

const std::vector<Axis>& further_axes() {
  static const std::vector<Axis> axes = {
      {.name = "dataset", .value = [](const Settings& s) { return s.dataset; }},
      {.name = "batch size", .value = [](const Settings& s) { return fmt::format("{}", s.batch_size); }},
      {.name = "lr", .value = [](const Settings& s) { return fmt::format("{}", s.lr); }},
      {.name = "precision", .value = [](const Settings& s) { return s.precision; }},
      {.name = "format", .value = [](const Settings& s) { return std::string(to_string(s.format)); }}};
  return axes;
}

}  // namespace norma::lab
