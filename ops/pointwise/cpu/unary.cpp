#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/pointwise/cpu/unary.cpp"
#include "core/simd/foreach_target.h"

#include "core/simd/call.h"
#include "ops/pointwise/cpu/loops.h"
#include "ops/pointwise/cpu/pointwise_kernels.h"
#include "ops/pointwise/functions.h"
#include "ops/pointwise/integer_functions.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <type_traits>
#include <vector>

HWY_BEFORE_NAMESPACE();
namespace norma::kernels::cpu::HWY_NAMESPACE {

namespace {

// 16 bits make 65,536 numbers, and most of a tensor's lie in a few binades. Where f costs more than two loads, its
// values are computed once for all numbers, by the same vector code, and what a tensor reads of them stays in the
// nearest cache.
constexpr int64_t kNumbersOf16Bits = 65536;

template <class F>
constexpr bool kIsLookedUp =
    std::is_same_v<F, UnaryFunction<Unary::gelu, float>> || std::is_same_v<F, UnaryFunction<Unary::gelu_tanh, float>> ||
    std::is_same_v<F, UnaryFunction<Unary::silu, float>> || std::is_same_v<F, UnaryFunction<Unary::tanh, float>> ||
    std::is_same_v<F, UnaryFunction<Unary::erf, float>>;
template <class F>  // those that are the product of dy and a function of x
constexpr bool kIsSlopeLookedUp =
    std::is_same_v<F, UnaryDerivative<Unary::gelu, float>> || std::is_same_v<F, UnaryDerivative<Unary::silu, float>> ||
    std::is_same_v<F, UnaryDerivative<Unary::gelu_tanh, float>>;

/// Whether a table pays: not for fewer numbers than it has.
bool pays_to_look_up(const Sizes& sizes) {
  return sizes.numel() >= kNumbersOf16Bits;
}

/// f(x, others…) of each number x of S, as R. The number's bits are the index.
template <class R, class S, class F, class... Others>
const R* values(F f, Others... others) {
  static const std::vector<R> table = [&] {
    std::vector<S> numbers(kNumbersOf16Bits);
    for (size_t bits = 0; bits < numbers.size(); ++bits) {
      numbers[bits] = std::bit_cast<S>(static_cast<uint16_t>(bits));
    }
    std::vector<R> of(kNumbersOf16Bits);
    detail::map_piece(f, kNumbersOf16Bits, of.data(), Varying<S>{numbers.data()}, others...);
    return of;
  }();
  return table.data();
}

/// y = table[x]
template <class R, class S>
HWY_INLINE void look_up(int64_t count, R* y, int64_t y_stride, const S* x, int64_t x_stride, const R* table) {
  for (int64_t i = 0; i < count; ++i) {
    y[i * y_stride] = table[std::bit_cast<uint16_t>(x[i * x_stride])];
  }
}

/// y = table[x]
template <class S>
void map_by_table(const Sizes& sizes, const Operand& y, const Operand& x, const S* table) {
  detail::run_with<2>(sizes, {y.strides, x.strides}, [&](const auto& offsets, int64_t count, const auto& strides) {
    S* out = static_cast<S*>(y.data) + offsets[0];
    const S* in = static_cast<const S*>(x.data) + offsets[1];
    if (strides[0] == 1 && strides[1] == 1) {  // known strides make a shorter loop
      look_up(count, out, 1, in, 1, table);
    } else {
      look_up(count, out, strides[0], in, strides[1], table);
    }
  });
}

/// dx = dy table[x]
template <class S>
void scale_by_table(const Sizes& sizes, const Operand& dx, const Operand& x, const Operand& dy, const float* table) {
  detail::run_with<3>(
      sizes, {dx.strides, x.strides, dy.strides}, [&](const auto& offsets, int64_t count, const auto& strides) {
        alignas(64) float slopes[detail::kPiece];
        detail::DenseOutput<S> dense_out;
        detail::DenseInput<S> dense_dy;
        for (int64_t i = 0; i < count; i += detail::kPiece) {
          const int64_t some = std::min(detail::kPiece, count - i);
          look_up(some, slopes, 1, static_cast<const S*>(x.data) + offsets[1] + i * strides[1], strides[1], table);
          S* to = static_cast<S*>(dx.data) + offsets[0] + i * strides[0];
          const S* from = static_cast<const S*>(dy.data) + offsets[2] + i * strides[2];
          detail::map_piece([](const auto& slope, const auto& g) HWY_ATTR { return g * slope; }, some,
                            dense_out.get(to, strides[0]), Varying<float>{slopes},
                            dense_dy.get(from, strides[2], some));
          dense_out.put(to, strides[0], some);
        }
      });
}

template <class S>
void unary_floating(Unary f, const Sizes& sizes, const Operand& y, const Operand& x, const Scalars& scalars) {
  using T = compute_t<S>;
  with_unary_function<T>(f, scalars, [&]<class F>(F function) {
    if constexpr (std::is_same_v<F, UnaryFunction<Unary::pow, T>>) {
      map_numbers<S, S>(sizes, y, x, [e = function.first](T v) { return std::pow(v, e); });
    } else {
      if constexpr (sizeof(S) == 2 && kIsLookedUp<F>) {
        if (pays_to_look_up(sizes)) {
          return map_by_table<S>(sizes, y, x, values<S, S>(function));
        }
      }
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
    with_unary_derivative<compute_t<S>>(f, scalars, [&]<class F>(F function) {
      if constexpr (sizeof(S) == 2 && kIsSlopeLookedUp<F>) {
        if (pays_to_look_up(sizes)) {
          return scale_by_table<S>(sizes, dx, saved, dy, values<float, S>(function, Same<float>{1}));
        }
      }
      map<S>(sizes, dx, saved, dy, function);
    });
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
