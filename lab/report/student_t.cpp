#include "lab/report/student_t.h"

#include <cmath>
#include <numbers>

namespace norma::lab {

namespace {

/// The integral of cos(a)^power from 0 to `end`, by Simpson's rule.
double integral_of_cosine(double power, double end) {
  constexpr int kSteps = 2000;
  const double step = end / kSteps;
  double sum = 1 + std::pow(std::cos(end), power);
  for (int i = 1; i < kSteps; ++i) {
    sum += (i % 2 == 1 ? 4 : 2) * std::pow(std::cos(i * step), power);
  }
  return sum * step / 3;
}

}  // namespace

double student_t(int64_t freedom, double chance) {
  // With t = sqrt(n) * tan(a), a has a density in proportion to cos(a)^(n - 1).
  const auto n = static_cast<double>(freedom);
  constexpr double kRight = std::numbers::pi / 2;
  const double all = integral_of_cosine(n - 1, kRight);
  double low = 0;
  double high = kRight;
  for (int i = 0; i < 60; ++i) {
    const double middle = (low + high) / 2;
    (1 - integral_of_cosine(n - 1, middle) / all > chance ? low : high) = middle;
  }
  return std::sqrt(n) * std::tan(low);
}

double student_t_chance(int64_t freedom, double t) {
  const auto n = static_cast<double>(freedom);
  return 1 - integral_of_cosine(n - 1, std::atan(std::abs(t) / std::sqrt(n))) /
                 integral_of_cosine(n - 1, std::numbers::pi / 2);
}

}  // namespace norma::lab
