// Lesson 4: the three gaps, filled.

#include "exercise.h"

#include <cmath>

double central_difference(const Function& f, std::vector<double> x, std::size_t i, double h) {
  // GAP 1: the points are 2 h apart.
  const double middle = x[i];
  x[i] = middle + h;
  const double above = f(x);
  x[i] = middle - h;
  const double below = f(x);
  return (above - below) / (2 * h);
}

bool near_enough(double gradient, double difference, double atol, double rtol) {
  // GAP 2: "not far" would let NaN pass, since each comparison with NaN is false.
  return std::abs(gradient - difference) <= atol + rtol * std::abs(difference);
}

std::vector<std::size_t> wrong_elements(const Function& f, const std::vector<double>& x,
                                        const std::vector<double>& gradient) {
  std::vector<std::size_t> wrong;
  // GAP 3: one comparison for each element.
  for (std::size_t i = 0; i < x.size(); ++i) {
    if (!near_enough(gradient[i], central_difference(f, x, i, 1e-6), 1e-6, 1e-4)) {
      wrong.push_back(i);
    }
  }
  return wrong;
}
