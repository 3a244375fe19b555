#pragma once

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
      {"3x3, padding 2 and 0, 17 to 35 channels", 3, 17, 9, 11, 35, 3, 3, {.padding = {2, 0}}},
      {"3x3, smaller than a tile", 2, 18, 1, 3, 16, 3, 3, {.padding = {1, 2}}},
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

}  // namespace norma::test
