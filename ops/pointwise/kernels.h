#pragma once

#include "core/by_device.h"
#include "core/dtype.h"
#include "core/sizes.h"

#include <cstddef>

namespace norma::kernels {

/// First element and strides (in elements) of one operand; a broadcast axis has stride 0.
struct Operand {
  void* data = nullptr;
  Strides strides;
};

enum class Unary { neg, exp, log, sqrt, rsqrt, pow, abs, tanh, sigmoid, erf, relu, silu, gelu, gelu_tanh, clamp };
enum class Binary { add, sub, mul, div, maximum, pow };
enum class Comparison { equal, greater };

/// The numbers that a function takes beside its tensor: pow {exponent}, clamp {low, high}.
struct Scalars {
  double first = 0;
  double second = 0;
};

/// True iff unary_backward takes y = f(x) rather than x.
constexpr bool kernel_saves_output(Unary f) {
  return f == Unary::sqrt || f == Unary::rsqrt || f == Unary::tanh || f == Unary::sigmoid || f == Unary::relu;
}

/// All kernels take operands of any strides over one set of sizes; an output may be the same memory as an input with
/// the same strides.
struct PointwiseKernels {
  /// y = f(x). Floating dtypes; neg, abs and clamp also int64, int32. 16-bit dtypes compute in float.
  void (*unary)(Unary f, DType dtype, const Sizes& sizes, const Operand& y, const Operand& x, const Scalars& scalars);
  /// dx = dy * f'(x) in one pass; `saved` is x or y = f(x), as kernel_saves_output says. Floating dtypes.
  /// Not for neg, exp, log and pow, whose derivatives are single functions of this family.
  void (*unary_backward)(Unary f, DType dtype, const Sizes& sizes, const Operand& dx, const Operand& saved,
                         const Operand& dy, const Scalars& scalars);
  /// y = f(a, b). Floating dtypes, int64, int32; div and pow only the floating ones.
  void (*binary)(Binary f, DType dtype, const Sizes& sizes, const Operand& y, const Operand& a, const Operand& b);
  /// y = f(a, b) as bool; a and b of any dtype.
  void (*compare)(Comparison f, DType dtype, const Sizes& sizes, const Operand& y, const Operand& a, const Operand& b);
  /// y = condition ? a : b for elements of 1, 2, 4 or 8 bytes; condition is bool.
  void (*where)(size_t element_bytes, const Sizes& sizes, const Operand& y, const Operand& condition, const Operand& a,
                const Operand& b);
};

extern const PointwiseKernels pointwise_cpu, pointwise_cuda, pointwise_emulated;
extern const ByDevice<PointwiseKernels> pointwise_kernels;

}  // namespace norma::kernels
