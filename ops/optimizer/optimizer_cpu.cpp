#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/optimizer/optimizer_cpu.cpp"
#include "core/simd/foreach_target.h"

#include "core/parallel.h"
#include "core/simd/call.h"
#include "ops/optimizer/kernels.h"

#include <algorithm>
#include <cmath>
#include <vector>

HWY_BEFORE_NAMESPACE();
namespace norma::kernels::HWY_NAMESPACE {
namespace {

void sgd(DType dtype, int64_t count, const SgdStep& step, void* parameter, const void* gradient, void* velocity) {
  dispatch_floating("sgd", dtype, [&]<class T>(T) {
    T* p = static_cast<T*>(parameter);
    const T* g = static_cast<const T*>(gradient);
    T* v = static_cast<T*>(velocity);
    const auto rate = static_cast<T>(step.rate);
    const auto decay = static_cast<T>(step.weight_decay);
    const auto momentum = static_cast<T>(step.momentum);
    const auto share = static_cast<T>(step.share);
    const auto own = static_cast<T>(step.own);
    const auto along = static_cast<T>(step.along);
    parallel_for(0, count, kPointwiseGrain, [&](int64_t begin, int64_t end) {
      if (v == nullptr) {
#pragma omp simd
        for (int64_t i = begin; i < end; ++i) {
          p[i] -= rate * (g[i] + decay * p[i]);
        }
        return;
      }
#pragma omp simd
      for (int64_t i = begin; i < end; ++i) {
        const T slope = g[i] + decay * p[i];
        v[i] = momentum * v[i] + share * slope;
        p[i] -= rate * (own * slope + along * v[i]);
      }
    });
  });
}

void adamw(DType dtype, int64_t count, const AdamWStep& step, void* parameter, const void* gradient, void* average,
           void* square_average) {
  dispatch_floating("adamw", dtype, [&]<class T>(T) {
    T* p = static_cast<T*>(parameter);
    const T* g = static_cast<const T*>(gradient);
    T* m = static_cast<T*>(average);
    T* v = static_cast<T*>(square_average);
    const auto shrink = static_cast<T>(step.shrink);
    const auto beta1 = static_cast<T>(step.beta1);
    const auto rest1 = static_cast<T>(1 - step.beta1);
    const auto beta2 = static_cast<T>(step.beta2);
    const auto rest2 = static_cast<T>(1 - step.beta2);
    const auto step_size = static_cast<T>(step.step_size);
    const auto scale = static_cast<T>(step.scale);
    const auto eps = static_cast<T>(step.eps);
    parallel_for(0, count, kPointwiseGrain, [&](int64_t begin, int64_t end) {
#pragma omp simd
      for (int64_t i = begin; i < end; ++i) {
        m[i] = beta1 * m[i] + rest1 * g[i];
        v[i] = beta2 * v[i] + rest2 * g[i] * g[i];
        p[i] = shrink * p[i] - step_size * m[i] / (std::sqrt(v[i]) * scale + eps);
      }
    });
  });
}

/// Elements of one partial sum: fixed, so that a sum has the same bits for any number of threads.
constexpr int64_t kBlock = 4096;

void sum_of_squares(DType dtype, int64_t count, const void* x, double* sum) {
  std::vector<double> partial(static_cast<size_t>((count + kBlock - 1) / kBlock));
  dispatch_any_floating("sum_of_squares", dtype, [&]<class T>(T) {
    const T* values = static_cast<const T*>(x);
    parallel_for(0, static_cast<int64_t>(partial.size()), kPointwiseGrain / kBlock, [&](int64_t begin, int64_t end) {
      for (int64_t block = begin; block < end; ++block) {
        const int64_t last = std::min(count, (block + 1) * kBlock);
        double block_sum = 0;
#pragma omp simd reduction(+ : block_sum)
        for (int64_t i = block * kBlock; i < last; ++i) {
          const auto value = static_cast<double>(static_cast<compute_t<T>>(values[i]));
          block_sum += value * value;
        }
        partial[static_cast<size_t>(block)] = block_sum;
      }
    });
  });
  double total = 0;
  for (const double block_sum : partial) {
    total += block_sum;
  }
  *sum = total;
}

/// Writes f(value) in the place of every element.
template <class F>
void change_elements(DType dtype, int64_t count, void* x, F&& f) {
  dispatch_any_floating("optimizer", dtype, [&]<class T>(T) {
    T* values = static_cast<T*>(x);
    parallel_for(0, count, kPointwiseGrain, [&](int64_t begin, int64_t end) {
#pragma omp simd
      for (int64_t i = begin; i < end; ++i) {
        assign(values[i], f(static_cast<compute_t<T>>(values[i])));
      }
    });
  });
}

void scale(DType dtype, int64_t count, double factor, void* x) {
  change_elements(dtype, count, x,
                  [factor]<class T>(T value) { return static_cast<T>(value * static_cast<T>(factor)); });
}

void cut_off(DType dtype, int64_t count, double limit, void* x) {
  change_elements(dtype, count, x, [limit]<class T>(T value) {
    const auto bound = static_cast<T>(limit);
    return value < -bound ? -bound : value > bound ? bound : value;
  });
}

}  // namespace

}  // namespace norma::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace norma::kernels {

HWY_EXPORT(sgd);
HWY_EXPORT(adamw);
HWY_EXPORT(sum_of_squares);
HWY_EXPORT(scale);
HWY_EXPORT(cut_off);

constinit const OptimizerKernels optimizer_cpu{.sgd = NORMA_SIMD_CALL(sgd),
                                               .adamw = NORMA_SIMD_CALL(adamw),
                                               .sum_of_squares = NORMA_SIMD_CALL(sum_of_squares),
                                               .scale = NORMA_SIMD_CALL(scale),
                                               .cut_off = NORMA_SIMD_CALL(cut_off)};

}  // namespace norma::kernels
#endif
