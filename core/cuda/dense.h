#pragma once

#include "core/cuda/number.h"
#include "core/kernels.h"

#include <type_traits>

// Launches over operands that lie side by side, by vectors of 16 bytes where they are aligned.

namespace norma::kernels::NORMA_BACKEND {

/// Elements of a vector for a pair of types: 16 bytes of the narrower one.
template <class A, class B>
inline constexpr int kVectorOfBoth = sizeof(A) < sizeof(B) ? kVectorOf<A> : kVectorOf<B>;

/// to = factor · from, computed in the number type of To; without a factor the converted number itself.
template <class To, class From>
struct Converted {
  int64_t count;
  To* to;
  const From* from;
  const double* factor;

  Converted(const CopyItem& item, const double* by)
      : count(item.count), to(static_cast<To*>(item.to)), from(static_cast<const From*>(item.from)), factor(by) {}

  [[nodiscard]] bool is_aligned() const { return are_aligned(to, from); }

  template <int n>
  NORMA_DEVICE void change(int64_t i) const {
    using T = compute_t<To>;
    compute_t<From> before[n];
    T after[n];
    load<From, n>(from + i, before);
    const T by = factor == nullptr ? T(1) : static_cast<T>(*factor);
    NORMA_UNROLL
    for (int j = 0; j < n; ++j) {
      const T number = static_cast<T>(before[j]);
      after[j] = factor == nullptr ? number : number * by;
    }
    store<To, n>(to + i, after);
  }
};

/// Calls f(To{}, From{}) for the pairs of dtypes that a step of training converts, and returns true; false for others,
/// each of which would cost compile time and code.
template <class F>
bool with_common_pair(DType to, DType from, F&& f) {
  if (!is_floating(to) || !is_floating(from)) {
    return false;
  }
  bool done = false;
  dispatch_any_floating("copy", to, [&]<class To>(To to_zero) {
    dispatch_any_floating("copy", from, [&]<class From>(From from_zero) {
      if constexpr (std::is_same_v<To, From> || (std::is_same_v<To, float> && sizeof(From) == 2) ||
                    (std::is_same_v<From, float> && sizeof(To) == 2)) {
        f(to_zero, from_zero);
        done = true;
      }
    });
  });
  return done;
}

/// out = a + b
template <class S>
struct SumOfTwo {
  int64_t count;
  S* out;
  const S* a;
  const S* b;

  SumOfTwo(int64_t numel, void* to, const void* first, const void* second)
      : count(numel), out(static_cast<S*>(to)), a(static_cast<const S*>(first)), b(static_cast<const S*>(second)) {}
  explicit SumOfTwo(const CopyItem& item) : SumOfTwo(item.count, item.to, item.to, item.from) {}

  [[nodiscard]] bool is_aligned() const { return are_aligned(out, a, b); }

  template <int n>
  NORMA_DEVICE void change(int64_t i) const {
    compute_t<S> sum[n];
    compute_t<S> more[n];
    load<S, n>(a + i, sum);
    load<S, n>(b + i, more);
    NORMA_UNROLL
    for (int j = 0; j < n; ++j) {
      sum[j] = sum[j] + more[j];
    }
    store<S, n>(out + i, sum);
  }
};

inline constexpr int kDenseThreads = 256;

/// Calls item.change<n>(i) as change_items() does, for one item.
template <int width, class Item>
NORMA_KERNEL void change_one(Item item) {
  const int64_t vectors = item.count / width;
  for (int64_t i = global_thread(); i < vectors; i += global_threads()) {
    item.template change<width>(i * width);
  }
  if constexpr (width > 1) {
    if (const int64_t i = vectors * width + global_thread(); i < item.count) {
      item.template change<1>(i);
    }
  }
}

/// Changes one item, by vectors if its arrays begin at whole ones.
template <int width, class Item>
void change(const Item& item) {
  const auto start = [&](int64_t steps, void (*kernel)(Item)) { launch_over(steps, kDenseThreads, kernel, item); };
  item.is_aligned() ? start(ceil_div(item.count, width), change_one<width, Item>)
                    : start(item.count, change_one<1, Item>);
}

}  // namespace norma::kernels::NORMA_BACKEND
