#pragma once

#include "core/by_device.h"
#include "core/dtype.h"
#include "ops/norm/spec.h"

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

/// The order in which memory is walked.
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
  Centring centring = Centring::mean;
  int64_t correction = 0;
  double eps = 0;
  /// The stats are constants that the caller brings (batch norm in evaluation).
  bool fixed_stats = false;

  /// Sums are taken about 0 rather than a pivot.
  [[nodiscard]] constexpr bool raw_sums() const {
    return statistics == Statistics::sum_of_squares || centring == Centring::none;
  }
};

/// The stats of a norm are a tensor of rows with one number (of T) per set. The norm subtracts mean + mean_low, in
/// twice the precision of T: the mean alone is off by up to half a unit in its last place, which at a mean of 1e6 is
/// 0.03. Both are 0 where nothing is subtracted.
enum StatsRow : int64_t {
  kMeanRow,
  kMeanLowRow,
  kRstdRow,
  kStatsRows,
  // With Centring::deviation there are two more: the mean about which the deviation is taken, in two parts.
  kCentreRow = kStatsRows,
  kCentreLowRow,
  kDeviationStatsRows,
};
constexpr int64_t stats_rows(Centring centring) {
  return centring == Centring::deviation ? kDeviationStatsRows : kStatsRows;
}

/// The running statistics of batch norm, which a forward kernel that computes statistics brings up to date:
///   mean = (1 - momentum) * mean + momentum * mean of the batch
///   var = (1 - momentum) * var + momentum * var_factor * variance of the batch
struct RunningStatistics {
  void* mean = nullptr;  ///< of T, one number per set, as var; null: there are none
  void* var = nullptr;
  double momentum = 0;
  double var_factor = 1;
  int64_t* batches = nullptr;  ///< null, or a number that grows by one
};

/// y = f(z + residual) with z = ((x - mean) - mean_low) * rstd * weight + bias.
struct NormForward {
  const void* x;
  const void* weight;  ///< of T; both weight and bias, or neither
  const void* bias;
  void* y;      ///< null: only the statistics are wanted
  void* stats;  ///< of T, stats_rows() rows: written, or read where they are fixed
  void* var;    ///< of T: variance, or the mean square for Centring::none; may be null if `running` is empty
  Activation activation = Activation::identity;
  const void* residual = nullptr;  ///< in the order of x, or null
  uint8_t* bits = nullptr;         ///< null, or receives one bit per element in the order of x: y > 0 or NaN
  RunningStatistics running = {};
};

/// With dz = dy * f'(z + residual), g = dz * weight and xhat = (x - mean) * rstd, and means over a set:
///   dx = rstd * (g - mean(g) - xhat * mean(g * xhat)),  dweight = sum(dz * xhat),  dbias = sum(dz),  dresidual = dz
/// for Centring::mean; statistics.h has the others.
/// dx, dweight, dbias and dresidual are null where they are not wanted.
struct NormBackward {
  const void* dy;
  const void* x;
  const void* weight;  ///< of T; null: 1
  const void* stats;
  void* dx;
  void* dweight;  ///< of T
  void* dbias;    ///< of T
  Activation activation = Activation::identity;
  const void* bias = nullptr;      ///< with which z is computed again; null: 0
  const void* residual = nullptr;  ///< in the order of x, or null
  const uint8_t* bits = nullptr;   ///< for relu, in place of bias and residual: z + residual > 0 or NaN
  void* dresidual = nullptr;
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
  void (*forward)(DType dtype, const NormProblem& problem, const NormForward& arrays);
  void (*backward)(DType dtype, const NormProblem& problem, const NormBackward& arrays);
  /// True iff forward can fill NormForward::bits.
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
