#pragma once

#include <algorithm>
#include <cmath>
#include <limits>

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

}  // namespace norma::kernels
