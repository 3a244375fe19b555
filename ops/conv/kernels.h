#pragma once

#include "core/by_device.h"
#include "core/dtype.h"
#include "core/storage.h"
#include "ops/epilogue.h"
#include "ops/implementations.h"

#include <compare>
#include <cstdint>
#include <string_view>

namespace norma::kernels {

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

  [[nodiscard]] int64_t x_numel() const { return n * c * h * w; }
  [[nodiscard]] int64_t weight_numel() const { return o * (c / groups) * kh * kw; }
  [[nodiscard]] int64_t y_numel() const { return n * o * oh * ow; }

  friend auto operator<=>(const Conv2dCase&, const Conv2dCase&) = default;
};

enum class Conv2dPass : uint8_t { forward, input_gradient, weight_gradient };

/// One pass of a convolution.
struct Conv2dCall {
  Conv2dCase conv;
  Conv2dPass pass = Conv2dPass::forward;

  friend auto operator<=>(const Conv2dCall&, const Conv2dCall&) = default;
};

/// The multiplications and additions of one pass; all three passes have the same number.
inline double flops(const Conv2dCase& conv) {
  const int64_t terms = conv.c / conv.groups * conv.kh * conv.kw;  // of one output
  return 2 * static_cast<double>(conv.y_numel()) * static_cast<double>(terms);
}

/// Bytes of x, weight and y.
inline double fewest_bytes(const Conv2dCase& conv) {
  const int64_t elements = conv.x_numel() + conv.weight_numel() + conv.y_numel();
  return static_cast<double>(elements) * static_cast<double>(size_of(conv.dtype));
}

/// The convolution of one library, or our own. Pointers are to elements of the case's dtype; results are overwritten.
struct Conv2dImplementation {
  std::string_view name;
  bool (*supports)(const Conv2dCase& conv, Conv2dPass pass);
  /// y = x * weight + bias; bias may be nullptr. `keep`, unless nullptr, is the storage of the weight: an
  /// implementation that reorders weights may keep the reordered ones there.
  void (*forward)(const Conv2dCase& conv, const void* x, const void* weight, const void* bias, void* y, Storage* keep);
  void (*input_gradient)(const Conv2dCase& conv, const void* dy, const void* weight, void* dx);
  void (*weight_gradient)(const Conv2dCase& conv, const void* x, const void* dy, void* dweight);
  /// forward() with an epilogue. Returns false and leaves y unwritten if it has none for the case; nullptr: for none.
  bool (*forward_act)(const Conv2dCase& conv, const void* x, const void* weight, const void* bias, void* y,
                      const Epilogue& epilogue, Storage* keep) = nullptr;
};

extern const Conv2dImplementation* const conv2d_onednn;  ///< nullptr in a build without oneDNN
extern const Conv2dImplementation conv2d_eigen;
/// Our own for 3x3 kernels with stride 1, in tiles of 2x2 or 4x4 outputs: see winograd.h.
extern const Conv2dImplementation conv2d_winograd_2x2, conv2d_winograd_4x4;
/// The faster of the two, or nullptr where others are faster.
const Conv2dImplementation* fastest_winograd(const Conv2dCase& conv, Conv2dPass pass);
/// Plain loops, in double. Only its name chooses it.
extern const Conv2dImplementation conv2d_reference;
/// Our own kernels for depthwise convolutions: on the CPU with stride 1.
extern const Conv2dImplementation conv2d_depthwise, conv2d_depthwise_cuda, conv2d_depthwise_emulated;
/// bfloat16 and float16 through float32: converts the operands, calls the float32 implementation, and rounds.
extern const Conv2dImplementation conv2d_through_float;
/// The convolution of the device cuda, in a build with CUDA.
extern const Conv2dImplementation conv2d_cudnn;

struct ConvKernels {
  /// The implementation that does one pass of a case.
  const Conv2dImplementation& (*choose)(const Conv2dCase& conv, Conv2dPass pass);
  /// db[o] = sum of dy (n, o, oh, ow) over n, oh and ow. Fixed order, carried in double.
  void (*bias_gradient)(const Conv2dCase& conv, const void* dy, void* db);
  Implementations<Conv2dImplementation>& (*implementations)();
  /// 1x1 convolutions of contiguous images cost transposes of x and of the result.
  bool transposes_contiguous = false;
};

extern const ConvKernels conv_cpu, conv_cuda, conv_emulated;
extern const ByDevice<ConvKernels> conv_kernels;

}  // namespace norma::kernels
