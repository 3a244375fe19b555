#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/pointwise/cpu/binary.cpp"
#include "core/simd/foreach_target.h"

#include "core/simd/call.h"
#include "ops/pointwise/cpu/loops.h"
#include "ops/pointwise/cpu/pointwise_kernels.h"
#include "ops/pointwise/functions.h"
#include "ops/pointwise/integer_functions.h"

#include <cmath>
#include <type_traits>

HWY_BEFORE_NAMESPACE();
namespace norma::kernels::cpu::HWY_NAMESPACE {

namespace {

template <class S>
void binary_floating(Binary f, const Sizes& sizes, const Operand& y, const Operand& a, const Operand& b) {
  using T = compute_t<S>;
  with_binary_function<T>(f, [&]<class F>(F function) {
    if constexpr (std::is_same_v<F, BinaryFunction<Binary::pow, T>>) {
      map_numbers<S, S>(sizes, y, a, b, [](T u, T v) { return std::pow(u, v); });
    } else {
      map<S>(sizes, y, a, b, function);
    }
  });
}

}  // namespace

void binary(Binary f, DType dtype, const Sizes& sizes, const Operand& y, const Operand& a, const Operand& b) {
  dispatch_numeric("binary", dtype, [&]<class S>(S) {
    if constexpr (std::is_integral_v<S>) {
      with_integer_binary_function<S>(f, [&](auto function) { map_numbers<S, S>(sizes, y, a, b, function); });
    } else {
      binary_floating<S>(f, sizes, y, a, b);
    }
  });
}

void compare(Comparison f, DType dtype, const Sizes& sizes, const Operand& y, const Operand& a, const Operand& b) {
  dispatch_all(dtype, [&]<class S>(S) {
    using T = compute_t<S>;
    switch (f) {
      case Comparison::equal: return map_numbers<bool, S>(sizes, y, a, b, [](T u, T v) { return u == v; });
      case Comparison::greater: return map_numbers<bool, S>(sizes, y, a, b, [](T u, T v) { return u > v; });
    }
  });
}

void where(size_t element_bytes, const Sizes& sizes, const Operand& y, const Operand& condition, const Operand& a,
           const Operand& b) {
  // Only bits move, so the size of an element is all that counts.
  dispatch_word("where", element_bytes, [&]<class Word>(Word) { choose<Word>(sizes, y, condition, a, b); });
}

}  // namespace norma::kernels::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace norma::kernels {

namespace cpu {

constexpr PointwiseKernels kTable{.unary = unary,
                                  .unary_backward = unary_backward,
                                  .binary = NORMA_SIMD_CALL(binary),
                                  .compare = NORMA_SIMD_CALL(compare),
                                  .where = NORMA_SIMD_CALL(where)};

}  // namespace cpu

constinit const PointwiseKernels pointwise_cpu = cpu::kTable;

namespace detail {

template <size_t N>
void run(const Sizes& sizes, const std::array<Strides, N>& strides, RunFunction<N> function, const void* body) {
  const StridedLoop<N> loop = make_strided_loop<N>(sizes, strides);
  for_each_run(loop, [&](const Places<N>& offsets, int64_t count, const Places<N>& inner_strides) {
    function(body, offsets, count, inner_strides);
  });
}

template void run<2>(const Sizes&, const std::array<Strides, 2>&, RunFunction<2>, const void*);
template void run<3>(const Sizes&, const std::array<Strides, 3>&, RunFunction<3>, const void*);
template void run<4>(const Sizes&, const std::array<Strides, 4>&, RunFunction<4>, const void*);

}  // namespace detail

}  // namespace norma::kernels
#endif
