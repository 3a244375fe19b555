#pragma once

#include <cstdint>

// A fast layer norm without weight and bias: y = (x - mean) * rstd for each row, rstd = 1 / sqrt(var + kEps).

inline constexpr float kEps = 1e-5F;

/// The sum of n floats, by vectors. It is there, as the pattern for the gaps.
float sum_of(const float* x, int64_t n);

/// Gap 1: the sum of (x[i] - mean)² over n floats, by vectors.
float squares_about(float mean, const float* x, int64_t n);

/// Gap 2: y[i] = (x[i] - mean) * rstd for n floats, by vectors.
void write_row(const float* x, float mean, float rstd, int64_t n, float* y);

/// Gap 3: the norm of `rows` rows of n floats, which lie one after the other. One row after the other, so that a row
/// stays in the cache from its first pass to its last; and all cores share the rows.
void norm_rows(const float* x, int64_t rows, int64_t n, float* y);
