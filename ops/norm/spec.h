#pragma once

#include "core/sizes.h"

#include <cstdint>
#include <string_view>

namespace norma {

/// How the statistics are computed. All are carried in float32 or wider.
enum class Statistics : uint8_t {
  /// Subtracts a pivot taken from the data, sums in parts and merges (count, mean, M2) by Chan's formula. The mean is
  /// kept as pivot + rest, so it is exact to rounding at any offset.
  stable,
  /// E[x²] - E[x]² in one pass: cancels when |mean| is large against the deviation. Only when asked for.
  sum_of_squares,
};

std::string_view to_string(Statistics statistics);
/// Throws Error for an unknown name.
Statistics statistics_from_string(std::string_view name);

/// A normalisation: y = (x - mean) / sqrt(var + eps) * weight + bias.
struct NormSpec {
  Axes reduce = {};    ///< axes the statistics are taken over, sorted
  Axes affine = {};    ///< axes along which weight and bias vary, sorted; empty: no affine
  int64_t groups = 1;  ///< > 1: axis 1 is cut into groups, each with its own statistics; 1 must then be in `reduce`
  Statistics statistics = Statistics::stable;
  double eps = 1e-5;  ///< inside the root
};

}  // namespace norma
