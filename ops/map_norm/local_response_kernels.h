#pragma once

#include "ops/map_norm/kernels.h"

#include <cstdint>

namespace norma::norm_kernels {

struct LocalResponseProblem {
  MapShape shape;
  int64_t below;  ///< channels c - below to c + above respond to channel c
  int64_t above;
  double scale;  ///< of their squares: alpha / size
  double k;
  double beta;
  bool relu = false;  ///< y = max(…, 0), which has the sign of x
};

/// With s = k + scale * sum of x² over the window of each element:
///   y = x * s^-beta
///   dx = dy * s^-beta - 2 * scale * beta * x * sum of dy * x * s^(-beta - 1) over the elements whose windows hold it
template <class S>
struct LocalResponse {
  const S* x;
  const S* dy;  ///< null: the result is y, else dx
  S* result;
};

namespace cpu {
template <class S>
void local_response(const LocalResponseProblem& problem, const LocalResponse<S>& arrays);
}  // namespace cpu

namespace cuda {
template <class S>
void local_response(const LocalResponseProblem& problem, const LocalResponse<S>& arrays);
}  // namespace cuda

}  // namespace norma::norm_kernels
