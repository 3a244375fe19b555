#pragma once

#include "core/by_device.h"
#include "core/dtype.h"
#include "core/kernels.h"

#include <cstdint>
#include <span>

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

/// The numbers of one step of LAMB, in two parts, for the slope g = gradient / divisor:
///   m = beta1 · m + (1 - beta1) · g;  v = beta2 · v + (1 - beta2) · g²;
///   u = (m / correction1) / (sqrt(v) / correction2 + eps) + weight_decay · p;
///   p -= rate · (ratio · u), where the ratio is |p| / |u|, or 1 where either is 0 or there is no weight decay.
struct LambStep {
  double beta1 = 0;
  double beta2 = 0;
  double eps = 0;
  double correction1 = 1;
  double correction2 = 1;
  double weight_decay = 0;
  double rate = 0;
};

/// A parameter p with its gradient and its averages: `count` elements that lie side by side in each array. Where
/// `changing` is not null, it lies on the device, and its numbers count when the kernel runs, in the place of `step`:
/// those of a captured step.
template <class Step>
struct StepItem {
  int64_t count = 0;
  void* p = nullptr;
  const void* gradient = nullptr;
  void* m = nullptr;       ///< of SGD: the velocity v, or null
  void* v = nullptr;       ///< of SGD: null
  void* result = nullptr;  ///< p; of LAMB: its direction u
  Step step;
  const Step* changing = nullptr;
  const double* divisor = nullptr;  ///< of LAMB, on the device; null: 1
  double* squares = nullptr;        ///< of LAMB, on the device: the sums of the squares of p, before the step, and of u
};
using SgdItem = StepItem<SgdStep>;
using AdamWItem = StepItem<AdamWStep>;
using LambItem = StepItem<LambStep>;

/// Numbers x, and where the sum of their squares goes, on the device.
struct SquaresItem {
  int64_t count = 0;
  const void* x = nullptr;
  double* sum = nullptr;
};

/// Numbers x that are changed in place.
struct ChangedItem {
  int64_t count = 0;
  void* x = nullptr;
};

/// A network has hundreds of parameters, most of them small: each function takes all of one dtype at once, and needs a
/// launch or two for them on a GPU. Steps take float32 and float64; the others take any floating dtype and compute the
/// half types in float32. A `guard` is two numbers on the device: unless both are finite, the function changes nothing;
/// null: none.
struct OptimizerKernels {
  void (*sgd)(DType dtype, std::span<const SgdItem> items, const double* guard);
  void (*adamw)(DType dtype, std::span<const AdamWItem> items, const double* guard);
  /// Finds m, v and u; lamb_move changes p once the sums of squares are there.
  void (*lamb_direction)(DType dtype, std::span<const LambItem> items, const double* guard);
  void (*lamb_move)(DType dtype, std::span<const LambItem> items, const double* guard);
  /// to = to + share · (from - to) for float32 and float64, or `from` itself where the share, on the device, is 1;
  /// other dtypes are copied.
  void (*average)(DType dtype, const double* share, std::span<const CopyItem> items, const double* guard);
  /// sum = sum of x², in a fixed order for each item, carried in double.
  void (*sums_of_squares)(DType dtype, std::span<const SquaresItem> items);
  /// Finds the norm of gradients with these sums of squares, and the factor that clips them: norm_and_factor[0] =
  /// sqrt(sum of the sums), in a fixed order, and norm_and_factor[1] = max_norm / (norm + 1e-6) if that is below 1,
  /// else 1. As in PyTorch, the small number keeps the result below max_norm in spite of rounding.
  void (*clipping)(int64_t count, const double* sums, double max_norm, double* norm_and_factor);
  /// x = *factor · x; the factor lies on the device.
  void (*scale)(DType dtype, const double* factor, std::span<const ChangedItem> items);
  /// x cut off at ±limit; NaN stays.
  void (*cut_off)(DType dtype, double limit, std::span<const ChangedItem> items);
};

extern const OptimizerKernels optimizer_cpu, optimizer_cuda, optimizer_emulated;
extern const ByDevice<OptimizerKernels> optimizer_kernels;

}  // namespace norma::kernels
