#pragma once

#include "core/tensor.h"

namespace norma {

/// exp(x) / sum(exp(x)) along one axis, in x's (dense) strides. Floating dtypes, of rank 1 or more;
/// 16-bit ones are computed in float32 and rounded once.
Tensor softmax(const Tensor& x, int64_t axis);
/// log(softmax(x)) along one axis, computed as x - max - log(sum(exp(x - max))).
Tensor log_softmax(const Tensor& x, int64_t axis);

/// What becomes of the losses of the rows.
enum class Reduction { mean, sum, none };

struct CrossEntropyOptions {
  double label_smoothing = 0;  ///< in [0, 1): this share of each target is spread evenly over all classes
  Reduction reduction = Reduction::mean;
  Tensor weight = {};           ///< (C), what each class counts; a constant. Undefined: 1 each
  int64_t ignore_index = -100;  ///< rows of this class number do not count; it may lie outside [0, C)
};

/// -sum over classes of weight · target · log_softmax(logits), as in PyTorch. logits: (N, C), of a floating dtype;
/// 16-bit ones are computed in float32 and the loss is rounded once. target: int64 (N) class numbers in [0, C) or
/// ignore_index, or probabilities (N, C) of the logits' dtype. Result: rank 0, or (N) for Reduction::none, in the
/// logits' dtype. The mean of class numbers divides by the sum of the weights of their classes, ignored rows left out
/// (NaN where none is left); that of probabilities by N. Any strides. Differentiable in logits (and in probabilities),
/// also twice. Row sums are carried in float64. Throws Error for a class outside [0, C), for label_smoothing outside
/// [0, 1), for a weight of other sizes or one that requires a gradient, and for no rows. On CUDA nobody waits for the
/// device to look at the classes: one outside [0, C) makes the loss of its row NaN, and the gradient unless it is
/// itself recorded.
Tensor cross_entropy(const Tensor& logits, const Tensor& target, const CrossEntropyOptions& options = {});

}  // namespace norma
