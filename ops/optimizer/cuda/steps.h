#pragma once

#include "ops/optimizer/cuda/elements.h"
#include "ops/optimizer/kernels.h"

#include <cmath>

// The steps are PyTorch's, operation by operation: products are rounded before they are added.

namespace norma::kernels::NORMA_BACKEND {

/// SgdStep in T.
template <class T>
struct SgdNumbers {
  T rate, decay, momentum, share, own, along;

  explicit SgdNumbers(const SgdStep& step)
      : rate(static_cast<T>(step.rate)),
        decay(static_cast<T>(step.weight_decay)),
        momentum(static_cast<T>(step.momentum)),
        share(static_cast<T>(step.share)),
        own(static_cast<T>(step.own)),
        along(static_cast<T>(step.along)) {}
};

template <class T, int width>
NORMA_KERNEL void sgd_elements(int64_t count, SgdNumbers<T> step, T* p, const T* gradient, T* v) {
  for_each_vector<width>(count, [&](int64_t i, auto n) {
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
      slope[j] = slope[j] + step.decay * before[j];
      speed[j] = step.momentum * speed[j] + step.share * slope[j];
      before[j] -= step.rate * (v == nullptr ? slope[j] : step.own * slope[j] + step.along * speed[j]);
    }
    if (v != nullptr) {
      store<T, n>(v + i, speed);
    }
    store<T, n>(p + i, before);
  });
}

/// AdamWStep in T.
template <class T>
struct AdamWNumbers {
  T beta1, rest1, beta2, rest2, eps, shrink, step_size, scale;

  explicit AdamWNumbers(const AdamWStep& step)
      : beta1(static_cast<T>(step.beta1)),
        rest1(static_cast<T>(1 - step.beta1)),
        beta2(static_cast<T>(step.beta2)),
        rest2(static_cast<T>(1 - step.beta2)),
        eps(static_cast<T>(step.eps)),
        shrink(static_cast<T>(step.shrink)),
        step_size(static_cast<T>(step.step_size)),
        scale(static_cast<T>(step.scale)) {}
};

template <class T, int width>
NORMA_KERNEL void adamw_elements(int64_t count, AdamWNumbers<T> step, T* p, const T* gradient, T* m, T* v) {
  for_each_vector<width>(count, [&](int64_t i, auto n) {
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
      mean[j] = step.beta1 * mean[j] + step.rest1 * slope[j];
      square[j] = step.beta2 * square[j] + step.rest2 * slope[j] * slope[j];
      parameter[j] =
          step.shrink * parameter[j] - step.step_size * mean[j] / (std::sqrt(square[j]) * step.scale + step.eps);
    }
    store<T, n>(m + i, mean);
    store<T, n>(v + i, square);
    store<T, n>(p + i, parameter);
  });
}

/// x = *factor · x
template <class S, int width>
NORMA_KERNEL void scale_elements(int64_t count, const double* factor, S* x) {
  if (*factor == 1) {
    return;
  }
  const auto by = static_cast<compute_t<S>>(*factor);
  for_each_vector<width>(count, [&](int64_t i, auto n) {
    compute_t<S> numbers[n];
    load<S, n>(x + i, numbers);
    NORMA_UNROLL
    for (int j = 0; j < n; ++j) {
      numbers[j] = by * numbers[j];
    }
    store<S, n>(x + i, numbers);
  });
}

/// x cut off at ±limit; NaN stays.
template <class S, int width>
NORMA_KERNEL void cut_off_elements(int64_t count, compute_t<S> limit, S* x) {
  for_each_vector<width>(count, [&](int64_t i, auto n) {
    compute_t<S> numbers[n];
    load<S, n>(x + i, numbers);
    NORMA_UNROLL
    for (int j = 0; j < n; ++j) {
      numbers[j] = numbers[j] < -limit ? -limit : numbers[j] > limit ? limit : numbers[j];
    }
    store<S, n>(x + i, numbers);
  });
}

inline void sgd(DType dtype, int64_t count, const SgdStep& step, void* p, const void* gradient, void* v) {
  dispatch_floating("sgd", dtype, [&](auto zero) {
    using T = decltype(zero);
    with_width<T>(count, are_aligned(p, gradient, v), [&](auto width, int64_t blocks, int threads) {
      launch(blocks, threads, 0, current_stream(), sgd_elements<T, width>, count, SgdNumbers<T>(step),
             static_cast<T*>(p), static_cast<const T*>(gradient), static_cast<T*>(v));
    });
  });
}

inline void adamw(DType dtype, int64_t count, const AdamWStep& step, void* p, const void* gradient, void* m, void* v) {
  dispatch_floating("adamw", dtype, [&](auto zero) {
    using T = decltype(zero);
    with_width<T>(count, are_aligned(p, gradient, m, v), [&](auto width, int64_t blocks, int threads) {
      launch(blocks, threads, 0, current_stream(), adamw_elements<T, width>, count, AdamWNumbers<T>(step),
             static_cast<T*>(p), static_cast<const T*>(gradient), static_cast<T*>(m), static_cast<T*>(v));
    });
  });
}

inline void scale(DType dtype, int64_t count, const double* factor, void* x) {
  dispatch_any_floating("scale", dtype, [&](auto zero) {
    using S = decltype(zero);
    with_width<S>(count, are_aligned(x), [&](auto width, int64_t blocks, int threads) {
      launch(blocks, threads, 0, current_stream(), scale_elements<S, width>, count, factor, static_cast<S*>(x));
    });
  });
}

inline void cut_off(DType dtype, int64_t count, double limit, void* x) {
  dispatch_any_floating("cut_off", dtype, [&](auto zero) {
    using S = decltype(zero);
    with_width<S>(count, are_aligned(x), [&](auto width, int64_t blocks, int threads) {
      launch(blocks, threads, 0, current_stream(), cut_off_elements<S, width>, count, static_cast<compute_t<S>>(limit),
             static_cast<S*>(x));
    });
  });
}

}  // namespace norma::kernels::NORMA_BACKEND
