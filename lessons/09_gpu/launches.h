#pragma once

#include <cstdint>

// Starts the kernels of kernels.h. All pointers are addresses in the GPU's memory.

void run_who_am_i(int64_t blocks, int threads, int* to);
void run_butterfly(const float* x, float* steps);
void run_mean_of_rows(int64_t rows, int length, const float* x, float* mean, bool with_barrier);
void run_variance_of_rows(int64_t rows, int length, const float* x, float* var, bool with_barrier);
void run_half_a_barrier(int threads, float* x);
