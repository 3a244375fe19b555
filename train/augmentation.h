#pragma once

#include "data/augment/mix.h"
#include "data/transform.h"
#include "train/recipe.h"

#include <string>
#include <vector>

namespace norma::train {

/// bilinear, bicubic: of test images.
std::vector<std::string> interpolation_names();
/// These, and random.
std::vector<std::string> train_interpolation_names();

/// Throws Error "train: name: expected …, got …" for the first value of the recipe's augmentation that makes no sense,
/// and for two that exclude each other.
void check_augmentation(const Recipe& recipe);

// Of a recipe that passed the check.

/// What is done to training images.
data::TransformOptions train_transform(const Recipe& recipe);
/// What is done to test images.
data::TransformOptions test_transform(const Recipe& recipe);
data::MixOptions mix_options(const Recipe& recipe);

/// For people: "random crop by 2 pixels, flip, rand-m9", "none".
std::string augmentation_text(const Recipe& recipe);

}  // namespace norma::train
