#pragma once

#include "core/by_device.h"
#include "core/dtype.h"
#include "ops/norm/spec.h"
#include "ops/pointwise/activation.h"

#include <cstdint>
#include <string_view>

// The kernels of a device see sizes and raw pointers, no Tensor. S is the dtype of x; T, that of the computation, is
// float64 for float64 and float32 for all others.

namespace norma::kernels {

/// A dense tensor in memory order: element (o, a, k, b) lies at ((o * reduce_outer + a) * kept + k) * reduce_inner + b.
/// (o, k) names a set of elements that share statistics, a and b run over its elements.
struct NormShape {
  int64_t outer = 1;
  int64_t reduce_outer = 1;
  int64_t kept = 1;
  int64_t reduce_inner = 1;

  [[nodiscard]] constexpr int64_t sets() const { return outer * kept; }
  [[nodiscard]] constexpr int64_t set_size() const { return reduce_outer * reduce_inner; }
  [[nodiscard]] constexpr int64_t numel() const { return sets() * set_size(); }
  /// True iff a set is one run of memory, and the next set follows it.
  [[nodiscard]] constexpr bool set_is_one_run() const { return reduce_outer == 1 && kept == 1; }
};

/// The place of an element's weight and bias: number (o % outer_period, a % reduce_outer, k, b / segment) of a dense
/// array with the sizes outer_period, reduce_outer, kept, inner. An index whose size is 1 does not count.
struct AffineShape {
  bool present = false;
  int64_t outer_period = 1;
  int64_t reduce_outer = 1;  ///< 1, that of the NormShape or, where kept or inner is not 1, a divisor of it
  int64_t kept = 1;          ///< 1 or that of the NormShape
  int64_t inner = 1;
  int64_t segment = 1;  ///< neighbours along b with the same weight; 1 or reduce_inner unless a set is one run

  [[nodiscard]] constexpr int64_t per_outer() const { return reduce_outer * kept * inner; }
  [[nodiscard]] constexpr int64_t numel() const { return outer_period * per_outer(); }
};

/// The order in which memory is walked: the CPU's kernels go by it, and profiles name it. CUDA's choose by the shape.
enum class Walk : uint8_t {
  rows,     ///< a set is one run of memory, and its weights vary from element to element
  runs,     ///< a set is one or several runs of memory with one weight each
  columns,  ///< neighbouring elements belong to different sets, or to few of the same
};
constexpr std::string_view to_string(Walk walk) {
  return walk == Walk::rows ? "rows" : walk == Walk::columns ? "columns" : "runs";
}

struct NormProblem {
  Walk walk = Walk::rows;
  NormShape shape;
  AffineShape affine;
  Statistics statistics = Statistics::stable;
  Centring centring = Centring::mean;  ///< forward: mean or none
  int64_t correction = 0;
  double eps = 0;
  /// The stats are constants that the caller brings (batch norm in evaluation).
  bool fixed_stats = false;

  /// Sums are taken about 0 rather than a pivot.
  [[nodiscard]] constexpr bool raw_sums() const {
    return statistics == Statistics::sum_of_squares || centring == Centring::none;
  }
  /// Welford, two_pass and compensated take passes of their own; the walk that follows finds the stats fixed.
  [[nodiscard]] constexpr bool by_textbook() const {
    return !fixed_stats && !raw_sums() && statistics != Statistics::stable;
  }
};

/// The stats of a norm are a tensor of rows with one number (of T) per set. The norm subtracts mean + mean_low, in
/// twice the precision of T: the mean alone is off by up to half a unit in its last place, which at a mean of 1e6 is
/// 0.03. Both are 0 where nothing is subtracted.
enum StatsRow : int64_t { kMeanRow, kMeanLowRow, kRstdRow, kStatsRows };

/// The running statistics of batch norm, which a forward kernel that computes statistics brings up to date:
///   mean = (1 - momentum) * mean + momentum * mean of the batch
///   var = (1 - momentum) * var + momentum * var_factor * variance of the batch
template <class T>
struct RunningStatistics {
  T* mean = nullptr;  ///< one number per set, as var; null: there are none
  T* var = nullptr;
  double momentum = 0;
  double var_factor = 1;
  int64_t* batches = nullptr;  ///< null, or a number that grows by one
};

/// The operands of a norm, as tensors or as pointers. Those of S have the order of x. What a call has no use for is
/// undefined or null.
///
/// Forward: y = f(z + residual) with z = ((x - mean) - mean_low) * rstd * weight + bias.
///
/// Backward, with dz = dy * f'(z + residual), g = dz * weight and xhat = (x - mean) * rstd, and means over a set:
///   dx = rstd * (g - mean(g) - xhat * mean(g * xhat)),  dweight = sum(dz * xhat),  dbias = sum(dz),  dresidual = dz
/// for Centring::mean; formulas.h has the others.
template <class Of>
struct NormOperands {
  Of x = {};         ///< of S
  Of weight = {};    ///< of T, or 1. Forward takes both weight and bias, or neither
  Of bias = {};      ///< of T, or 0. Backward takes it where it computes z again
  Of residual = {};  ///< of S, or 0. Likewise
  Of stats = {};     ///< of T, kStatsRows rows: written by forward unless they are fixed
  Of bits = {};      ///< a bit for each element: z + residual > 0 or NaN. Written by forward; stands in backward for z
  Activation activation = Activation::identity;

