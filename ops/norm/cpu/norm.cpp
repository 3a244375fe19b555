#include "ops/norm/cpu/loops.h"

#include "core/dtype.h"
#include "core/half.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <vector>

// The table of the norms' CPU kernels, and those of them that are no walks.

namespace norma::kernels {

namespace cpu {

namespace {

// --- one bit per element, which tells whether relu has let it pass --------------------------------------------------

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

// --- one number per channel, for batch norms: they are few, so the loops are plain ----------------------------------

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

// --- statistics of single sets, in plain loops ----------------------------------------------------------------------

/// Goes over a set whose elements follow each other, in `parts` parts side by side: see formulas.h.
template <class T, size_t parts>
class SetPass {
 public:
  SetPass(const T* numbers, int64_t count) : numbers_(numbers), count_(static_cast<size_t>(count)) {}

  [[nodiscard]] T first() const { return numbers_[0]; }
  template <class State, class Add>
  [[nodiscard]] std::array<State, parts> each(Add add) const {
    std::array<State, parts> states{};
    for (size_t row = 0; row < count_; row += parts) {
      const size_t active = std::min(parts, count_ - row);
      for (size_t part = 0; part < active; ++part) {
        add(states[part], numbers_[row + part]);
      }
    }
    return states;
  }
  template <class State, class Term>
  [[nodiscard]] double sum(const std::array<State, parts>& states, Term term) const {
    double total = 0;
    for (const State& state : states) {
      total += term(state);
    }
    return total;
  }
  template <class State, class Term>
  [[nodiscard]] double largest(const std::array<State, parts>& states, Term term) const {
    double most = term(states[0]);
    for (const State& state : states) {
      most = std::max(most, term(state));
    }
    return most;
  }
  void sum_in_two_parts(const std::array<CompensatedSum<T>, parts>& states, double& high, double& low) const {
    CompensatedSum<double> total;
    for (const CompensatedSum<T>& state : states) {
      add_compensated(total, static_cast<double>(state.sum));
      add_compensated(total, static_cast<double>(state.lost));
    }
    high = total.sum;
    low = total.lost;
  }

 private:
  const T* numbers_;
  size_t count_;
};

/// Copies the elements of `sets` neighbouring sets of one outer index to `to`, a set every `stride` numbers.
template <class S, class T = compute_t<S>>
void gather_sets(const NormShape& shape, const S* x, int64_t first_set, int64_t sets, T* to, int64_t stride) {
  const int64_t outer = first_set / shape.kept;
  for (int64_t a = 0; a < shape.reduce_outer; ++a) {
    const int64_t row = (outer * shape.reduce_outer + a) * shape.kept + first_set % shape.kept;
    const S* from = x + row * shape.reduce_inner;
    for (int64_t set = 0; set < sets; ++set, from += shape.reduce_inner) {
      std::transform(from, from + shape.reduce_inner, to + set * stride + a * shape.reduce_inner,
                     [](S number) { return static_cast<T>(number); });
    }
  }
}

template <class S>
void textbook_statistics(const NormProblem& problem, const ForwardArrays<S>& arrays) {
  using T = compute_t<S>;
  constexpr size_t kParts = 64;
  const NormShape& shape = problem.shape;
  // Some lines of the cache have elements of so many sets, where a set has no long runs of its own. Sets that began a
  // power of two apart would share few lines.
  const int64_t in_lines = std::clamp<int64_t>((int64_t{1} << 22) / shape.set_size(), 16, 64);
  const int64_t together = shape.reduce_inner >= 16 ? 1 : std::min(shape.kept, in_lines);
  const int64_t stride = shape.set_size() + 16;
  const int64_t blocks = ceil_div(shape.kept, together);
  const int64_t grain = std::max<int64_t>(1, kPointwiseGrain / (shape.set_size() * together));
  parallel_for(0, shape.outer * blocks, grain, [&](int64_t begin, int64_t end) {
    std::vector<T> numbers(static_cast<size_t>(together * stride));
    for (int64_t task = begin; task < end; ++task) {
      const int64_t kept = task % blocks * together;
      const int64_t first_set = task / blocks * shape.kept + kept;
      const int64_t sets = std::min(together, shape.kept - kept);
      gather_sets(shape, arrays.x, first_set, sets, numbers.data(), stride);
      for (int64_t set = 0; set < sets; ++set) {
        const SetPass<T, kParts> pass(numbers.data() + set * stride, shape.set_size());
        store_statistics(problem, textbook_moments<T>(problem, pass), arrays, first_set + set);
      }
    }
  });
}

// --- walks ----------------------------------------------------------------------------------------------------------

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

WalkKernels kernels_of(Walk walk) {
  return walk == Walk::rows ? rows_walk() : walk == Walk::runs ? runs_walk() : columns_walk();
}

void forward(DType dtype, const NormProblem& wanted, const NormPointers& operands) {
  NormProblem problem = wanted;
  dispatch_any_floating("normalize", dtype, [&](auto s) {
    const ForwardArrays<decltype(s)> arrays(problem, operands);
    if (problem.by_textbook()) {
      textbook_statistics(problem, arrays);
      problem.fixed_stats = true;
    }
    if (!problem.fixed_stats || operands.y != nullptr) {
      kernels_of(problem.walk).forward(dtype, problem, operands);
    }
    for (int64_t set = 0; arrays.running.mean != nullptr && set < problem.shape.sets(); ++set) {
      update_running_set(arrays.running, set, arrays.mean[set], arrays.var[set]);
    }
  });
}

void backward(DType dtype, const NormProblem& problem, const NormPointers& operands) {
  kernels_of(problem.walk).backward(dtype, problem, operands);
}

}  // namespace

template <class S>
void store_scaled_statistics(const NormProblem& problem, const ForwardArrays<S>& arrays, int64_t set) {
  using T = compute_t<S>;
  const int64_t count = problem.shape.set_size();
  std::vector<T> numbers(static_cast<size_t>(count));
  gather_sets(problem.shape, arrays.x, set, 1, numbers.data(), count);
  const SetStatistics<T> plain{arrays.mean[set], arrays.mean_low[set], arrays.rstd[set],
                               arrays.var == nullptr ? T(0) : arrays.var[set], true};
  store_set(arrays, set, scaled_statistics(problem, SetPass<T, 1>(numbers.data(), count), plain));
}

template void store_scaled_statistics(const NormProblem&, const ForwardArrays<float>&, int64_t);
template void store_scaled_statistics(const NormProblem&, const ForwardArrays<double>&, int64_t);
template void store_scaled_statistics(const NormProblem&, const ForwardArrays<bfloat16>&, int64_t);
template void store_scaled_statistics(const NormProblem&, const ForwardArrays<float16>&, int64_t);

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
