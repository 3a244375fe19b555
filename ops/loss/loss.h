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
};

/// -sum over classes of target · log_softmax(logits). logits: (N, C), of a floating dtype; 16-bit ones are
/// computed in float32 and the loss is rounded once.
/// target: int64 (N) class numbers in [0, C), or probabilities (N, C) of the logits' dtype.
/// Result: rank 0, or (N) for Reduction::none, in the logits' dtype. Any strides. Differentiable in logits (and in
/// probabilities), also twice. Row sums are carried in float64.
/// Throws Error for a class outside [0, C), for label_smoothing outside [0, 1), and for no rows.
Tensor cross_entropy(const Tensor& logits, const Tensor& target, const CrossEntropyOptions& options = {});

}  // namespace norma
