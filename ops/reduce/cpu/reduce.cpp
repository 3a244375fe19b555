#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/reduce/cpu/reduce.cpp"
#include "core/simd/foreach_target.h"

#include "core/simd/call.h"
#include "ops/reduce/cpu/reduction.h"

// The reductions, and the table of the family's CPU kernels.

HWY_BEFORE_NAMESPACE();
namespace norma::kernels::cpu::HWY_NAMESPACE {

namespace {

void sum(const ReduceShape& shape, DType dtype, const void* x, void* y, double scale) {
  dispatch_numeric("sum", dtype, [&]<class T>(T) {
    T* out = static_cast<T*>(y);
    Reduction<Sum<T>, T>(shape, static_cast<const T*>(x), nullptr).run([&](int64_t i, sum_t<T> value) {
      if constexpr (std::is_floating_point_v<compute_t<T>>) {
        assign(out[i], static_cast<compute_t<T>>(value * scale));
      } else {
        out[i] = value;
      }
    });
  });
}

void mean(const ReduceShape& shape, DType dtype, const void* x, double* y, int64_t count) {
  const double scale = 1 / static_cast<double>(count);
  dispatch_floating("var", dtype, [&]<class T>(T) {
    Reduction<Sum<T>, T>(shape, static_cast<const T*>(x), nullptr).run([&](int64_t i, double value) {
      y[i] = value * scale;
    });
  });
}

void squared_differences(const ReduceShape& shape, DType dtype, const void* x, const double* mean, void* y,
                         double scale) {
  dispatch_floating("var", dtype, [&]<class T>(T) {
    T* out = static_cast<T*>(y);
    Reduction<SquaredDifferences<T>, T>(shape, static_cast<const T*>(x), mean).run([&](int64_t i, double value) {
      out[i] = static_cast<T>(value * scale);
    });
  });
}

void product(const ReduceShape& shape, DType dtype, const void* x, void* y) {
  dispatch_numeric("prod", dtype, [&]<class T>(T) {
    T* out = static_cast<T*>(y);
    Reduction<Product<T>, T>(shape, static_cast<const T*>(x), nullptr).run([&](int64_t i, sum_t<T> value) {
      assign(out[i], static_cast<compute_t<T>>(value));
    });
  });
}

void max(const ReduceShape& shape, DType dtype, const void* x, void* y) {
  dispatch_numeric("max", dtype, [&]<class T>(T) {
    T* out = static_cast<T*>(y);
    Reduction<Max<T>, T>(shape, static_cast<const T*>(x), nullptr).run([&](int64_t i, compute_t<T> value) {
      assign(out[i], value);
    });
  });
}

}  // namespace

}  // namespace norma::kernels::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace norma::kernels {

namespace cpu {

HWY_EXPORT(sum);
HWY_EXPORT(mean);
HWY_EXPORT(squared_differences);
HWY_EXPORT(product);
HWY_EXPORT(max);

/// Does ReduceKernels::argmax.
void argmax(const Sizes& sizes, const Strides& x_strides, int64_t length, int64_t stride, bool last, DType dtype,
            const void* x, int64_t* y) {
  dispatch_numeric("argmax", dtype, [&]<class T>(T) {
    const int64_t grain = std::max<int64_t>(kTaskElements / length, 1);
    parallel_for(0, sizes.numel(), grain, [&](int64_t begin, int64_t end) {
      Odometer position(sizes, x_strides, begin);
      for (int64_t output = begin; output < end; ++output) {
        const T* row = static_cast<const T*>(x) + position.offset();
        int64_t best = 0;
        auto largest = static_cast<compute_t<T>>(row[0]);
        for (int64_t i = 1; i < length && (last || largest == largest); ++i) {
          const auto value = static_cast<compute_t<T>>(row[i * stride]);
          const bool is_better = value > largest || (last && value == largest && largest == largest);
          if (is_better || value != value) {
            best = i;
            largest = value;
          }
        }
        y[output] = best;
        position.next();
      }
    });
  });
}

constexpr ReduceKernels kTable{.sum = NORMA_SIMD_CALL(sum),
                               .mean = NORMA_SIMD_CALL(mean),
                               .squared_differences = NORMA_SIMD_CALL(squared_differences),
                               .product = NORMA_SIMD_CALL(product),
                               .max = NORMA_SIMD_CALL(max),
                               .argmax = argmax};

}  // namespace cpu

constinit const ReduceKernels reduce_cpu = cpu::kTable;

}  // namespace norma::kernels
#endif
