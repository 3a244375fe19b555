#pragma once

#include <algorithm>
#include <cmath>
#include <limits>

namespace norma::kernels {

/// The largest number that uniform_() may give: the last T below `high`, and no less than `low`. Rounding a sum in T
/// can reach `high` itself.
template <class T>
T last_of_uniform(double low, double high) {
  const T end = static_cast<T>(high);
  const T below = static_cast<double>(end) < high ? end : std::nextafter(end, -std::numeric_limits<T>::infinity());
  return std::max(below, static_cast<T>(low));
}

}  // namespace norma::kernels
