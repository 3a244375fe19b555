#pragma once

#include "core/tensor.h"
#include "ops/matmul/kernels.h"

namespace norma {

/// A matrix, or each of a batch of them, in a form kernels can read.
struct MatrixView {
  Tensor tensor;  ///< keeps the memory alive; axes (…, rows, columns)
  int64_t row = 0;
  int64_t column = 0;
};

/// x itself if the rows or the columns of its matrices (last two axes) are runs of memory, else a contiguous copy.
MatrixView matrix_view(const Tensor& x);

/// Writes a b + bias into the matrix at `c`, whose rows are `c_row` elements apart. All of rank 2, any of the sizes may
/// be 0; bias may be undefined. `keep_b`: b is a weight in use as it is, so that what a library made of it may be kept
/// for the next call.
void multiply_into(const MatrixView& a, const MatrixView& b, const Tensor& bias, void* c, int64_t c_row,
                   bool keep_b = false);

/// The same with an epilogue. False where no implementation has it for the case; `c` is unwritten then.
bool multiply_act_into(const MatrixView& a, const MatrixView& b, const Tensor& bias, void* c, int64_t c_row,
                       const kernels::Epilogue& epilogue, bool keep_b);

/// True iff no gradients are recorded and x is a parameter, which stays as it is from call to call.
bool is_constant_weight(const Tensor& x);

}  // namespace norma
