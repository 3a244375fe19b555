#pragma once

#include "core/by_device.h"
#include "core/op_call.h"
#include "core/storage.h"
#include "ops/epilogue.h"
#include "ops/implementations.h"

#include <cstdint>
#include <string_view>

namespace norma::kernels {

/// The multiplications and additions of one pass; all three passes have the same number.
inline double flops(const Conv2dCase& conv) {
  const int64_t terms = conv.c / conv.groups * conv.kh * conv.kw;  // of one output
  return 2 * static_cast<double>(conv.n * conv.o * conv.oh * conv.ow) * static_cast<double>(terms);
}

/// Bytes of x, weight and y.
inline double fewest_bytes(const Conv2dCase& conv) {
  const int64_t elements = conv.n * conv.c * conv.h * conv.w + conv.o * (conv.c / conv.groups) * conv.kh * conv.kw +
                           conv.n * conv.o * conv.oh * conv.ow;
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

/// nullptr in a build without oneDNN.
const Conv2dImplementation* conv2d_onednn();
const Conv2dImplementation* conv2d_eigen();
/// Our own for 3x3 kernels with stride 1, in tiles of 2x2 or 4x4 outputs: see winograd.h.
const Conv2dImplementation* conv2d_winograd_2x2();
const Conv2dImplementation* conv2d_winograd_4x4();
/// The faster of the two, or nullptr where others are faster.
const Conv2dImplementation* fastest_winograd(const Conv2dCase& conv, Conv2dPass pass);
/// Plain loops, in double. Only its name chooses it.
const Conv2dImplementation* conv2d_reference();
/// Our own kernels for depthwise convolutions with stride 1.
const Conv2dImplementation* conv2d_depthwise();
/// bfloat16 and float16 through float32: converts the operands, calls the float32 implementation, and rounds.
const Conv2dImplementation* conv2d_through_float();

/// The convolution of the device cuda, in a build with CUDA.
const Conv2dImplementation* conv2d_cudnn();
/// Our own kernels for depthwise convolutions on the devices cuda and cuda-emulated.
const Conv2dImplementation* conv2d_depthwise_cuda();
const Conv2dImplementation* conv2d_depthwise_emulated();

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
