#pragma once

#include "ops/norm/spec.h"

#include <cstdint>

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

/// What becomes of z = ((x - mean) - rest) * rstd * weight + bias before it is written:
/// f(z + residual), or with dy its derivative: dy * f'(z + residual).
template <class T>
struct Epilogue {
  Activation activation = Activation::identity;
  const T* residual = nullptr;  ///< in the order of x, or null
  const T* dy = nullptr;        ///< in the order of x, or null

  [[nodiscard]] bool present() const {
    return activation != Activation::identity || residual != nullptr || dy != nullptr;
  }
};

/// y = ((x - mean) - rest) * rstd * weight + bias, and the epilogue. mean + rest is what is subtracted, in twice the
/// precision of T: the mean alone is off by up to half a unit in its last place, which at a mean of 1e6 is 0.03.
template <class T>
struct NormForward {
  const T* x;
  const T* weight;  ///< both weight and bias, or neither
  const T* bias;
  T* y;     ///< null: only the statistics are wanted
  T* mean;  ///< one number per set, as all that follow; 0 where nothing is subtracted, as rest
  T* rest;
  T* rstd;
  T* var;                    ///< variance, or the mean square for Centring::none; may be null
  T* centre = nullptr;       ///< for Centring::deviation: the mean, which is not subtracted from x
  T* centre_rest = nullptr;  ///< and what is left of it, as rest
  Epilogue<T> epilogue = {};
};

/// With g = dy * weight and xhat = (x - mean) * rstd, and means over a set:
///   dx = rstd * (g - mean(g) - xhat * mean(g * xhat)),  dweight = sum(dy * xhat),  dbias = sum(dy)
/// for Centring::mean; the others are at input_gradient().
/// dx, dweight and dbias are null where they are not wanted.
template <class T>
struct NormBackward {
  const T* dy;
  const T* x;
  const T* weight;  ///< null: 1
  const T* mean;
  const T* rest;
  const T* rstd;
  const T* centre;       ///< for Centring::deviation, else null
  const T* centre_rest;  ///< likewise
  T* dx;
  T* dweight;
  T* dbias;
};

namespace cpu {
template <class T>
void norm_forward(const NormProblem& problem, const NormForward<T>& arrays);
template <class T>
void norm_backward(const NormProblem& problem, const NormBackward<T>& arrays);
}  // namespace cpu

namespace cuda {
template <class T>
void norm_forward(const NormProblem& problem, const NormForward<T>& arrays);
template <class T>
void norm_backward(const NormProblem& problem, const NormBackward<T>& arrays);
}  // namespace cuda

}  // namespace norma::norm_kernels
