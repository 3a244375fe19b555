#include "virtual_gpu/convolution.h"

#include <algorithm>
#include <array>

namespace virtual_gpu {

namespace {

/// Part of the columns of multiply_add(), few enough for the first cache.
constexpr int64_t kColumns = 256;
/// Rows that share each load of b.
constexpr int64_t kRows = 4;

template <int64_t rows>
void multiply_add_rows(int64_t inner, int64_t columns, int64_t row_columns, const double* a, const double* b,
                       double* y) {
  std::array<std::array<double, kColumns>, rows> sums;
  for (int64_t r = 0; r < rows; ++r) {
    std::copy_n(y + r * row_columns, columns, sums[static_cast<size_t>(r)].begin());
  }
  for (int64_t k = 0; k < inner; ++k) {
    const double* const b_row = b + k * row_columns;
    for (int64_t r = 0; r < rows; ++r) {
      const double factor = a[r * inner + k];
      double* const sum = sums[static_cast<size_t>(r)].data();
      for (int64_t j = 0; j < columns; ++j) {
        sum[j] += factor * b_row[j];
      }
    }
  }
  for (int64_t r = 0; r < rows; ++r) {
    std::copy_n(sums[static_cast<size_t>(r)].begin(), columns, y + r * row_columns);
  }
}

/// Calls tap(column of the patches, index in the image) for all taps of one channel that meet the image; index in the
/// image counts inside the channel.
template <class Tap>
void for_each_tap(const Convolution& conv, int64_t i, int64_t j, const Tap& tap) {
  for (int64_t y = 0; y < conv.oh; ++y) {
    const int64_t row = y * conv.stride_h - conv.padding_h + i * conv.dilation_h;
    if (row < 0 || row >= conv.h) {
      continue;
    }
    for (int64_t x = 0; x < conv.ow; ++x) {
      const int64_t column = x * conv.stride_w - conv.padding_w + j * conv.dilation_w;
      if (column >= 0 && column < conv.w) {
        tap(y * conv.ow + x, row * conv.w + column);
      }
    }
  }
}

/// Calls with_row(row of the patches, channel, i, j) for each tap of a group.
template <class Row>
void for_each_patch_row(const Convolution& conv, const Row& with_row) {
  int64_t row = 0;
  for (int64_t channel = 0; channel < conv.c / conv.groups; ++channel) {
    for (int64_t i = 0; i < conv.kh; ++i) {
      for (int64_t j = 0; j < conv.kw; ++j) {
        with_row(row++, channel, i, j);
      }
    }
  }
}

/// One image's and group's part of a tensor.
const double* part(const std::vector<double>& values, int64_t image, int64_t group, int64_t images, int64_t groups) {
  return values.data() + (image * groups + group) * (static_cast<int64_t>(values.size()) / (images * groups));
}
double* part(std::vector<double>& values, int64_t image, int64_t group, int64_t images, int64_t groups) {
  return values.data() + (image * groups + group) * (static_cast<int64_t>(values.size()) / (images * groups));
}

}  // namespace

void multiply_add(int64_t rows, int64_t inner, int64_t columns, const double* a, const double* b, double* y) {
  for (int64_t first = 0; first < columns; first += kColumns) {
    const int64_t count = std::min(kColumns, columns - first);
    int64_t row = 0;
    for (; row + kRows <= rows; row += kRows) {
      multiply_add_rows<kRows>(inner, count, columns, a + row * inner, b + first, y + row * columns + first);
    }
    for (; row < rows; ++row) {
      multiply_add_rows<1>(inner, count, columns, a + row * inner, b + first, y + row * columns + first);
    }
  }
}

std::vector<double> Convolution::forward(const std::vector<double>& x, const std::vector<double>& weight) const {
  const int64_t pixels = oh * ow;
  std::vector<double> y(static_cast<size_t>(n * o * pixels), 0.0);
  std::vector<double> patches(static_cast<size_t>(taps() * pixels));
  for (int64_t image = 0; image < n; ++image) {
    for (int64_t group = 0; group < groups; ++group) {
      const double* const from = part(x, image, group, n, groups);
      std::fill(patches.begin(), patches.end(), 0.0);
      for_each_patch_row(*this, [&](int64_t row, int64_t channel, int64_t i, int64_t j) {
        for_each_tap(*this, i, j, [&](int64_t column, int64_t index) {
          patches[static_cast<size_t>(row * pixels + column)] = from[channel * h * w + index];
        });
      });
      multiply_add(o / groups, taps(), pixels, part(weight, 0, group, 1, groups), patches.data(),
                   part(y, image, group, n, groups));
    }
  }
  return y;
}

std::vector<double> Convolution::data_gradient(const std::vector<double>& dy, const std::vector<double>& weight) const {
  const int64_t pixels = oh * ow;
  const int64_t outputs = o / groups;
  std::vector<double> dx(static_cast<size_t>(n * c * h * w), 0.0);
  std::vector<double> patches(static_cast<size_t>(taps() * pixels));
  std::vector<double> transposed(static_cast<size_t>(taps() * outputs));
  for (int64_t group = 0; group < groups; ++group) {
    const double* const weights = part(weight, 0, group, 1, groups);
    for (int64_t k = 0; k < taps(); ++k) {
      for (int64_t output = 0; output < outputs; ++output) {
        transposed[static_cast<size_t>(k * outputs + output)] = weights[output * taps() + k];
      }
    }
    for (int64_t image = 0; image < n; ++image) {
      double* const to = part(dx, image, group, n, groups);
      std::fill(patches.begin(), patches.end(), 0.0);
      multiply_add(taps(), outputs, pixels, transposed.data(), part(dy, image, group, n, groups), patches.data());
      for_each_patch_row(*this, [&](int64_t row, int64_t channel, int64_t i, int64_t j) {
        for_each_tap(*this, i, j, [&](int64_t column, int64_t index) {
          to[channel * h * w + index] += patches[static_cast<size_t>(row * pixels + column)];
        });
      });
    }
  }
  return dx;
}

std::vector<double> Convolution::filter_gradient(const std::vector<double>& x, const std::vector<double>& dy) const {
  const int64_t pixels = oh * ow;
  std::vector<double> dweight(static_cast<size_t>(o * taps()), 0.0);
  std::vector<double> patches(static_cast<size_t>(pixels * taps()));  // a row for each pixel
  for (int64_t image = 0; image < n; ++image) {
    for (int64_t group = 0; group < groups; ++group) {
      const double* const from = part(x, image, group, n, groups);
      std::fill(patches.begin(), patches.end(), 0.0);
      for_each_patch_row(*this, [&](int64_t row, int64_t channel, int64_t i, int64_t j) {
        for_each_tap(*this, i, j, [&](int64_t column, int64_t index) {
          patches[static_cast<size_t>(column * taps() + row)] = from[channel * h * w + index];
        });
      });
      multiply_add(o / groups, pixels, taps(), part(dy, image, group, n, groups), patches.data(),
                   part(dweight, 0, group, 1, groups));
    }
  }
  return dweight;
}

}  // namespace virtual_gpu
