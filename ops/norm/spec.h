#pragma once

#include "core/sizes.h"
#include "ops/pointwise/activation.h"

#include <cstdint>
#include <string_view>
#include <vector>

namespace norma {

/// The method of computing statistics. All use float32 or wider; docs/audit.md has the formulas and the costs.
enum class Statistics : uint8_t {
  /// Subtracts a pivot taken from the data, sums in parts and merges (count, mean, M2) by Chan's formula. The mean is
  /// kept as pivot + offset, so it is exact to rounding at any offset.
  stable,
  /// Welford, 1962: each element in turn corrects mean and M2. One pass, with a division for each row of elements; the
  /// mean rounds.
  welford,
  /// The mean first, then the sum of (x - mean)². The mean rounds.
  two_pass,
  /// Two passes whose sums carry their rounding errors along (Neumaier, 1974), with the mean in twice the precision.
  compensated,
  /// E[x²] - E[x]² in one pass: cancels when |mean| is large against the deviation. Used only when asked for.
  sum_of_squares,
};

std::string_view to_string(Statistics statistics);
/// Throws Error for an unknown name.
Statistics statistics_from_string(std::string_view name);
const std::vector<Statistics>& all_statistics();

/// The number that is subtracted, and the number about which the deviation is taken.
enum class Centring : uint8_t {
  mean,       ///< y = (x - mean) / sqrt(var + eps)
  none,       ///< y = x / sqrt(mean(x²) + eps): root mean square. `statistics` makes no difference then.
  deviation,  ///< y = x / sqrt(var + eps): the deviation is taken about the mean, but nothing is subtracted
};

/// A normalization: y = (x - mean) / sqrt(var + eps) * weight + bias, or as `centring` says.
struct NormSpec {
  Axes reduce = {};    ///< axes the statistics are taken over, sorted
  Axes affine = {};    ///< axes along which weight and bias vary, sorted; empty: no affine
  int64_t groups = 1;  ///< > 1: axis 1 is cut into groups, each with its own statistics; 1 must then be in `reduce`
  Statistics statistics = Statistics::stable;
  double eps = 1e-5;  ///< inside the root
  Centring centring = Centring::mean;
  int64_t correction = 0;  ///< var = M2 / (n - correction); 1 is Bessel's. Not with Centring::none.
};

}  // namespace norma
