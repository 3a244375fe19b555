#pragma once

#include "ops/norm/spec.h"

#include <cstdint>
#include <type_traits>

// What the kernels of a device see: sizes and raw pointers, no Tensor.

namespace norma::norm_kernels {

/// A dense tensor in memory order: element (o, a, k, b) lies at ((o * reduce_outer + a) * kept + k) * reduce_inner + b.
/// (o, k) names a set of elements that share statistics, a and b run over its elements.
struct NormShape {
  int64_t outer = 1;
  int64_t reduce_outer = 1;
  int64_t kept = 1;
  int64_t reduce_inner = 1;

  [[nodiscard]] int64_t sets() const { return outer * kept; }
  [[nodiscard]] int64_t set_size() const { return reduce_outer * reduce_inner; }
  [[nodiscard]] int64_t numel() const { return sets() * set_size(); }
};

/// How weight and bias vary: number (o % outer_period, a, k, b / segment) of a dense array with the sizes
/// outer_period, reduce_outer, kept, inner. An index whose size is 1 does not count.
struct AffineShape {
  bool present = false;
  int64_t outer_period = 1;
  int64_t reduce_outer = 1;  ///< 1 or that of the NormShape
  int64_t kept = 1;          ///< 1 or that of the NormShape
  int64_t inner = 1;
  int64_t segment = 1;  ///< neighbours along b with the same weight; the walks other than rows: 1 or reduce_inner

  [[nodiscard]] int64_t per_outer() const { return reduce_outer * kept * inner; }
  [[nodiscard]] int64_t numel() const { return outer_period * per_outer(); }
};

/// The order in which memory is walked.
enum class Walk : uint8_t {
  rows,     ///< a set is one run of memory: reduce_outer = kept = 1
  columns,  ///< the sets lie side by side: reduce_inner = 1
  groups,   ///< a set is several runs
};

struct NormProblem {
  Walk walk = Walk::rows;
  NormShape shape;
  AffineShape affine;
  Statistics statistics = Statistics::stable;
  Centring centring = Centring::mean;
  int64_t correction = 0;
  double eps = 0;
  /// mean, rest and rstd are constants that the caller brings (evaluation with running statistics).
  bool given_statistics = false;

  /// Sums are taken about 0 rather than a pivot.
  [[nodiscard]] bool raw_sums() const { return statistics == Statistics::sum_of_squares || centring == Centring::none; }
};

/// What numbers stored as S are computed in, and what statistics, weights and their gradients are stored as.
template <class S>
using Compute = std::conditional_t<std::is_same_v<S, double>, double, float>;

/// y = f(z + residual) with z = ((x - mean) - rest) * rstd * weight + bias. mean + rest is what is subtracted, in twice
/// the precision of T: the mean alone is off by up to half a unit in its last place, which at a mean of 1e6 is 0.03.
template <class S, class T = Compute<S>>
struct NormForward {
  const S* x;
  const T* weight;  ///< both weight and bias, or neither
  const T* bias;
  S* y;     ///< null: only the statistics are wanted
  T* mean;  ///< one number per set, as all that follow; 0 where nothing is subtracted, as rest
  T* rest;
  T* rstd;
  T* var;                    ///< variance, or the mean square for Centring::none; may be null
  T* centre = nullptr;       ///< for Centring::deviation: the mean, which is not subtracted from x
  T* centre_rest = nullptr;  ///< and what is left of it, as rest
  Activation activation = Activation::identity;
  const S* residual = nullptr;  ///< in the order of x, or null
  uint8_t* bits = nullptr;      ///< null, or receives one bit per element in the order of x: y > 0 or NaN
};

/// With dz = dy * f'(z + residual), g = dz * weight and xhat = (x - mean) * rstd, and means over a set:
///   dx = rstd * (g - mean(g) - xhat * mean(g * xhat)),  dweight = sum(dz * xhat),  dbias = sum(dz),  dresidual = dz
/// for Centring::mean; the others are at input_gradient().
/// dx, dweight, dbias and dresidual are null where they are not wanted.
template <class S, class T = Compute<S>>
struct NormBackward {
  const S* dy;
  const S* x;
  const T* weight;  ///< null: 1
  const T* mean;
  const T* rest;
  const T* rstd;
  const T* centre;       ///< for Centring::deviation, else null
  const T* centre_rest;  ///< likewise
  S* dx;
  T* dweight;
  T* dbias;
  Activation activation = Activation::identity;
  const T* bias = nullptr;        ///< of z; null: 0
  const S* residual = nullptr;    ///< of z, in the order of x, or null
  const uint8_t* bits = nullptr;  ///< of relu: whether z + residual > 0, in place of bias and residual
  S* dresidual = nullptr;
};

namespace cpu {
template <class S>
void norm_forward(const NormProblem& problem, const NormForward<S>& arrays);
template <class S>
void norm_backward(const NormProblem& problem, const NormBackward<S>& arrays);
/// Whether norm_forward can fill NormForward::bits.
bool can_write_bits(const NormProblem& problem);
}  // namespace cpu

namespace cuda {
template <class S>
void norm_forward(const NormProblem& problem, const NormForward<S>& arrays);
template <class S>
void norm_backward(const NormProblem& problem, const NormBackward<S>& arrays);
}  // namespace cuda

}  // namespace norma::norm_kernels
