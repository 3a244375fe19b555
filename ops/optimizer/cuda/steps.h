#pragma once

#include "core/cuda/copies_of_many.h"
#include "ops/optimizer/kernels.h"

#include <cmath>

// The items that kernels change. The steps are PyTorch's, operation by operation: products are rounded before they are
// added.

namespace norma::kernels::NORMA_BACKEND {

/// A SgdItem. Its numbers are in T from read_numbers() on.
template <class T>
struct Sgd {
  int64_t count;
  T* p;
  const T* gradient;
  T* v;
  SgdStep step;
  const SgdStep* changing;
  T rate, decay, momentum, share, own, along;

  explicit Sgd(const SgdItem& item)
      : count(item.count),
        p(static_cast<T*>(item.p)),
        gradient(static_cast<const T*>(item.gradient)),
        v(static_cast<T*>(item.v)),
        step(item.step),
        changing(item.changing) {}

  NORMA_DEVICE void read_numbers() {
    const SgdStep now = changing == nullptr ? step : *changing;
    rate = static_cast<T>(now.rate);
    decay = static_cast<T>(now.weight_decay);
    momentum = static_cast<T>(now.momentum);
    share = static_cast<T>(now.share);
    own = static_cast<T>(now.own);
    along = static_cast<T>(now.along);
  }

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

/// An AdamWItem. Its numbers are in T from read_numbers() on.
template <class T>
struct AdamW {
  int64_t count;
  T* p;
  const T* gradient;
  T* m;
  T* v;
  AdamWStep step;
  const AdamWStep* changing;
  T beta1, rest1, beta2, rest2, eps, shrink, step_size, scale;

  explicit AdamW(const AdamWItem& item)
      : count(item.count),
        p(static_cast<T*>(item.p)),
        gradient(static_cast<const T*>(item.gradient)),
        m(static_cast<T*>(item.m)),
        v(static_cast<T*>(item.v)),
        step(item.step),
        changing(item.changing) {}

  NORMA_DEVICE void read_numbers() {
    const AdamWStep now = changing == nullptr ? step : *changing;
    beta1 = static_cast<T>(now.beta1);
    rest1 = static_cast<T>(1 - now.beta1);
    beta2 = static_cast<T>(now.beta2);
    rest2 = static_cast<T>(1 - now.beta2);
    eps = static_cast<T>(now.eps);
    shrink = static_cast<T>(now.shrink);
    step_size = static_cast<T>(now.step_size);
    scale = static_cast<T>(now.scale);
  }

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

/// A LambItem. Its numbers are in T from read_numbers() on. The direction is found first, and followed once its length
/// is known.
template <class T>
struct LambNumbers {
  int64_t count;
  T* p;
  const T* gradient;
  T* m;
  T* v;
  T* u;
  const double* divisor;
  const double* p_squares;
  const double* u_squares;
  LambStep step;
  const LambStep* changing;
  T beta1, rest1, beta2, rest2, eps, correction1, correction2, decay, rate;

  explicit LambNumbers(const LambItem& item)
      : count(item.count),
        p(static_cast<T*>(item.p)),
        gradient(static_cast<const T*>(item.gradient)),
        m(static_cast<T*>(item.m)),
        v(static_cast<T*>(item.v)),
        u(static_cast<T*>(item.u)),
        divisor(item.divisor),
        p_squares(item.p_squares),
        u_squares(item.u_squares),
        step(item.step),
        changing(item.changing) {}

  NORMA_DEVICE void read_numbers() {
    const LambStep now = changing == nullptr ? step : *changing;
    beta1 = static_cast<T>(now.beta1);
    rest1 = static_cast<T>(1 - now.beta1);
    beta2 = static_cast<T>(now.beta2);
    rest2 = static_cast<T>(1 - now.beta2);
    eps = static_cast<T>(now.eps);
    correction1 = static_cast<T>(now.correction1);
    correction2 = static_cast<T>(now.correction2);
    decay = static_cast<T>(now.weight_decay);
    rate = static_cast<T>(now.rate);
  }

  [[nodiscard]] bool is_aligned() const { return are_aligned(p, gradient, m, v, u); }
};

template <class T>
struct LambDirection : LambNumbers<T> {
  using LambNumbers<T>::LambNumbers;

