#pragma once

#include "data/loader.h"
#include "nn/module.h"
#include "train/precision.h"

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

namespace norma::train {

struct Evaluation {
  double accuracy = 0;  ///< share of images whose largest logit is that of their label, in [0, 1]
  double loss = 0;      ///< mean cross-entropy, without label smoothing
  /// Share of images whose label has one of the five largest logits; none for fewer than six classes.
  std::optional<double> top5 = {};
  int64_t images = 0;
  int64_t skipped_images = 0;  ///< of Dataset::skipped(); evaluate() leaves it to those who have the dataset
  double seconds = 0;
  bool complete = false;  ///< false: a signal came before the end (interrupt.h); the figures are those of a part
};

/// What evaluate() has found in a batch.
struct EvaluatedBatch {
  const std::vector<int64_t>& labels;
  const std::vector<int64_t>& answers;  ///< the class of the largest logit
  int64_t images = 0;                   ///< so far, these included
  double loss = 0;                      ///< mean so far
};

struct EvaluateOptions {
  std::function<void(const EvaluatedBatch&)> on_batch = {};  ///< called after each
};

/// Runs the model in evaluation mode over all batches, without gradients; its mode is as before afterwards.
/// `model` is in the precision (convert_model()); the images are converted, and the loss is computed in float32 or
/// wider. Throws OutOfMemory that names the size of the batches where one does not fit.
Evaluation evaluate(nn::Module& model, data::Loader& batches, const Precision& precision = {},
                    const EvaluateOptions& options = {});

}  // namespace norma::train
