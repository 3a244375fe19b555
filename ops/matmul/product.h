#pragma once

#include "core/tensor.h"
#include "ops/matmul/kernels.h"

namespace norma {

/// A matrix, or a batch of matrices, in a form that kernels can read.
struct MatrixView {
  Tensor tensor;  ///< keeps the memory alive; axes (…, rows, columns)
  int64_t row = 0;
  int64_t column = 0;
};

/// x itself if the rows or the columns of its matrices (last two axes) are runs of memory and no axis begins again
/// before the one inside it has ended, else a contiguous copy.
MatrixView matrix_view(const Tensor& x);

/// Writes a b + bias into the matrix at `c`, whose rows are `c_row` elements apart. All have rank 2; any size may be 0;
/// bias may be undefined. `keep_b`: b is an unchanging weight, and a library may keep its own copy of it for the next
/// call.
void multiply_into(const MatrixView& a, const MatrixView& b, const Tensor& bias, void* c, int64_t c_row,
                   bool keep_b = false);

/// multiply_into() with an epilogue. Returns false and leaves `c` unwritten if no implementation has it for the case.
bool multiply_act_into(const MatrixView& a, const MatrixView& b, const Tensor& bias, void* c, int64_t c_row,
                       const kernels::Epilogue& epilogue, bool keep_b);

/// True iff no gradients are recorded and x is a parameter, which stays as it is from call to call.
bool is_constant_weight(const Tensor& x);

}  // namespace norma
