#pragma once

#include "core/tensor.h"

#include <optional>

namespace norma {

/// Softmax: exp(x) / sum(exp(x)) along one axis, in x's (dense) strides. Floating dtypes, of rank 1 or more; 16-bit
/// ones are computed in float32 and rounded once.
Tensor softmax(const Tensor& x, int64_t axis);
/// Log softmax: log(softmax(x)) along one axis, computed as x - max - log(sum(exp(x - max))).
Tensor log_softmax(const Tensor& x, int64_t axis);

/// The way in which the losses of the rows become the result.
enum class Reduction { mean, sum, none };

struct CrossEntropyOptions {
  double label_smoothing = 0;  ///< in [0, 1): this share of each target is spread evenly over all classes
  Reduction reduction = Reduction::mean;
  Tensor weight = {};           ///< (C), the weight of each class; a constant. Undefined: 1 each
  int64_t ignore_index = -100;  ///< rows of this class number do not count; it may lie outside [0, C)
};

/// Cross entropy, as in PyTorch: -sum over classes of weight · target · log_softmax(logits). logits: (N, C), of a
/// floating dtype; 16-bit ones are computed in float32 and the loss is rounded once. target: int64 (N) class numbers in
/// [0, C) or ignore_index, or probabilities (N, C) of the logits' dtype. Result: rank 0, or (N) for Reduction::none, in
/// the logits' dtype. The mean for class numbers divides by the sum of the weights of their classes, without ignored
/// rows (NaN if none is left); that for probabilities divides by N. Any strides. Differentiable in logits (and in
/// probabilities), also twice. Row sums are carried in float64. Throws Error for a class outside [0, C),
/// label_smoothing outside [0, 1), a weight of other sizes or one that requires a gradient, and no rows. On CUDA nobody
/// waits for the device to look at the classes: one outside [0, C) makes the loss of its row NaN, and the gradient
/// unless it is itself recorded.
Tensor cross_entropy(const Tensor& logits, const Tensor& target, const CrossEntropyOptions& options = {});

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
