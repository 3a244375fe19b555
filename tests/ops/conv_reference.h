#pragma once

#include "core/factory.h"
#include "core/tensor.h"
#include "ops/conv/conv.h"

#include <vector>

namespace norma::test {

/// One convolution to try; x is (n, c, h, w), weight (o, c / groups, kh, kw).
struct ConvShape {
  const char* name;
  int64_t n, c, h, w;
  int64_t o, kh, kw;
  Conv2dOptions options;
};

// H ≠ W ≠ C wherever the case allows, channel counts around the vector width, and 1.
inline const std::vector<ConvShape>& conv_shapes() {
  static const std::vector<ConvShape> shapes = {
      {"3x3", 2, 5, 7, 6, 4, 3, 3, {}},
      {"3x3, padding 1, 31 to 33 channels", 2, 31, 6, 5, 33, 3, 3, {.padding = 1}},
      {"3x3, padding 1, 32 to 16 channels", 2, 32, 6, 5, 16, 3, 3, {.padding = 1}},
      {"3x3, stride 2, padding 1, odd sizes", 3, 17, 9, 7, 15, 3, 3, {.stride = 2, .padding = 1}},
      {"3x3, stride 2, rest unused", 1, 3, 8, 10, 5, 3, 3, {.stride = 2}},
      {"3x3, dilation 2", 2, 4, 9, 8, 6, 3, 3, {.padding = 2, .dilation = 2}},
      {"asymmetric kernel, stride, padding and dilation",
       2,
       3,
       11,
       9,
       4,
       5,
       2,
       {.stride = {2, 1}, .padding = {3, 1}, .dilation = {1, 3}}},
      {"1x1", 2, 33, 5, 4, 31, 1, 1, {}},
      {"1x1, stride 2", 2, 32, 7, 6, 16, 1, 1, {.stride = 2}},
      {"1x1, padding 1", 2, 4, 3, 5, 6, 1, 1, {.padding = 1}},
      {"1x1, one pixel, one channel", 1, 1, 1, 1, 1, 1, 1, {}},
      {"3x3, 4x4 images", 2, 48, 4, 4, 32, 3, 3, {.padding = 1}},
      {"one image", 1, 16, 4, 6, 32, 3, 3, {.padding = 1}},
      {"one channel", 3, 1, 8, 7, 6, 3, 3, {.padding = 1}},
      {"one output channel", 2, 6, 5, 8, 1, 3, 3, {.padding = 1}},
      {"one pixel", 4, 6, 1, 1, 5, 3, 3, {.padding = 1}},
      {"kernel as large as the input", 2, 3, 4, 5, 7, 4, 5, {}},
      {"patches", 2, 3, 8, 12, 10, 4, 4, {.stride = 4}},
      {"stem 7x7, stride 2", 2, 3, 15, 13, 16, 7, 7, {.stride = 2, .padding = 3}},
      {"2 groups", 2, 6, 5, 7, 4, 3, 3, {.padding = 1, .groups = 2}},
      {"4 groups of 16", 1, 64, 4, 5, 64, 3, 3, {.padding = 1, .groups = 4}},
      {"depthwise 3x3, stride 2", 2, 17, 9, 8, 17, 3, 3, {.stride = 2, .padding = 1, .groups = 17}},
      {"depthwise 5x5, stride 2", 2, 8, 11, 6, 8, 5, 5, {.stride = 2, .padding = {1, 3}, .groups = 8}},
      {"depthwise 7x7", 2, 33, 9, 8, 33, 7, 7, {.padding = 3, .groups = 33}},
      {"depthwise 7x7, 2x2 images", 3, 40, 2, 2, 40, 7, 7, {.padding = 3, .groups = 40}},
      {"depthwise 5x3, dilation 2", 2, 16, 12, 10, 16, 5, 3, {.padding = {4, 2}, .dilation = 2, .groups = 16}},
      {"depthwise with 2 outputs per channel", 2, 5, 6, 7, 10, 3, 3, {.padding = 1, .groups = 5}},
  };
  return shapes;
}

/// Calls f(n, g, o, oh, ow, c, kh, kw, h, w) for every product of a convolution; o and c count within group g.
template <class F>
void for_each_product(const ConvShape& s, int64_t outputs_h, int64_t outputs_w, F&& f) {
  const Conv2dOptions& q = s.options;
  for (int64_t n = 0; n < s.n; ++n) {
    for (int64_t o = 0; o < s.o; ++o) {
      const int64_t g = o / (s.o / q.groups);
      for (int64_t oh = 0; oh < outputs_h; ++oh) {
        for (int64_t ow = 0; ow < outputs_w; ++ow) {
          for (int64_t c = 0; c < s.c / q.groups; ++c) {
            for (int64_t kh = 0; kh < s.kh; ++kh) {
              for (int64_t kw = 0; kw < s.kw; ++kw) {
                const int64_t h = oh * q.stride.h + kh * q.dilation.h - q.padding.h;
                const int64_t w = ow * q.stride.w + kw * q.dilation.w - q.padding.w;
                if (h >= 0 && h < s.h && w >= 0 && w < s.w) {
                  const int64_t x = ((n * s.c + g * (s.c / q.groups) + c) * s.h + h) * s.w + w;
                  const int64_t weight = ((o * (s.c / q.groups) + c) * s.kh + kh) * s.kw + kw;
                  const int64_t y = ((n * s.o + o) * outputs_h + oh) * outputs_w + ow;
                  f(static_cast<size_t>(x), static_cast<size_t>(weight), static_cast<size_t>(y));
                }
              }
            }
          }
        }
      }
    }
  }
}

/// A convolution and its gradients by plain loops in float64, row-major.
struct ConvReference {
  Sizes y_sizes;
  Tensor y, dx, dweight, dbias;

  ConvReference(const ConvShape& s, const Tensor& x, const Tensor& weight, const Tensor& bias, const Tensor& dy)
      : y_sizes(dy.sizes()) {
    const auto xs = x.to_vector<double>();
    const auto weights = weight.to_vector<double>();
    const auto dys = dy.to_vector<double>();
    std::vector<double> ys(dys.size(), 0.0);
    std::vector<double> dxs(xs.size(), 0.0);
    std::vector<double> dweights(weights.size(), 0.0);
    std::vector<double> dbiases(static_cast<size_t>(s.o), 0.0);
    const size_t plane = static_cast<size_t>(y_sizes[2] * y_sizes[3]);
    const auto biases = bias.defined() ? bias.to_vector<double>() : dbiases;
    for (size_t i = 0; i < ys.size(); ++i) {
      ys[i] = biases[i / plane % biases.size()];
      dbiases[i / plane % biases.size()] += dys[i];
    }
    for_each_product(s, y_sizes[2], y_sizes[3], [&](size_t i, size_t k, size_t j) {
      ys[j] += xs[i] * weights[k];
      dxs[i] += dys[j] * weights[k];
      dweights[k] += dys[j] * xs[i];
    });
    y = from_vector(ys, y_sizes);
    dx = from_vector(dxs, x.sizes());
    dweight = from_vector(dweights, weight.sizes());
    dbias = from_vector(dbiases, {s.o});
  }
};

}  // namespace norma::test
