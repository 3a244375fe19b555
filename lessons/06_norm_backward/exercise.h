#pragma once

#include <vector>

// The backward pass of one row of a norm. Every std::vector has n numbers, one for each element of the row.

/// What the forward pass of a row has kept, and the gradient that arrives.
struct Row {
  std::vector<double> x;       ///< the input
  std::vector<double> weight;  ///< y = xhat * weight + bias
  std::vector<double> dy;      ///< how the loss grows with each y
  double mean = 0;             ///< sum(x) / n
  double rstd = 1;             ///< 1 / sqrt(var + eps)
  double correction = 0;       ///< var = sum((x - mean)²) / (n - correction)
};

/// The two sums over a row that every element of dx needs.
struct RowSums {
  double g = 0;       ///< sum(g) with g = dy * weight
  double g_xhat = 0;  ///< sum(g * xhat) with xhat = (x - mean) * rstd
};

/// Gap 1: both sums.
RowSums sums_of(const Row& row);

/// Gap 2: dx, the gradient of x, by the formula at the end of the page.
std::vector<double> gradient_of_x(const Row& row, const RowSums& sums);

/// Gap 3: adds this row's part to the gradients of weight and bias. All rows share one weight and one bias.
void add_parameter_gradients(const Row& row, std::vector<double>& dweight, std::vector<double>& dbias);