  template <int n>
  NORMA_DEVICE void change(int64_t i) const {
    const T by = this->divisor == nullptr ? T(1) : static_cast<T>(*this->divisor);
    T parameter[n];
    T slope[n];
    T mean[n];
    T square[n];
    load<T, n>(this->p + i, parameter);
    load<T, n>(this->gradient + i, slope);
    load<T, n>(this->m + i, mean);
    load<T, n>(this->v + i, square);
    NORMA_UNROLL
    for (int j = 0; j < n; ++j) {
      slope[j] = slope[j] / by;
      mean[j] = this->beta1 * mean[j] + this->rest1 * slope[j];
      square[j] = this->beta2 * square[j] + slope[j] * slope[j] * this->rest2;
      const T spread = std::sqrt(square[j]) / this->correction2 + this->eps;
      slope[j] = mean[j] / this->correction1 / spread + this->decay * parameter[j];
    }
    store<T, n>(this->m + i, mean);
    store<T, n>(this->v + i, square);
    store<T, n>(this->u + i, slope);
  }
};

template <class T>
struct LambMove : LambNumbers<T> {
  using LambNumbers<T>::LambNumbers;

  template <int n>
  NORMA_DEVICE void change(int64_t i) const {
    const T weight = static_cast<T>(std::sqrt(*this->p_squares));
    const T length = static_cast<T>(std::sqrt(*this->u_squares));
    const T ratio = this->decay != 0 && weight > 0 && length > 0 ? weight / length : T(1);
    T parameter[n];
    T direction[n];
    load<T, n>(this->p + i, parameter);
    load<T, n>(this->u + i, direction);
    NORMA_UNROLL
    for (int j = 0; j < n; ++j) {
      parameter[j] -= this->rate * (ratio * direction[j]);
    }
    store<T, n>(this->p + i, parameter);
  }
};

/// to = to + *share · (from - to), or `from` where *share is 1: an average that equals the value stays as it is, where
/// (1 - share) · to + share · from would drift by rounded factors.
template <class T>
struct Averaged {
  int64_t count;
  T* to;
  const T* from;
  const double* share;

  [[nodiscard]] bool is_aligned() const { return are_aligned(to, from); }

  template <int n>
  NORMA_DEVICE void change(int64_t i) const {
    T average[n];
    T value[n];
    load<T, n>(to + i, average);
    load<T, n>(from + i, value);
    const auto by = static_cast<T>(*share);
    NORMA_UNROLL
    for (int j = 0; j < n; ++j) {
      average[j] = *share == 1 ? value[j] : average[j] + (value[j] - average[j]) * by;
    }
    store<T, n>(to + i, average);
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

inline void sgd(DType dtype, std::span<const SgdItem> items, const double* guard) {
  dispatch_floating("sgd", dtype, [&](auto zero) {
    using T = decltype(zero);
    change_all<kVectorOf<T>>(std::vector<Sgd<T>>(items.begin(), items.end()), guard);
  });
}

inline void adamw(DType dtype, std::span<const AdamWItem> items, const double* guard) {
  dispatch_floating("adamw", dtype, [&](auto zero) {
    using T = decltype(zero);
    change_all<kVectorOf<T>>(std::vector<AdamW<T>>(items.begin(), items.end()), guard);
  });
}

inline void lamb_direction(DType dtype, std::span<const LambItem> items, const double* guard) {
  dispatch_floating("lamb", dtype, [&](auto zero) {
    using T = decltype(zero);
    change_all<kVectorOf<T>>(std::vector<LambDirection<T>>(items.begin(), items.end()), guard);
  });
}

inline void lamb_move(DType dtype, std::span<const LambItem> items, const double* guard) {
  dispatch_floating("lamb", dtype, [&](auto zero) {
    using T = decltype(zero);
    change_all<kVectorOf<T>>(std::vector<LambMove<T>>(items.begin(), items.end()), guard);
  });
}

inline void average(DType dtype, const double* share, std::span<const CopyItem> items, const double* guard) {
  if (!is_floating(dtype)) {
    switch (size_of(dtype)) {
      case 1: return change_all<kVectorOf<uint8_t>>(moved_items<uint8_t>(items), guard);
      case 4: return change_all<kVectorOf<uint32_t>>(moved_items<uint32_t>(items), guard);
      default: return change_all<kVectorOf<uint64_t>>(moved_items<uint64_t>(items), guard);
    }
  }
  dispatch_floating("average", dtype, [&](auto zero) {
    using T = decltype(zero);
    std::vector<Averaged<T>> list;
    for (const CopyItem& item : items) {
      list.push_back({.count = item.count,
                      .to = static_cast<T*>(item.to),
                      .from = static_cast<const T*>(item.from),
                      .share = share});
    }
    change_all<kVectorOf<T>>(list, guard);
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
