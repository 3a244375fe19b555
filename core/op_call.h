#pragma once

#include "core/dtype.h"
#include "core/sizes.h"

#include <compare>
#include <cstdint>
#include <variant>

namespace norma {

/// A copy: how the elements lay before and after.
struct CopyCall {
  Sizes sizes;   ///< of the written elements
  Strides from;  ///< 0 along axes of size 1 that were broadcast
  Strides to;
  DType from_dtype = DType::float32;
  DType to_dtype = DType::float32;
  /// The value of next_node_number() at the copy: in a forward pass, the number of the copying op if it was recorded.
  uint64_t node = 0;
};

namespace kernels {

/// A convolution in plain numbers: x (n, c, h, w), weight (o, c / groups, kh, kw), y (n, o, oh, ow), all without gaps.
struct Conv2dCase {
  DType dtype = DType::float32;
  bool channels_last = false;         ///< x and y lie as NHWC, else NCHW
  bool weight_channels_last = false;  ///< weight lies as OHWI, else OIHW
  int64_t n = 0, c = 0, h = 0, w = 0;
  int64_t o = 0, kh = 0, kw = 0;
  int64_t oh = 0, ow = 0;
  int64_t stride_h = 1, stride_w = 1;
  int64_t padding_h = 0, padding_w = 0;
  int64_t dilation_h = 1, dilation_w = 1;
  int64_t groups = 1;

  friend auto operator<=>(const Conv2dCase&, const Conv2dCase&) = default;
};

enum class Conv2dPass : uint8_t { forward, input_gradient, weight_gradient };

/// One pass of a convolution.
struct Conv2dCall {
  Conv2dCase conv;
  Conv2dPass pass = Conv2dPass::forward;

  friend auto operator<=>(const Conv2dCall&, const Conv2dCall&) = default;
};

/// `batch` products c = a b + bias of a (m, k) and b (k, n), in plain numbers. Strides are in elements. In a and b
/// either the rows or the columns are runs of memory: one of the two strides is 1, the other at least the length of a
/// run. c's columns are adjacent. At most one of a_batch and b_batch is 0 when batch > 1. m, n > 0; k may be 0.
struct MatmulCase {
  DType dtype = DType::float32;
  int64_t batch = 1, m = 0, n = 0, k = 0;
  int64_t a_batch = 0, a_row = 0, a_column = 0;  ///< a_batch and b_batch may be 0: the same matrix every time
  int64_t b_batch = 0, b_row = 0, b_column = 0;
  int64_t c_batch = 0, c_row = 0;
  bool wide = false;  ///< c is of compute_dtype(dtype), and not rounded to 16 bits

  [[nodiscard]] DType c_dtype() const { return wide ? compute_dtype(dtype) : dtype; }

  friend auto operator<=>(const MatmulCase&, const MatmulCase&) = default;
};

}  // namespace kernels

/// The arguments of a kernel's call in plain numbers, std::monostate for most ops. With them benchmarks run
/// convolutions and products again, and telemetry describes copies.
using OpCall = std::variant<std::monostate, CopyCall, kernels::Conv2dCall, kernels::MatmulCase>;

}  // namespace norma
