// Elementwise loops over operands of any strides.
//
// map() does arithmetic of the floating dtypes. Its function takes and returns vectors, of float for the 16-bit dtypes.
// The loop over vectors runs over dense memory; operands of other strides pass through a buffer on their way, so that
// an element's bits depend neither on the layout nor on its place. map_numbers() does work whose bits are the same in
// any order: integers (no processor before AVX-512 multiplies vectors of int64), comparisons, and calls of the standard
// library. Its function takes one number, and the compiler makes the vectors.

// Included once for each target: see core/simd/targets.h.
#if defined(NORMA_OPS_POINTWISE_CPU_LOOPS_H) == defined(HWY_TARGET_TOGGLE)
#ifdef NORMA_OPS_POINTWISE_CPU_LOOPS_H
#undef NORMA_OPS_POINTWISE_CPU_LOOPS_H
#else
#define NORMA_OPS_POINTWISE_CPU_LOOPS_H
#endif

#include "core/simd/memory.h"
#include "ops/pointwise/cpu/pointwise_kernels.h"

#include <algorithm>

HWY_BEFORE_NAMESPACE();
namespace norma::kernels::cpu::HWY_NAMESPACE {

using namespace simd::HWY_NAMESPACE;

namespace detail {

using namespace kernels::detail;

/// Calls body(offsets, count, strides) for every run. `flatten` inlines all that the body calls; without it the inner
/// loops of the longer functions would stay scalar.
template <size_t N, class Body>
void run_with(const Sizes& sizes, const std::array<Strides, N>& strides, const Body& body) {
  const auto call =
      [](const void* b, const Places<N>& offsets, int64_t count, const Places<N>& s) __attribute__((flatten)) {
    (*static_cast<const Body*>(b))(offsets, count, s);
  };
  run<N>(sizes, strides, call, &body);
}

/// y = f(numbers…)
template <class S, class F, class... Numbers>
HWY_INLINE void map_dense(F f, int64_t count, S* y, Numbers... numbers) {
  for_each_lanes<compute_t<S>>(count,
                               [&](int64_t i, auto part) HWY_ATTR { store(y + i, f(numbers.get(i, part)...), part); });
}
/// As map_dense(), not inlined: a second copy of f's vector code is not worth its size.
template <class S, class F, class... Numbers>
[[gnu::flatten]] HWY_NOINLINE void map_piece(F f, int64_t count, S* y, Numbers... numbers) {
  map_dense(f, count, y, numbers...);
}

/// Elements that pass through a buffer at a time.
inline constexpr int64_t kPiece = 256;

/// A piece of an input in dense memory: the input itself, or a copy of it.
template <class S>
class DenseInput {
 public:
  Varying<S> get(const S* from, int64_t stride, int64_t count) {
    if (stride == 1) {
      return {from};
    }
    for (int64_t i = 0; i < count; ++i) {
      copy_[i] = from[i * stride];
    }
    return {copy_};
  }

 private:
  alignas(64) S copy_[kPiece];
};

/// Dense memory for a piece of the output: the output itself, or a buffer that put() copies to it.
template <class S>
class DenseOutput {
 public:
  S* get(S* to, int64_t stride) { return stride == 1 ? to : buffer_; }
  void put(S* to, int64_t stride, int64_t count) const {
    for (int64_t i = 0; stride != 1 && i < count; ++i) {
      to[i * stride] = buffer_[i];
    }
  }

