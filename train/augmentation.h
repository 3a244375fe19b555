#pragma once

#include "data/augment/mix.h"
#include "data/transform.h"
#include "train/recipe.h"

#include <string>
#include <vector>

namespace norma::train {

/// Interpolations of test images: bilinear, bicubic.
std::vector<std::string> interpolation_names();
/// The same, and random.
std::vector<std::string> train_interpolation_names();

/// Throws Error "train: name: expected …, got …" for the first invalid value of the recipe's augmentation, and for two
/// that exclude each other.
void check_augmentation(const Recipe& recipe);

// These functions expect a recipe that passed the check.

/// The transform of training images.
data::TransformOptions train_transform(const Recipe& recipe);
/// The transform of test images.
data::TransformOptions test_transform(const Recipe& recipe);
data::MixOptions mix_options(const Recipe& recipe);

/// The augmentation for people: "random crop by 2 pixels, flip, rand-m9", "none".
std::string augmentation_text(const Recipe& recipe);

}  // namespace norma::train
