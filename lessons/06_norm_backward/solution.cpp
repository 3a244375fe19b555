// Lesson 6: our answers.

#include "exercise.h"

#include <cstddef>

RowSums sums_of(const Row& row) {
  // GAP 1
  RowSums sums;
  for (size_t i = 0; i < row.x.size(); ++i) {
    const double g = row.dy[i] * row.weight[i];
    const double xhat = (row.x[i] - row.mean) * row.rstd;
    sums.g += g;
    sums.g_xhat += g * xhat;
  }
  return sums;
}

std::vector<double> gradient_of_x(const Row& row, const RowSums& sums) {
  // GAP 2
  const auto n = static_cast<double>(row.x.size());
  std::vector<double> dx(row.x.size());
  for (size_t i = 0; i < row.x.size(); ++i) {
    const double g = row.dy[i] * row.weight[i];
    const double xhat = (row.x[i] - row.mean) * row.rstd;
    dx[i] = row.rstd * (g - sums.g / n - xhat * sums.g_xhat / (n - row.correction));
  }
  return dx;
}

void add_parameter_gradients(const Row& row, std::vector<double>& dweight, std::vector<double>& dbias) {
  // GAP 3
  for (size_t i = 0; i < row.x.size(); ++i) {
    dweight[i] += row.dy[i] * (row.x[i] - row.mean) * row.rstd;
    dbias[i] += row.dy[i];
  }
}
