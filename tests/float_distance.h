#pragma once

#include <algorithm>
#include <cmath>
#include <limits>

namespace norma::test {

/// |value - exact| in units of the last place of `exact` as a float; 0 for two NaN or equal infinities.
inline double float_distance(float value, double exact) {
  const auto rounded = static_cast<float>(exact);
  if (value == rounded || (std::isnan(value) && std::isnan(rounded))) {
    return 0;
  }
  if (!std::isfinite(value) || !std::isfinite(rounded)) {
    return std::numeric_limits<double>::infinity();
  }
  int exponent = 0;
  std::frexp(exact, &exponent);
  return std::abs(value - exact) / std::ldexp(1.0, std::max(exponent - 24, -149));
}

}  // namespace norma::test
