#include "lab/report/student_t.h"

#include <cmath>
#include <numbers>

namespace norma::lab {

namespace {

/// The integral of cos(a)^power from 0 to `end`, by parts: the integral for power n is cos^(n-1) sin / n plus (n-1) / n
/// of the integral for power n - 2.
double integral_of_cosine(int64_t power, double end) {
  const double cosine = std::cos(end);
  double integral = power % 2 == 0 ? end : std::sin(end);
  double factor = power % 2 == 0 ? cosine : cosine * cosine;  // cos^(n-1)
  for (int64_t n = power % 2 == 0 ? 2 : 3; n <= power; n += 2) {
    const auto exponent = static_cast<double>(n);
    integral = factor * std::sin(end) / exponent + (exponent - 1) / exponent * integral;
    factor *= cosine * cosine;
  }
  return integral;
}

}  // namespace

double student_t(int64_t freedom, double chance) {
  // With t = sqrt(n) * tan(a), a has a density in proportion to cos(a)^(n - 1).
  constexpr double kRight = std::numbers::pi / 2;
  const double all = integral_of_cosine(freedom - 1, kRight);
  double low = 0;
  double high = kRight;
  for (int i = 0; i < 60; ++i) {
    const double middle = (low + high) / 2;
    (1 - integral_of_cosine(freedom - 1, middle) / all > chance ? low : high) = middle;
  }
  return std::sqrt(static_cast<double>(freedom)) * std::tan(low);
}

double student_t_chance(int64_t freedom, double t) {
  const double angle = std::atan(std::abs(t) / std::sqrt(static_cast<double>(freedom)));
  return 1 - integral_of_cosine(freedom - 1, angle) / integral_of_cosine(freedom - 1, std::numbers::pi / 2);
}

}  // namespace norma::lab
