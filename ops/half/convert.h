#pragma once

#include "core/dtype.h"

#include <cstdint>

namespace norma::kernels {

// Conversions between float and the 16-bit dtypes, for implementations that compute in float32 only. `dtype` is
// bfloat16 or float16.

/// y[r * columns + c] = x[r * row_stride + c], both on the CPU.
void widen(DType dtype, const void* x, int64_t rows, int64_t row_stride, int64_t columns, float* y);
/// y[r * row_stride + c] = x[r * columns + c], rounded to nearest even.
void round_to(DType dtype, const float* x, int64_t rows, int64_t row_stride, int64_t columns, void* y);

}  // namespace norma::kernels
