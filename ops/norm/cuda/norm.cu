#include "core/cuda/number.h"
#include "ops/norm/cuda/any.h"
#include "ops/norm/cuda/pixels.h"
#include "ops/norm/statistics.h"

// The table of the norms' kernels, and those of them that are no walks: bits of relu, and batch norms' one number per
// channel.

namespace norma::kernels::NORMA_BACKEND {

inline constexpr int kSimpleThreads = 256;

template <class S>
NORMA_KERNEL void find_positive_bits(int64_t count, const S* y, uint8_t* bits) {
  for (int64_t first = 8 * global_thread(); first < count; first += 8 * global_threads()) {
    unsigned packed = 0;
    for (int64_t i = 0; i < 8 && first + i < count; ++i) {
      packed |= (to_number(y[first + i]) <= 0 ? 0U : 1U) << i;
    }
    bits[first / 8] = static_cast<uint8_t>(packed);
  }
}

template <class S>
NORMA_KERNEL void keep_where_bits(int64_t count, const uint8_t* bits, const S* dy, S* dz) {
  for (int64_t i = global_thread(); i < count; i += global_threads()) {
    dz[i] = ((bits[i / 8] >> (i % 8)) & 1) != 0 ? dy[i] : S{};
  }
}

template <class T>
NORMA_KERNEL void make_rstd(int64_t count, const double* var, double eps, T* rstd) {
  for (int64_t i = global_thread(); i < count; i += global_threads()) {
    rstd[i] = static_cast<T>(1 / std::sqrt(var[i] + eps));
  }
}

template <class T>
NORMA_KERNEL void make_power_of_two(int64_t count, const T* rstd, T* scale) {
  for (int64_t i = global_thread(); i < count; i += global_threads()) {
    const T value = rstd[i];
    scale[i] = value - value == 0 && value > 0 ? static_cast<T>(std::ldexp(T(1), std::ilogb(value))) : T(1);
  }
}

NORMA_KERNEL void make_running(int64_t count, const double* running, const double* batch, double momentum,
                               double factor, double* result) {
  for (int64_t i = global_thread(); i < count; i += global_threads()) {
    result[i] = running_after(running[i], batch[i], momentum, factor);
  }
}

template <class T>
NORMA_KERNEL void make_renorm(int64_t count, RenormCorrection a, T* r, T* d) {
  for (int64_t i = global_thread(); i < count; i += global_threads()) {
    const double running_s = std::sqrt(a.running_var[i] + a.eps);
    const double ratio = std::sqrt(a.batch_var[i] + a.eps) / running_s;
    const double shift = (a.batch_mean[i] - a.running_mean[i]) / running_s;
    // Written so that NaN stays.
    const double least = 1 / a.r_max;
    r[i] = static_cast<T>(ratio < least ? least : ratio > a.r_max ? a.r_max : ratio);
    d[i] = static_cast<T>(shift < -a.d_max ? -a.d_max : shift > a.d_max ? a.d_max : shift);
  }
}

/// Calls f(T{}) with the dtype of the computation for tensors of `dtype`.
template <class F>
void dispatch_compute(DType dtype, F&& f) {
  dtype == DType::float64 ? f(double{}) : f(float{});
}

/// Launches a kernel that loops over `count`.
template <class... Parameters, class... Arguments>
void launch_loop(int64_t count, void (*kernel)(Parameters...), const Arguments&... arguments) {
  if (count > 0) {
    launch(blocks_for(count, kSimpleThreads), threads_for(count, kSimpleThreads), 0, current_stream(), kernel,
           arguments...);
  }
}

inline void positive_bits(DType dtype, int64_t count, const void* y, uint8_t* bits) {
  dispatch_any_floating("normalize", dtype, [&](auto s) {
    using S = decltype(s);
    launch_loop(ceil_div(count, 8), find_positive_bits<S>, count, static_cast<const S*>(y), bits);
  });
}

inline void mask_by_bits(DType dtype, int64_t count, const uint8_t* bits, const void* dy, void* dz) {
  dispatch_any_floating("normalize", dtype, [&](auto s) {
    using S = decltype(s);
    launch_loop(count, keep_where_bits<S>, count, bits, static_cast<const S*>(dy), static_cast<S*>(dz));
  });
}

inline void rstd_of(DType dtype, int64_t count, const double* var, double eps, void* rstd) {
  dispatch_compute(dtype, [&](auto t) {
    using T = decltype(t);
    launch_loop(count, make_rstd<T>, count, var, eps, static_cast<T*>(rstd));
  });
}

inline void power_of_two(DType dtype, int64_t count, const void* rstd, void* scale) {
  dispatch_compute(dtype, [&](auto t) {
    using T = decltype(t);
    launch_loop(count, make_power_of_two<T>, count, static_cast<const T*>(rstd), static_cast<T*>(scale));
  });
}

inline void update_running(int64_t count, const double* running, const double* batch, double momentum, double factor,
                           double* result) {
  launch_loop(count, make_running, count, running, batch, momentum, factor, result);
}

inline void renorm(DType dtype, int64_t count, const RenormCorrection& arrays) {
  dispatch_compute(dtype, [&](auto t) {
    using T = decltype(t);
    launch_loop(count, make_renorm<T>, count, arrays, static_cast<T*>(arrays.r), static_cast<T*>(arrays.d));
  });
}

void norm_forward(DType dtype, const NormProblem& problem, const NormPointers& arrays) {
  NormProblem rest = problem;
  // Welford, two_pass and compensated take passes of their own; the kernels that follow find the stats fixed.
  const bool textbook = !problem.fixed_stats && !problem.raw_sums() && problem.statistics != Statistics::stable;
  if (textbook) {
    dispatch_any_floating("normalize", dtype, [&](auto s) {
      compute_any_statistics(problem, ForwardArrays<decltype(s)>(problem, arrays));
    });
    rest.fixed_stats = true;
  }
  if ((rest.fixed_stats && arrays.y == nullptr) || rows_forward(dtype, rest, arrays) ||
      pixels_forward(dtype, rest, arrays) || runs_forward(dtype, rest, arrays) ||
      columns_forward(dtype, rest, arrays)) {
    return;
  }
  dispatch_any_floating("normalize", dtype, [&](auto s) {
    const ForwardArrays<decltype(s)> typed(rest, arrays);
    if (!rest.fixed_stats) {
      compute_any_statistics(rest, typed);
    }
    if (arrays.y != nullptr) {
      apply_any(rest, typed);
    }
  });
}

void norm_backward(DType dtype, const NormProblem& problem, const NormPointers& arrays) {
  if (rows_backward(dtype, problem, arrays) || pixels_backward(dtype, problem, arrays) ||
      runs_backward(dtype, problem, arrays) || columns_backward(dtype, problem, arrays)) {
    return;
  }
  dispatch_any_floating("normalize", dtype,
                        [&](auto s) { any_backward(problem, BackwardArrays<decltype(s)>(problem, arrays)); });
}

/// Pixels write no bits: a pass over y that does takes a quarter of the time of the kernels for any case, which could.
bool can_write_bits(const NormProblem& problem) {
  return !are_pixels(problem);
}

}  // namespace norma::kernels::NORMA_BACKEND

namespace norma::kernels {

using namespace NORMA_BACKEND;

constinit const NormKernels NORMA_TABLE(norm){.forward = norm_forward,
                                              .backward = norm_backward,
                                              .can_write_bits = can_write_bits,
                                              .positive_bits = positive_bits,
                                              .mask_by_bits = mask_by_bits,
                                              .rstd = rstd_of,
                                              .power_of_two = power_of_two,
                                              .update_running = update_running,
                                              .renorm = renorm};

}  // namespace norma::kernels
