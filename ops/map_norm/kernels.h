#pragma once

#include "core/by_device.h"
#include "core/dtype.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>

// Norms whose y is a function of x and of a few numbers of its map (one channel of one image), and local response norm.
// A device computes the numbers, y, the sums over maps for the gradients of the numbers, and dx. S is the dtype of x, T
// that of the computation: float64 for float64, float32 for all others.

namespace norma::kernels {

/// The range of local response norm's sums s whose powers s^-beta and, for gradients, s^(-beta - 1) are normal numbers
/// of T. Other sums are computed in double.
template <class T>
struct ResponseLimits {
  T least = std::numeric_limits<T>::min();
  T most = std::numeric_limits<T>::max();

  ResponseLimits(double beta, bool gradient) {
    const double exponent = gradient ? beta + 1 : beta;
    if (exponent > 0) {
      const double smallest_power = static_cast<double>(least) / std::numeric_limits<T>::epsilon();
      const double largest_power = static_cast<double>(most) * std::numeric_limits<T>::epsilon();
      least = static_cast<T>(std::max<double>(least, std::pow(largest_power, -1 / exponent)));
      most = static_cast<T>(std::min<double>(most, std::pow(smallest_power, -1 / exponent)));
    }
  }
};

/// The formula of y, with its parameters and with the numbers of a map, in this order. functions.h has the formulas of
/// y, numbers.h those of the numbers.
enum class MapFunction : uint8_t {
  /// Filter response norm with its threshold. Parameters: weight, bias, tau. Numbers: rstd, weight, bias, tau.
  threshold,
  /// EvoNorm S0. Parameters: v, weight, bias. Numbers: v, rstd, weight, bias.
  gate,
  /// EvoNorm B0. Parameters: v, weight, bias. Numbers: v, the root of the map, the root of the batch, weight, bias.
  evo,
  /// Global response norm. Parameters: weight, bias. Numbers: scale, shift, 1 / the response of the map.
  affine,
  /// Dynamic tanh. Parameters: alpha, weight, bias. Numbers: the same.
  tanh,
  /// Dynamic erf. Parameters: alpha, shift, weight, bias. Numbers: the same, and the slope's factor
  /// 2 / sqrt(pi) * alpha * weight.
  erf,
};
inline constexpr int kMaxMapParameters = 4;
/// False for a function of x and the parameters alone: its first backward pass writes dx.
constexpr bool has_map_stats(MapFunction function) {
  return function != MapFunction::tanh && function != MapFunction::erf;
}

/// The number of numbers of a map, and of sums in the backward pass.
struct MapCounts {
  int numbers;
  int sums;
};
constexpr MapCounts map_counts(MapFunction function) {
  switch (function) {
    case MapFunction::threshold:
    case MapFunction::gate: return {.numbers = 4, .sums = 3};
    case MapFunction::evo: return {.numbers = 5, .sums = 5};
    case MapFunction::affine: return {.numbers = 3, .sums = 2};
    case MapFunction::erf: return {.numbers = 5, .sums = 4};
    case MapFunction::tanh: break;
  }
  return {.numbers = 3, .sums = 3};
}

/// A dense tensor of outer * channels maps. Element i of map (o, c) lies at (o * channels + c) * inner + i, or for
/// channels_last at (o * inner + i) * channels + c.
struct MapShape {
  int64_t outer = 1;
  int64_t channels = 1;
  int64_t inner = 1;
  bool channels_last = false;

  [[nodiscard]] constexpr int64_t maps() const { return outer * channels; }
};

struct MapProblem {
  MapFunction function;
  MapShape shape;
  bool relu = false;  ///< y = max(f(x), 0)
};

/// The sources of the numbers.
struct MapSources {
  const double* parameters[kMaxMapParameters] = {};  ///< one number per channel, alpha and shift one; null: absent
  /// Stats of T (ops/norm/kernels.h): first of the maps (gate: of the groups), then of the channels (evo alone).
  const void* stats[2] = {};
  int64_t sets = 0;          ///< of the first stats
  bool fixed_stats = false;  ///< evo: the stats of the channels are constants
  double eps = 0;            ///< affine: added to the mean response
};

/// The arrays of a call; null where it has none.
struct MapArrays {
  const void* dy = nullptr;
  const void* x = nullptr;
  const void* numbers = nullptr;        ///< of T, (numbers, maps)
  const void* through_stats = nullptr;  ///< of T, (5, maps): mean, mean_low, rstd, by, shift
  double* sums = nullptr;               ///< (sums, maps)
  void* result = nullptr;               ///< y or dx
};
inline constexpr int64_t kThroughStatsRows = 5;

/// The same with types.
template <class S, class T = compute_t<S>>
struct TypedMapArrays {
  const S* dy;
  const S* x;
  const T* numbers;
  const T* through_stats;
  double* sums;
  S* result;

  explicit TypedMapArrays(const MapArrays& a)
      : dy(static_cast<const S*>(a.dy)),
        x(static_cast<const S*>(a.x)),
        numbers(static_cast<const T*>(a.numbers)),
        through_stats(static_cast<const T*>(a.through_stats)),
        sums(a.sums),
        result(static_cast<S*>(a.result)) {}
};

/// The results that the sums lead to.
struct MapNumbersBackward {
  double* sums;                                ///< overwritten
  void* through_stats;                         ///< see MapArrays; null where there are no stats
  double* parameters[kMaxMapParameters] = {};  ///< gradients; null: not wanted
};

struct LocalResponseProblem {
  MapShape shape;
  int64_t below;  ///< channels c - below to c + above respond to channel c
  int64_t above;
  double scale;  ///< factor of the sum of squares: alpha / size
  double k;
  double beta;
  bool relu = false;  ///< y = max(…, 0), which has the sign of x
};

/// With s = k + scale * sum of x² over the window of each element:
///   y = x * s^-beta
///   dx = dy * s^-beta - 2 * scale * beta * x * sum of dy * x * s^(-beta - 1) over the elements whose windows hold it
struct LocalResponse {
  const void* x;
  const void* dy;  ///< null: the result is y, else dx
  void* result;
};

/// dtype is that of x.
struct MapNormKernels {
  void (*numbers)(DType dtype, const MapProblem& problem, const MapSources& sources, void* numbers);
  /// y = f(x)
  void (*forward)(DType dtype, const MapProblem& problem, const MapArrays& arrays);
  /// The sums over each map. Where there are no stats, also dx = dy * f'(x).
  void (*sums)(DType dtype, const MapProblem& problem, const MapArrays& arrays);
  void (*numbers_backward)(DType dtype, const MapProblem& problem, const MapSources& sources,
                           const MapNumbersBackward& arrays);
  /// dx = dy * f'(x) + ((x - mean) - mean_low) * rstd * by + shift. All but the first term come through the stats: a
  /// function without stats does not call it.
  void (*gradient)(DType dtype, const MapProblem& problem, const MapArrays& arrays);
  void (*local_response)(DType dtype, const LocalResponseProblem& problem, const LocalResponse& arrays);
};

extern const MapNormKernels map_norm_cpu, map_norm_cuda, map_norm_emulated;
extern const ByDevice<MapNormKernels> map_norm_kernels;

}  // namespace norma::kernels
