#pragma once

#include "core/cuda/kernel.h"
#include "ops/pointwise/kernels.h"

// The functions of the table, defined in one file for each kind.

namespace norma::kernels::NORMA_BACKEND {

void unary(Unary f, DType dtype, const Sizes& sizes, const Operand& y, const Operand& x, const Scalars& scalars);
void unary_backward(Unary f, DType dtype, const Sizes& sizes, const Operand& dx, const Operand& saved,
                    const Operand& dy, const Scalars& scalars);

void binary(Binary f, DType dtype, const Sizes& sizes, const Operand& y, const Operand& a, const Operand& b);
void compare(Comparison f, DType dtype, const Sizes& sizes, const Operand& y, const Operand& a, const Operand& b);
void where(size_t element_bytes, const Sizes& sizes, const Operand& y, const Operand& condition, const Operand& a,
           const Operand& b);

}  // namespace norma::kernels::NORMA_BACKEND
