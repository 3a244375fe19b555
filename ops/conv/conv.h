#pragma once

#include "base/not_copied.h"
#include "core/tensor.h"
#include "ops/pointwise/activation.h"

#include <cstdint>
#include <string>
#include <vector>

namespace norma {

/// A number for both spatial axes, or one for each.
struct Pair {
  int64_t h = 0;
  int64_t w = 0;
  Pair(int64_t both) : h(both), w(both) {}  // NOLINT: {.stride = 2} is the point
  Pair(int64_t height, int64_t width) : h(height), w(width) {}
};

/// "(3, 5)": height and width.
std::string to_string(const Pair& pair);

struct Conv2dOptions {
  Pair stride = 1;
  Pair padding = 0;
  Pair dilation = 1;
  int64_t groups = 1;
};

/// The convolution (cross-correlation) of x (N, C, H, W) with weight (O, C / groups, kH, kW), plus bias (O) or
/// undefined. Result: (N, O, H', W') with H' = (H + 2 padding - dilation (kH - 1) - 1) / stride + 1, channels_last iff
/// x or weight suggests it (strict predicate), else contiguous. Floating dtypes; 16-bit ones are summed in float32 and
/// rounded once. Differentiable, also twice.
/// The first implementation that supports the case computes it: our own (depthwise with stride 1), oneDNN, Eigen. In
/// float32 with 3x3 kernels, stride 1 and no groups, Winograd's transforms do where they are faster, in tiles of 2x2 or
/// 4x4 outputs; they round otherwise than the sums of the definition (docs/precision.md).
/// NORMA_CONV=exact leaves them out; NORMA_CONV=depthwise|onednn|eigen|winograd_4x4|winograd_2x2|reference forces one
/// implementation, in all cases that it supports; reference is the definition as plain loops. On CUDA: our own
/// (depthwise with kernels of 3x3, 5x5 and 7x7 and stride 1 or 2), cuDNN; NORMA_CONV=depthwise|cudnn.
Tensor conv2d(const Tensor& x, const Tensor& weight, const Tensor& bias = {}, const Conv2dOptions& options = {});

/// conv2d() with a residual and an activation: activation(conv2d(x) + residual). If no gradient is recorded, a library
/// that can does it in one kernel, so that neither the sum nor the activation costs a pass over memory (float32; the
/// error of oneDNN's gelu is at most 1e-6 max(1, |y|), and its relu makes 0 of NaN). Otherwise separate ops do it.
/// Throws what conv2d() throws, and Error for a residual of other sizes or dtype than the result.
Tensor conv2d_act(const Tensor& x, const Tensor& weight, const Tensor& bias, const Conv2dOptions& options,
                  const ActOptions& then);

/// True iff 1x1 convolutions of contiguous images on `device` cost transposes of x and of the result, as cuDNN's do:
/// where several follow each other, channels_last is faster.
bool conv2d_transposes_contiguous(Device device = default_device());

/// Names of the implementations for tensors on `device`, in the order they are tried.
std::vector<std::string> conv2d_implementations(Device device = default_device());
/// Forces an implementation for this process, in all cases that it supports. "" or "fast" returns to the order, "exact"
/// to the order without Winograd's transforms. Throws Error for a name that this build lacks.
void set_conv2d_implementation(const std::string& name, Device device = default_device());
/// The name that was set last, by set_conv2d_implementation() or NORMA_CONV; "" if neither was.
std::string conv2d_implementation(Device device = default_device());
/// While one lives, the process has its implementation; then it has the one that it had before.
class Conv2dImplementationGuard : NotCopied {
 public:
  /// Throws what set_conv2d_implementation() throws.
  explicit Conv2dImplementationGuard(const std::string& name, Device device = default_device())
      : device_(device), before_(conv2d_implementation(device)) {
    set_conv2d_implementation(name, device);
  }
  ~Conv2dImplementationGuard() { set_conv2d_implementation(before_, device_); }

 private:
  Device device_;
  std::string before_;
};
/// The order of implementations: `exact` leaves Winograd's transforms out. On CUDA the modes mean the same, since no
/// plan of cuDNN's is Winograd's.
enum class Conv2dMode : uint8_t { fast, exact };
/// Their names, in this order.
std::vector<std::string> conv2d_modes();
/// The CPU's mode, as set_conv2d_implementation() or NORMA_CONV named it last.
Conv2dMode conv2d_mode();

}  // namespace norma
