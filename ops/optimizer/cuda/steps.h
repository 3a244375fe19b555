#pragma once

#include "ops/optimizer/cuda/items.h"
#include "ops/optimizer/kernels.h"

#include <cmath>

// The items that kernels change. The steps are PyTorch's, operation by operation: products are rounded before they are
// added.

namespace norma::kernels::NORMA_BACKEND {

/// SgdItem in T.
template <class T>
struct Sgd {
  int64_t count;
  T* p;
  const T* gradient;
  T* v;
  T rate, decay, momentum, share, own, along;

  explicit Sgd(const SgdItem& item)
      : count(item.count),
        p(static_cast<T*>(item.p)),
        gradient(static_cast<const T*>(item.gradient)),
        v(static_cast<T*>(item.v)),
        rate(static_cast<T>(item.step.rate)),
        decay(static_cast<T>(item.step.weight_decay)),
        momentum(static_cast<T>(item.step.momentum)),
        share(static_cast<T>(item.step.share)),
        own(static_cast<T>(item.step.own)),
        along(static_cast<T>(item.step.along)) {}

  [[nodiscard]] bool is_aligned() const { return are_aligned(p, gradient, v); }

  template <int n>
  NORMA_DEVICE void change(int64_t i) const {
    T before[n];
    T slope[n];
    T speed[n] = {};
    load<T, n>(p + i, before);
    load<T, n>(gradient + i, slope);
    if (v != nullptr) {
      load<T, n>(v + i, speed);
    }
    NORMA_UNROLL
    for (int j = 0; j < n; ++j) {
      slope[j] = slope[j] + decay * before[j];
      speed[j] = momentum * speed[j] + share * slope[j];
      before[j] -= rate * (v == nullptr ? slope[j] : own * slope[j] + along * speed[j]);
    }
    if (v != nullptr) {
      store<T, n>(v + i, speed);
    }
    store<T, n>(p + i, before);
  }
};

/// AdamWItem in T.
template <class T>
struct AdamW {
  int64_t count;
  T* p;
  const T* gradient;
  T* m;
  T* v;
  T beta1, rest1, beta2, rest2, eps, shrink, step_size, scale;

  explicit AdamW(const AdamWItem& item)
      : count(item.count),
        p(static_cast<T*>(item.p)),
        gradient(static_cast<const T*>(item.gradient)),
        m(static_cast<T*>(item.m)),
        v(static_cast<T*>(item.v)),
        beta1(static_cast<T>(item.step.beta1)),
        rest1(static_cast<T>(1 - item.step.beta1)),
        beta2(static_cast<T>(item.step.beta2)),
        rest2(static_cast<T>(1 - item.step.beta2)),
        eps(static_cast<T>(item.step.eps)),
        shrink(static_cast<T>(item.step.shrink)),
        step_size(static_cast<T>(item.step.step_size)),
        scale(static_cast<T>(item.step.scale)) {}

  [[nodiscard]] bool is_aligned() const { return are_aligned(p, gradient, m, v); }

  template <int n>
  NORMA_DEVICE void change(int64_t i) const {
    T parameter[n];
    T slope[n];
    T mean[n];
    T square[n];
    load<T, n>(p + i, parameter);
    load<T, n>(gradient + i, slope);
    load<T, n>(m + i, mean);
    load<T, n>(v + i, square);
    NORMA_UNROLL
    for (int j = 0; j < n; ++j) {
      mean[j] = beta1 * mean[j] + rest1 * slope[j];
      square[j] = beta2 * square[j] + rest2 * slope[j] * slope[j];
      parameter[j] = shrink * parameter[j] - step_size * mean[j] / (std::sqrt(square[j]) * scale + eps);
    }
    store<T, n>(m + i, mean);
    store<T, n>(v + i, square);
    store<T, n>(p + i, parameter);
  }
};

/// x = *factor · x
template <class S>
struct Scaled {
  int64_t count;
  S* x;
  const double* factor;

  [[nodiscard]] bool is_aligned() const { return are_aligned(x); }

  template <int n>
  NORMA_DEVICE void change(int64_t i) const {
    if (*factor == 1) {
      return;
    }
    const auto by = static_cast<compute_t<S>>(*factor);
    compute_t<S> numbers[n];
    load<S, n>(x + i, numbers);
    NORMA_UNROLL
    for (int j = 0; j < n; ++j) {
      numbers[j] = by * numbers[j];
    }
    store<S, n>(x + i, numbers);
  }
};

/// x cut off at ±limit; NaN stays.
template <class S>
struct CutOff {
  int64_t count;
  S* x;
  compute_t<S> limit;

  [[nodiscard]] bool is_aligned() const { return are_aligned(x); }

  template <int n>
  NORMA_DEVICE void change(int64_t i) const {
    compute_t<S> numbers[n];
    load<S, n>(x + i, numbers);
    NORMA_UNROLL
    for (int j = 0; j < n; ++j) {
      numbers[j] = numbers[j] < -limit ? -limit : numbers[j] > limit ? limit : numbers[j];
    }
    store<S, n>(x + i, numbers);
  }
};

inline void sgd(DType dtype, std::span<const SgdItem> items) {
  dispatch_floating("sgd", dtype, [&](auto zero) {
    using T = decltype(zero);
    change_all<kVectorOf<T>>(std::vector<Sgd<T>>(items.begin(), items.end()));
  });
}

inline void adamw(DType dtype, std::span<const AdamWItem> items) {
  dispatch_floating("adamw", dtype, [&](auto zero) {
    using T = decltype(zero);
    change_all<kVectorOf<T>>(std::vector<AdamW<T>>(items.begin(), items.end()));
  });
}

inline void scale(DType dtype, const double* factor, std::span<const ChangedItem> items) {
  dispatch_any_floating("scale", dtype, [&](auto zero) {
    using S = decltype(zero);
    std::vector<Scaled<S>> scaled;
    for (const ChangedItem& item : items) {
      scaled.push_back({.count = item.count, .x = static_cast<S*>(item.x), .factor = factor});
    }
    change_all<kVectorOf<S>>(scaled);
  });
}

inline void cut_off(DType dtype, double limit, std::span<const ChangedItem> items) {
  dispatch_any_floating("cut_off", dtype, [&](auto zero) {
    using S = decltype(zero);
    std::vector<CutOff<S>> cut;
    for (const ChangedItem& item : items) {
      cut.push_back({.count = item.count, .x = static_cast<S*>(item.x), .limit = static_cast<compute_t<S>>(limit)});
    }
    change_all<kVectorOf<S>>(cut);
  });
}

}  // namespace norma::kernels::NORMA_BACKEND
