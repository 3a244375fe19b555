#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/pointwise/cpu/unary.cpp"
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
void unary_floating(Unary f, const Sizes& sizes, const Operand& y, const Operand& x, const Scalars& scalars) {
  using T = compute_t<S>;
  with_unary_function<T>(f, scalars, [&]<class F>(F function) {
    if constexpr (std::is_same_v<F, UnaryFunction<Unary::pow, T>>) {
      map_numbers<S, S>(sizes, y, x, [e = function.first](T v) { return std::pow(v, e); });
    } else {
      map<S>(sizes, y, x, function);
    }
  });
}

}  // namespace

void unary(Unary f, DType dtype, const Sizes& sizes, const Operand& y, const Operand& x, const Scalars& scalars) {
  dispatch_numeric("unary", dtype, [&]<class T>(T) {
    if constexpr (std::is_floating_point_v<compute_t<T>>) {
      unary_floating<T>(f, sizes, y, x, scalars);
    } else {
      with_integer_unary_function<T>(f, scalars, [&](auto function) { map_numbers<T, T>(sizes, y, x, function); });
    }
  });
}

void unary_backward(Unary f, DType dtype, const Sizes& sizes, const Operand& dx, const Operand& saved,
                    const Operand& dy, const Scalars& scalars) {
  dispatch_any_floating("unary_backward", dtype, [&]<class S>(S) {
    with_unary_derivative<compute_t<S>>(f, scalars, [&](auto function) { map<S>(sizes, dx, saved, dy, function); });
  });
}

}  // namespace norma::kernels::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace norma::kernels::cpu {

void unary(Unary f, DType dtype, const Sizes& sizes, const Operand& y, const Operand& x, const Scalars& scalars) {
  NORMA_SIMD_CALL(unary)(f, dtype, sizes, y, x, scalars);
}

void unary_backward(Unary f, DType dtype, const Sizes& sizes, const Operand& dx, const Operand& saved,
                    const Operand& dy, const Scalars& scalars) {
  NORMA_SIMD_CALL(unary_backward)(f, dtype, sizes, dx, saved, dy, scalars);
}

}  // namespace norma::kernels::cpu
#endif
