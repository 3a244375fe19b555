#pragma once

#include "ops/norm/kernels.h"

#include <cstdint>

// The norms that are more than one normalize(): y is a function of x and of a few numbers of its map (one channel of
// one image). What a device must do for them: y, sums over maps that the gradients of the numbers are made of, and dx.

namespace norma::norm_kernels {

/// What y is, with the numbers in this order. map_functions.h has the formulas.
enum class MapFunction : uint8_t {
  threshold,  ///< filter response norm with its threshold: rstd, weight, bias, tau
  gate,       ///< EvoNorm S0: v, rstd, weight, bias
  evo,        ///< EvoNorm B0: v, the root of the map, the root of the batch, weight, bias
  affine,     ///< global response norm: scale, shift, 1 / what the map responds
  tanh,       ///< dynamic tanh: alpha, weight, bias
};
/// Sums that its gradients need, for each map.
int64_t sums_of(MapFunction function);

/// A dense tensor of outer * channels maps. Element i of map (o, c) lies at (o * channels + c) * inner + i, or for
/// channels_last at (o * inner + i) * channels + c.
struct MapShape {
  int64_t outer = 1;
  int64_t channels = 1;
  int64_t inner = 1;
  bool channels_last = false;

  [[nodiscard]] int64_t maps() const { return outer * channels; }
};

struct MapProblem {
  MapFunction function;
  MapShape shape;
  bool relu = false;  ///< y = max(f(x), 0)
};

/// y = f(x)
template <class S, class T = Compute<S>>
struct MapForward {
  const S* x;
  const T* numbers;  ///< (numbers, maps)
  S* y;
};

/// Sums over each map.
template <class S, class T = Compute<S>>
struct MapSums {
  const S* dy;
  const S* x;
  const T* numbers;
  double* sums;  ///< (sums, maps)
};

/// dx = dy * f'(x) + ((x - mean) - rest) * rstd * by + shift, the rest of which is what comes through the statistics.
template <class S, class T = Compute<S>>
struct MapGradient {
  const S* dy;
  const S* x;
  const T* numbers;
  const T* centred;  ///< (5, maps): mean, rest, rstd, by, shift; null: the first term alone
  S* dx;
};

namespace cpu {
template <class S>
void map_forward(const MapProblem& problem, const MapForward<S>& arrays);
template <class S>
void map_sums(const MapProblem& problem, const MapSums<S>& arrays);
template <class S>
void map_gradient(const MapProblem& problem, const MapGradient<S>& arrays);
}  // namespace cpu

namespace cuda {
template <class S>
void map_forward(const MapProblem& problem, const MapForward<S>& arrays);
template <class S>
void map_sums(const MapProblem& problem, const MapSums<S>& arrays);
template <class S>
void map_gradient(const MapProblem& problem, const MapGradient<S>& arrays);
}  // namespace cuda

}  // namespace norma::norm_kernels
