// Milestone 3: our answers.

#include "exercise.h"

#include <cmath>
#include <cstddef>

norma::NormSpec my_sets(int64_t channels) {
  // GAP 1: four neighbouring channels share their statistics, whatever the number of channels.
  return {.reduce = {1, 2, 3}, .affine = {1}, .groups = channels % 4 == 0 ? channels / 4 : 1};
}

norma::Tensor my_design(const norma::Tensor& x, const norma::Tensor& weight, const norma::Tensor& bias) {
  // GAP 2
  return normalize(x, my_sets(x.size(1)), weight, bias);
}

bool beats_or_matches(const std::vector<double>& mine, const std::vector<double>& theirs, double margin) {
  // GAP 3
  constexpr double kT[] = {12.706, 4.303, 3.182, 2.776, 2.571,
                           2.447,  2.365, 2.306, 2.262};  // 1 to 9 degrees of freedom
  const auto count = static_cast<double>(mine.size());
  double mean = 0;
  for (size_t i = 0; i < mine.size(); ++i) {
    mean += (mine[i] - theirs[i]) / count;
  }
  double squares = 0;
  for (size_t i = 0; i < mine.size(); ++i) {
    squares += (mine[i] - theirs[i] - mean) * (mine[i] - theirs[i] - mean);
  }
  const double half = kT[mine.size() - 2] * std::sqrt(squares / (count - 1)) / std::sqrt(count);
  return mean - half > -margin;
}
