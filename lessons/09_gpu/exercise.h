#pragma once

#include <cstdint>

// Each function starts one of your kernels. All pointers are addresses in the GPU's memory, which the host must not
// touch.

/// Gap 1: y[i] = x[i] * by for `count` floats. There may be more threads than floats, or fewer.
void run_scale(int64_t blocks, int threads, int64_t count, float by, const float* x, float* y);

/// Gap 2: to[i] = the sum of row i, for `rows` rows of 32 floats. A block is one warp and takes one row.
void run_sum_of_rows(int64_t rows, const float* x, float* to);

/// Gap 3 alone: to[i] = what thread i of a block gets as the sum of 1, 2, …, `threads`.
void run_sums_of_threads(int threads, float* to);

/// Gap 3: layer norm without weight and bias: y = (x - mean) * rstd of each row, with rstd = 1 / sqrt(var + 1e-5). A
/// block of `threads` threads takes one row of n floats; n may be larger or smaller than `threads`.
void run_norm_rows(int64_t rows, int threads, int64_t n, const float* x, float* y);
