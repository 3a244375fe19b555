#include "ops/norm/cpu/walks.h"

#include "core/dtype.h"
#include "core/half.h"
#include "core/parallel.h"
#include "ops/norm/statistics.h"

#include <algorithm>
#include <cmath>

// The table of the norms' CPU kernels, and those of them that are no walks.

namespace norma::kernels {

namespace cpu {

namespace {

// --- one bit per element, which tells whether relu has let it pass
// -----------------------------------------------------

/// Calls f(byte, first element, how many) for the bytes of `count` bits, on all threads.
template <class F>
void for_each_byte(int64_t count, F&& f) {
  parallel_for(0, ceil_div(count, 8), kPointwiseGrain / 8, [&](int64_t begin, int64_t end) {
    for (int64_t byte = begin; byte < end; ++byte) {
      f(byte, 8 * byte, std::min<int64_t>(8, count - 8 * byte));
    }
  });
}

void positive_bits(DType dtype, int64_t count, const void* y, uint8_t* bits) {
  dispatch_any_floating("normalize", dtype, [&](auto s) {
    using S = decltype(s);
    const S* from = static_cast<const S*>(y);
    for_each_byte(count, [&](int64_t byte, int64_t first, int64_t elements) {
      unsigned packed = 0;
      for (int64_t i = 0; i < elements; ++i) {
        packed |= (static_cast<compute_t<S>>(from[first + i]) <= 0 ? 0U : 1U) << i;
      }
      bits[byte] = static_cast<uint8_t>(packed);
    });
  });
}

void mask_by_bits(DType dtype, int64_t count, const uint8_t* bits, const void* dy, void* dz) {
  dispatch_any_floating("normalize", dtype, [&](auto s) {
    using S = decltype(s);
    const S* from = static_cast<const S*>(dy);
    S* to = static_cast<S*>(dz);
    for_each_byte(count, [&](int64_t byte, int64_t first, int64_t elements) {
      const unsigned packed = bits[byte];
      for (int64_t i = 0; i < elements; ++i) {
        to[first + i] = ((packed >> i) & 1U) != 0 ? from[first + i] : S{};
      }
    });
  });
}

// --- one number per channel, for batch norms: they are few, so the loops are plain
// -------------------------------------

/// Calls f(T{}) with the dtype of the computation for tensors of `dtype`.
template <class F>
void dispatch_compute(DType dtype, F&& f) {
  dtype == DType::float64 ? f(double{}) : f(float{});
}

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

// --- walks
// -------------------------------------------------------------------------------------------------------------

bool can_write_bits(const NormProblem& problem) {
  // Threads must not share a byte, so every place where a loop begins is a multiple of eight elements.
  const NormShape& shape = problem.shape;
  switch (problem.walk) {
    case Walk::rows: return shape.reduce_inner % 8 == 0;
    case Walk::runs: return (shape.set_is_one_run() ? problem.affine.segment : shape.reduce_inner) % 8 == 0;
    case Walk::columns: return shape.kept * shape.reduce_inner % 8 == 0;
  }
  return false;
}

/// Brings the running statistics up to date with the statistics that `arrays` has now.
void update_running_sets(DType dtype, const NormProblem& problem, const NormPointers& arrays) {
  dispatch_any_floating("normalize", dtype, [&](auto s) {
    const ForwardArrays<decltype(s)> typed(problem, arrays);
    for (int64_t set = 0; set < problem.shape.sets(); ++set) {
      update_running_set(typed.running, set, typed.mean[set], typed.var[set]);
    }
  });
}

void compute_forward(DType dtype, const NormProblem& wanted, const NormPointers& arrays) {
  NormProblem problem = wanted;
  if (is_textbook(problem)) {
    dispatch_any_floating("normalize", dtype,
                          [&](auto s) { textbook_statistics(problem, ForwardArrays<decltype(s)>(problem, arrays)); });
    problem.fixed_stats = true;
  }
  if (problem.fixed_stats && arrays.y == nullptr) {
    return;
  }
  switch (problem.walk) {
    case Walk::rows: return rows_forward(dtype, problem, arrays);
    case Walk::runs: return runs_forward(dtype, problem, arrays);
    case Walk::columns: return columns_forward(dtype, problem, arrays);
  }
}

void forward(DType dtype, const NormProblem& problem, const NormPointers& arrays) {
  NormPointers without_running = arrays;
  without_running.running = {};
  compute_forward(dtype, problem, without_running);
  if (arrays.running.mean != nullptr) {
    update_running_sets(dtype, problem, arrays);
  }
}

void backward(DType dtype, const NormProblem& problem, const NormPointers& arrays) {
  switch (problem.walk) {
    case Walk::rows: return rows_backward(dtype, problem, arrays);
    case Walk::runs: return runs_backward(dtype, problem, arrays);
    case Walk::columns: return columns_backward(dtype, problem, arrays);
  }
}

}  // namespace

}  // namespace cpu

constinit const NormKernels norm_cpu{.forward = cpu::forward,
                                     .backward = cpu::backward,
                                     .can_write_bits = cpu::can_write_bits,
                                     .positive_bits = cpu::positive_bits,
                                     .mask_by_bits = cpu::mask_by_bits,
                                     .rstd = cpu::rstd_of,
                                     .power_of_two = cpu::power_of_two,
                                     .update_running = cpu::update_running,
                                     .renorm = cpu::renorm};

}  // namespace norma::kernels
