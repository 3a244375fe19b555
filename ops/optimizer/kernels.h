#pragma once

#include "core/by_device.h"
#include "core/dtype.h"

#include <cstdint>

namespace norma::kernels {

/// The numbers of one step of stochastic gradient descent, for the slope g = gradient + weight_decay · p:
///   v = momentum · v + share · g;  p -= rate · (own · g + along · v), or p -= rate · g without v.
struct SgdStep {
  double rate = 0;
  double weight_decay = 0;
  double momentum = 0;
  double share = 1;
  double own = 0;
  double along = 1;
};

/// The numbers of one step of AdamW:
///   m = beta1 · m + (1 - beta1) · g;  v = beta2 · v + (1 - beta2) · g²;
///   p = shrink · p - step_size · m / (scale · sqrt(v) + eps).
struct AdamWStep {
  double beta1 = 0;
  double beta2 = 0;
  double eps = 0;
  double shrink = 1;
  double step_size = 0;
  double scale = 1;
};

/// All kernels work on `count` elements that lie side by side. Steps take float32 and float64; the others take any
/// floating dtype and compute the half types in float32.
struct OptimizerKernels {
  /// v may be null.
  void (*sgd)(DType dtype, int64_t count, const SgdStep& step, void* p, const void* gradient, void* v);
  void (*adamw)(DType dtype, int64_t count, const AdamWStep& step, void* p, const void* gradient, void* m, void* v);
  /// *sum = sum of x², in a fixed order, carried in double.
  void (*sum_of_squares)(DType dtype, int64_t count, const void* x, double* sum);
  /// Finds the norm of gradients with these sums of squares, and the factor that clips them: norm_and_factor[0] =
  /// sqrt(sum of the sums), in a fixed order, and norm_and_factor[1] = max_norm / (norm + 1e-6) if that is below 1,
  /// else 1. As in PyTorch, the small number keeps the result below max_norm in spite of rounding.
  void (*clipping)(int64_t count, const double* sums, double max_norm, double* norm_and_factor);
  /// x = *factor · x; the factor lies on the device.
  void (*scale)(DType dtype, int64_t count, const double* factor, void* x);
  /// x cut off at ±limit; NaN stays.
  void (*cut_off)(DType dtype, int64_t count, double limit, void* x);
};

extern const OptimizerKernels optimizer_cpu, optimizer_cuda, optimizer_emulated;
extern const ByDevice<OptimizerKernels> optimizer_kernels;

}  // namespace norma::kernels
