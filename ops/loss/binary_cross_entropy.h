#pragma once

#include "core/tensor.h"
#include "ops/loss/loss.h"

#include <optional>

namespace norma {

struct BinaryCrossEntropyOptions {
  double label_smoothing = 0;                   ///< in [0, 1), of class numbers: as CrossEntropyOptions'
  std::optional<double> target_threshold = {};  ///< targets above it, smoothing included, become 1, others 0
  Tensor weight = {};      ///< weight of each loss; broadcast to the logits' sizes. Undefined: 1 each
  Tensor pos_weight = {};  ///< weight of targets of 1; likewise
  Reduction reduction = Reduction::mean;
};

/// Binary cross entropy, as PyTorch's: -(pos_weight · t · log(sigmoid(x)) + (1 - t) · log(1 - sigmoid(x))) · weight for
/// each logit x and its target t in [0, 1]. logits: any sizes, of a floating dtype; 16-bit ones are computed in float32
/// and rounded once. target: probabilities of the logits' sizes and dtype, or for logits (N, C) int64 (N) class
/// numbers. These stand for one-hot rows, smoothed: 1 - s + s / C and s / C, as in timm's BinaryCrossEntropy, whose
/// threshold this has, too. Result: rank 0, the mean or sum over all logits, or for Reduction::none the losses in the
/// logits' sizes. Differentiable in logits (and in probabilities, without a threshold), also twice; exact for large
/// logits of either sign. Composed of cross_entropy over the two classes [x, 0]. Throws Error for other targets,
/// weights that require a gradient, options out of range, and class numbers outside [0, C). On CUDA such a number makes
/// the losses of its row NaN instead, since nobody waits for the device.
Tensor binary_cross_entropy_with_logits(const Tensor& logits, const Tensor& target,
                                        const BinaryCrossEntropyOptions& options = {});

}  // namespace norma
