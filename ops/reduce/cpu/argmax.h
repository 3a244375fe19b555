#pragma once

#include "ops/reduce/kernels.h"

namespace norma::kernels::cpu {

/// Does ReduceKernels::argmax.
void argmax(const Sizes& sizes, const Strides& x_strides, int64_t length, int64_t stride, bool last, DType dtype,
            const void* x, int64_t* y);

}  // namespace norma::kernels::cpu