 private:
  alignas(64) S buffer_[kPiece];
};

}  // namespace detail

/// y = f(x)
template <class S, class F>
void map(const Sizes& sizes, const Operand& y, const Operand& x, F f) {
  using Places = detail::Places<2>;
  const auto body = [&](const Places& offsets, int64_t count, const Places& strides) {
    S* out = static_cast<S*>(y.data) + offsets[0];
    const S* in = static_cast<const S*>(x.data) + offsets[1];
    if (strides[0] == 1 && strides[1] == 1) {
      return detail::map_dense(f, count, out, Varying<S>{in});
    }
    detail::DenseOutput<S> dense_out;
    detail::DenseInput<S> dense_in;
    for (int64_t i = 0; i < count; i += detail::kPiece) {
      const int64_t some = std::min(detail::kPiece, count - i);
      S* to = out + i * strides[0];
      detail::map_piece(f, some, dense_out.get(to, strides[0]), dense_in.get(in + i * strides[1], strides[1], some));
      dense_out.put(to, strides[0], some);
    }
  };
  detail::run_with<2>(sizes, {y.strides, x.strides}, body);
}

/// y = f(a, b)
template <class S, class F>
void map(const Sizes& sizes, const Operand& y, const Operand& a, const Operand& b, F f) {
  using T = compute_t<S>;
  using Places = detail::Places<3>;
  const auto body = [&](const Places& offsets, int64_t count, const Places& strides) {
    S* out = static_cast<S*>(y.data) + offsets[0];
    const S* left = static_cast<const S*>(a.data) + offsets[1];
    const S* right = static_cast<const S*>(b.data) + offsets[2];
    if (strides[0] == 1 && strides[1] == 1 && strides[2] == 1) {
      return detail::map_dense(f, count, out, Varying<S>{left}, Varying<S>{right});
    }
    if (strides[0] == 1 && strides[1] == 1 && strides[2] == 0) {
      return detail::map_dense(f, count, out, Varying<S>{left}, Same<T>{static_cast<T>(*right)});
    }
    if (strides[0] == 1 && strides[1] == 0 && strides[2] == 1) {
      return detail::map_dense(f, count, out, Same<T>{static_cast<T>(*left)}, Varying<S>{right});
    }
    detail::DenseOutput<S> dense_out;
    detail::DenseInput<S> dense_left;
    detail::DenseInput<S> dense_right;
    for (int64_t i = 0; i < count; i += detail::kPiece) {
      const int64_t some = std::min(detail::kPiece, count - i);
      S* to = out + i * strides[0];
      detail::map_piece(f, some, dense_out.get(to, strides[0]), dense_left.get(left + i * strides[1], strides[1], some),
                        dense_right.get(right + i * strides[2], strides[2], some));
      dense_out.put(to, strides[0], some);
    }
  };
  detail::run_with<3>(sizes, {y.strides, a.strides, b.strides}, body);
}

/// y = f(x), number by number.
template <class Y, class X, class F>
void map_numbers(const Sizes& sizes, const Operand& y, const Operand& x, F f) {
  using V = compute_t<X>;
  using Places = detail::Places<2>;
  const auto body = [&](const Places& offsets, int64_t count, const Places& strides) {
    Y* out = static_cast<Y*>(y.data) + offsets[0];
    const X* in = static_cast<const X*>(x.data) + offsets[1];
    if (strides[0] == 1 && strides[1] == 1) {
#pragma omp simd
      for (int64_t i = 0; i < count; ++i) {
        assign(out[i], f(static_cast<V>(in[i])));
      }
    } else {
      for (int64_t i = 0; i < count; ++i) {
        assign(out[i * strides[0]], f(static_cast<V>(in[i * strides[1]])));
      }
    }
  };
  detail::run_with<2>(sizes, {y.strides, x.strides}, body);
}

/// y = f(a, b), number by number.
template <class Y, class X, class F>
void map_numbers(const Sizes& sizes, const Operand& y, const Operand& a, const Operand& b, F f) {
  using V = compute_t<X>;
  using Places = detail::Places<3>;
  const auto body = [&](const Places& offsets, int64_t count, const Places& strides) {
    Y* out = static_cast<Y*>(y.data) + offsets[0];
    const X* left = static_cast<const X*>(a.data) + offsets[1];
    const X* right = static_cast<const X*>(b.data) + offsets[2];
    if (strides[0] == 1 && strides[1] == 1 && strides[2] == 1) {
#pragma omp simd
      for (int64_t i = 0; i < count; ++i) {
        assign(out[i], f(static_cast<V>(left[i]), static_cast<V>(right[i])));
      }
    } else if (strides[0] == 1 && strides[1] == 1 && strides[2] == 0) {
      const auto value = static_cast<V>(*right);
#pragma omp simd
      for (int64_t i = 0; i < count; ++i) {
        assign(out[i], f(static_cast<V>(left[i]), value));
      }
    } else if (strides[0] == 1 && strides[1] == 0 && strides[2] == 1) {
      const auto value = static_cast<V>(*left);
#pragma omp simd
      for (int64_t i = 0; i < count; ++i) {
        assign(out[i], f(value, static_cast<V>(right[i])));
      }
    } else {
      for (int64_t i = 0; i < count; ++i) {
        assign(out[i * strides[0]], f(static_cast<V>(left[i * strides[1]]), static_cast<V>(right[i * strides[2]])));
      }
    }
  };
  detail::run_with<3>(sizes, {y.strides, a.strides, b.strides}, body);
}

/// y = condition ? a : b. Only bits move.
template <class T>
void choose(const Sizes& sizes, const Operand& y, const Operand& condition, const Operand& a, const Operand& b) {
  using Places = detail::Places<4>;
  const auto body = [&](const Places& offsets, int64_t count, const Places& strides) {
    T* out = static_cast<T*>(y.data) + offsets[0];
    // Read as bytes: GCC 12 makes no vector code of a selection by bool.
    const auto* chosen = static_cast<const uint8_t*>(condition.data) + offsets[1];
    const T* left = static_cast<const T*>(a.data) + offsets[2];
    const T* right = static_cast<const T*>(b.data) + offsets[3];
    if (strides[0] == 1 && strides[1] == 1 && strides[2] == 1 && strides[3] == 1) {
#pragma omp simd
      for (int64_t i = 0; i < count; ++i) {
        const T one = left[i];
        const T other = right[i];
        out[i] = chosen[i] != 0 ? one : other;
      }
    } else {
      for (int64_t i = 0; i < count; ++i) {
        out[i * strides[0]] = chosen[i * strides[1]] != 0 ? left[i * strides[2]] : right[i * strides[3]];
      }
    }
  };
  detail::run_with<4>(sizes, {y.strides, condition.strides, a.strides, b.strides}, body);
}

}  // namespace norma::kernels::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
