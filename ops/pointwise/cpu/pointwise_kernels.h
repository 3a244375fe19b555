#pragma once

#include "core/strided_loop.h"
#include "ops/pointwise/kernels.h"

#include <array>
#include <cstddef>
#include <cstdint>

// The loop over runs that the CPU's kernels share, and those of unary.cpp; binary.cpp has the table.

namespace norma::kernels {

namespace detail {

template <size_t N>
using Places = std::array<int64_t, N>;
template <size_t N>
using RunFunction = void (*)(const void* body, const Places<N>& offsets, int64_t count, const Places<N>& strides);

/// for_each_run() without knowledge of the body, so that it is compiled once and not once for each function.
template <size_t N>
void run(const Sizes& sizes, const std::array<Strides, N>& strides, RunFunction<N> function, const void* body);
extern template void run<2>(const Sizes&, const std::array<Strides, 2>&, RunFunction<2>, const void*);
extern template void run<3>(const Sizes&, const std::array<Strides, 3>&, RunFunction<3>, const void*);
extern template void run<4>(const Sizes&, const std::array<Strides, 4>&, RunFunction<4>, const void*);

}  // namespace detail

namespace cpu {

void unary(Unary f, DType dtype, const Sizes& sizes, const Operand& y, const Operand& x, const Scalars& scalars);
void unary_backward(Unary f, DType dtype, const Sizes& sizes, const Operand& dx, const Operand& saved,
                    const Operand& dy, const Scalars& scalars);

}  // namespace cpu

}  // namespace norma::kernels
