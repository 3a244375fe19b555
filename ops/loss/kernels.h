#pragma once

#include "core/by_device.h"
#include "core/dtype.h"
#include "core/sizes.h"

namespace norma::kernels {

/// Up to three tensors of the same sizes, seen as rows along one axis. Strides are in elements.
struct SoftmaxShape {
  Sizes sizes;  ///< of all axes but that one
  int64_t length;
  Strides strides[3];  ///< of each tensor, over `sizes`
  int64_t steps[3];    ///< of each tensor, along the axis
};

/// Logits x (rows, classes) with one target per row. Strides are in elements.
struct CrossEntropyShape {
  int64_t rows, classes;
  int64_t x_row, x_step;
  int64_t target_row, target_step;  ///< of probabilities
  double smoothing;
  const double* class_weights;  ///< (classes); null: 1 each
  int64_t ignore_index;         ///< rows of this class number have loss and gradient 0
};

/// float32 and float64.
/// `target` is int64 (rows), dense, each a class or ignore_index, or probabilities of the logits' dtype.
struct LossKernels {
  /// The first row whose number is neither a class nor ignore_index, or -1. Null: nobody waits for the device to look,
  /// and the loss of such a row is NaN.
  int64_t (*find_no_class)(const CrossEntropyShape& shape, const int64_t* target) = nullptr;
  /// Tensors: x, y. y = exp(x) / sum(exp(x)) along the axis, or its logarithm.
  void (*softmax)(const SoftmaxShape& shape, DType dtype, bool logarithm, const void* x, void* y);
  /// Tensors: y, dy, dx.
  void (*softmax_backward)(const SoftmaxShape& shape, DType dtype, bool logarithm, const void* y, const void* dy,
                           void* dx);
  /// Results per row: loss; log_sum: log(sum(exp(x))); counts: the weight of the row in the mean, which is that of its
  /// class, 0 where it is ignored, 1 for probabilities.
  void (*cross_entropy)(const CrossEntropyShape& shape, DType dtype, bool class_numbers, const void* x,
                        const void* target, double* loss, double* log_sum, double* counts);
  /// Row i of the gradients is scaled by dy[i · dy_step] / *divisor, or 0 if the divisor is; null: 1. dx and dtarget
  /// are dense rows; either may be null.
  void (*cross_entropy_backward)(const CrossEntropyShape& shape, DType dtype, bool class_numbers, const void* x,
                                 const void* target, const double* log_sum, const void* dy, int64_t dy_step,
                                 const double* divisor, void* dx, void* dtarget);
};

extern const LossKernels loss_cpu, loss_cuda, loss_emulated;
extern const ByDevice<LossKernels> loss_kernels;

}  // namespace norma::kernels
