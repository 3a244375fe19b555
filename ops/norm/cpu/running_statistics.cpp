#include "core/dtype.h"
#include "ops/norm/cpu/walks.h"
#include "ops/norm/statistics.h"

#include <algorithm>
#include <cmath>

// Batch norms handle one number per channel here. They are few, so the loops are plain.

namespace norma::kernels::cpu {

namespace {

/// Calls f(T{}) with the dtype of the computation for tensors of `dtype`.
template <class F>
void dispatch_compute(DType dtype, F&& f) {
  dtype == DType::float64 ? f(double{}) : f(float{});
}

}  // namespace

void rstd_of(DType dtype, int64_t count, const double* var, double eps, void* rstd) {
  dispatch_compute(dtype, [&](auto t) {
    using T = decltype(t);
    T* to = static_cast<T*>(rstd);
    for (int64_t i = 0; i < count; ++i) {
      to[i] = static_cast<T>(1 / std::sqrt(var[i] + eps));
    }
  });
}

void power_of_two(DType dtype, int64_t count, const void* rstd, void* scale) {
  dispatch_compute(dtype, [&](auto t) {
    using T = decltype(t);
    const T* from = static_cast<const T*>(rstd);
    T* to = static_cast<T*>(scale);
    for (int64_t i = 0; i < count; ++i) {
      to[i] = std::isfinite(from[i]) && from[i] > 0 ? std::ldexp(T(1), std::ilogb(from[i])) : T(1);
    }
  });
}

void update_running(int64_t count, const double* running, const double* batch, double momentum, double factor,
                    double* result) {
  for (int64_t i = 0; i < count; ++i) {
    result[i] = running_after(running[i], batch[i], momentum, factor);
  }
}

void renorm(DType dtype, int64_t count, const RenormCorrection& a) {
  dispatch_compute(dtype, [&](auto t) {
    using T = decltype(t);
    T* r = static_cast<T*>(a.r);
    T* d = static_cast<T*>(a.d);
    for (int64_t i = 0; i < count; ++i) {
      const double running_s = std::sqrt(a.running_var[i] + a.eps);
      const double ratio = std::sqrt(a.batch_var[i] + a.eps) / running_s;
      const double shift = (a.batch_mean[i] - a.running_mean[i]) / running_s;
      r[i] = static_cast<T>(std::clamp(ratio, 1 / a.r_max, a.r_max));
      d[i] = static_cast<T>(std::clamp(shift, -a.d_max, a.d_max));
    }
  });
}

}  // namespace norma::kernels::cpu
