#pragma once

#include "nn/module.h"
#include "train/evaluate.h"
#include "train/training_state.h"

#include <cstdint>

// Evaluations of a run's networks. All processes of the run call them together.

namespace norma::train {

/// Evaluates a network of the run on its test images. `workers` are the loader's threads.
Evaluation evaluate_on_test_images(TrainingState& run, nn::Module& model, int workers);

/// Evaluates a network of the run on so many of its training images, or on all if there are fewer. They are the same
/// ones at every seed, and come as test images do, without augmentation, so that training and test loss differ by the
/// images alone.
Evaluation evaluate_on_training_images(TrainingState& run, nn::Module& model, int64_t images, int workers);

/// Puts the moving averages of the run's tensors into another network of its kind. Expects TrainingState::ema.
void load_averages(TrainingState& run, nn::Module& model);

}  // namespace norma::train
