#pragma once

#include <cstdint>
#include <vector>

namespace virtual_gpu {

/// y (rows, columns) += a (rows, inner) b (inner, columns), all dense. Each y adds its products in the order of
/// `inner`.
void multiply_add(int64_t rows, int64_t inner, int64_t columns, const double* a, const double* b, double* y);

/// A convolution of dense tensors in double: x (n, c, h, w), weight (o, c / groups, kh, kw), y (n, o, oh, ow). Padding
/// is multiplied as zeros are, so that an infinite weight makes NaN there, as it may on a GPU.
struct Convolution {
  int64_t n = 0, c = 0, h = 0, w = 0;
  int64_t o = 0, kh = 0, kw = 0;
  int64_t oh = 0, ow = 0;
  int64_t stride_h = 1, stride_w = 1;
  int64_t padding_h = 0, padding_w = 0;  ///< before the first row and column
  int64_t dilation_h = 1, dilation_w = 1;
  int64_t groups = 1;

  [[nodiscard]] std::vector<double> forward(const std::vector<double>& x, const std::vector<double>& weight) const;
  [[nodiscard]] std::vector<double> data_gradient(const std::vector<double>& dy,
                                                  const std::vector<double>& weight) const;
  [[nodiscard]] std::vector<double> filter_gradient(const std::vector<double>& x, const std::vector<double>& dy) const;

  /// The products that make one element of y.
  [[nodiscard]] int64_t taps() const { return c / groups * kh * kw; }
};

}  // namespace virtual_gpu