  Of y = {};    ///< of S; none: only the statistics are wanted
  Of var = {};  ///< of T: variance, or the mean square for Centring::none; needed where there are running statistics
  RunningStatistics<void> running = {};

  Of dy = {};         ///< of S
  Of dx = {};         ///< of S; the gradients are there where they are wanted
  Of dweight = {};    ///< of T
  Of dbias = {};      ///< of T
  Of dresidual = {};  ///< of S
};
using NormPointers = NormOperands<void*>;

/// The operands of forward and backward with their types, and the rows of the stats, each by its first number. What one
/// of them has no use for is not in its struct: the size of a kernel's arguments moves the registers that nvcc gives
/// it.
template <class S, class Stat>
struct SharedArrays {
  using T = compute_t<S>;

  Stat* mean;  ///< one number per set, as in all rows of the stats
  Stat* mean_low;
  Stat* rstd;
  const S* x;
  const T* weight;
  const T* bias;
  const S* residual;
  Activation activation;

  SharedArrays(const NormProblem& problem, const NormPointers& of)
      : mean(row(problem, of, kMeanRow)),
        mean_low(row(problem, of, kMeanLowRow)),
        rstd(row(problem, of, kRstdRow)),
        x(static_cast<const S*>(of.x)),
        weight(static_cast<const T*>(of.weight)),
        bias(static_cast<const T*>(of.bias)),
        residual(static_cast<const S*>(of.residual)),
        activation(of.activation) {}

 private:
  static Stat* row(const NormProblem& problem, const NormPointers& of, StatsRow which) {
    return static_cast<T*>(of.stats) + which * problem.shape.sets();
  }
};

template <class S, class T = compute_t<S>>
struct ForwardArrays : SharedArrays<S, T> {
  /// Without them normalize_rows<float, 8, false, true> takes 154 registers for 109 (nvcc 13, sm_90), and most others
  /// of its kind take more: cuda_resources.txt has the counts.
  const void* unused[2] = {};
  S* y;
  T* var;
  uint8_t* bits;
  RunningStatistics<T> running;

  ForwardArrays(const NormProblem& problem, const NormPointers& of)
      : SharedArrays<S, T>(problem, of),
        y(static_cast<S*>(of.y)),
        var(static_cast<T*>(of.var)),
        bits(static_cast<uint8_t*>(of.bits)),
        running{.mean = static_cast<T*>(of.running.mean),
                .var = static_cast<T*>(of.running.var),
                .momentum = of.running.momentum,
                .var_factor = of.running.var_factor,
                .batches = of.running.batches} {}
};

template <class S, class T = compute_t<S>>
struct BackwardArrays : SharedArrays<S, const T> {
  const S* dy;
  S* dx;
  T* dweight;
  T* dbias;
  const uint8_t* bits;
  S* dresidual;

  BackwardArrays(const NormProblem& problem, const NormPointers& of)
      : SharedArrays<S, const T>(problem, of),
        dy(static_cast<const S*>(of.dy)),
        dx(static_cast<S*>(of.dx)),
        dweight(static_cast<T*>(of.dweight)),
        dbias(static_cast<T*>(of.dbias)),
        bits(static_cast<const uint8_t*>(of.bits)),
        dresidual(static_cast<S*>(of.dresidual)) {}
};

/// Batch renorm's correction of each channel, of T: r = clamp(s_b / s, 1 / r_max, r_max) and d = clamp((mean_b - mean)
/// / s, -d_max, d_max), with s = sqrt(var + eps) of the running statistics and s_b of the batch.
struct RenormCorrection {
  const double* running_mean;
  const double* running_var;
  const double* batch_mean;
  const double* batch_var;
  double eps;
  double r_max;
  double d_max;
  void* r;
  void* d;
};

/// `dtype` is that of x, y or dy, and T follows from it.
struct NormKernels {
  void (*forward)(DType dtype, const NormProblem& problem, const NormPointers& operands);
  void (*backward)(DType dtype, const NormProblem& problem, const NormPointers& operands);
  /// True iff forward can fill NormOperands::bits.
  bool (*can_write_bits)(const NormProblem& problem);
  /// One bit per element of y: y > 0 or NaN.
  void (*positive_bits)(DType dtype, int64_t count, const void* y, uint8_t* bits);
  /// dz = bit ? dy : 0; dz may be dy.
  void (*mask_by_bits)(DType dtype, int64_t count, const uint8_t* bits, const void* dy, void* dz);
  /// rstd = 1 / sqrt(var + eps), of T.
  void (*rstd)(DType dtype, int64_t count, const double* var, double eps, void* rstd);
  /// scale = the power of two next below rstd, or 1 where rstd is not a positive number. Both of T.
  void (*power_of_two)(DType dtype, int64_t count, const void* rstd, void* scale);
  /// result = (1 - momentum) * running + momentum * (factor * batch)
  void (*update_running)(int64_t count, const double* running, const double* batch, double momentum, double factor,
                         double* result);
  void (*renorm)(DType dtype, int64_t count, const RenormCorrection& arrays);
};

extern const NormKernels norm_cpu, norm_cuda, norm_emulated;
extern const ByDevice<NormKernels> norm_kernels;

}  // namespace norma::kernels
