#pragma once

#include "core/kernels.h"

// The kernels of TensorKernels for the CPU. Those that are compiled for several targets, and random numbers, have files
// of their own.

namespace norma::kernels::cpu {

void copy(const StridedLoop<2>& loop, DType dst_dtype, void* dst, DType src_dtype, const void* src);
/// copy() between two dtypes.
void convert(const StridedLoop<2>& loop, DType dst_dtype, void* dst, DType src_dtype, const void* src);

/// copy() of elements of one size where src is innermost along the axis `across` and dst along the last one.
void copy_transposed(size_t element_bytes, const StridedLoop<2>& loop, int64_t across, void* dst, const void* src);

void add(const StridedLoop<3>& loop, DType dtype, void* out, const void* a, const void* b);
void copy_all(DType to_dtype, DType from_dtype, const double* factor, std::span<const CopyItem> items);
void add_all(DType dtype, std::span<const CopyItem> items);
int64_t find_not_finite(const Sizes& sizes, const Strides& strides, DType dtype, const void* x);

void fill(const StridedLoop<1>& loop, DType dtype, void* x, double value);
void arange(int64_t* x, int64_t count);

void uniform(DType dtype, void* x, int64_t count, RandomStream stream, double low, double high);
void normal(DType dtype, void* x, int64_t count, RandomStream stream, double mean, double std);
void truncated_normal(DType dtype, void* x, int64_t count, RandomStream stream, double mean, double std, double low,
                      double high);
void randint(int64_t* x, int64_t count, RandomStream stream, int64_t low, uint64_t range);

}  // namespace norma::kernels::cpu
