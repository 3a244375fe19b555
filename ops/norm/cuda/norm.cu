#include "core/cuda/number.h"
#include "ops/norm/cuda/loops.h"

#include <algorithm>

// The table of the norms' kernels, and those of them that are no walks: kernels for any case, bits of relu, and batch
// norms' one number per channel.

namespace norma::kernels::NORMA_BACKEND {

// --- kernels for any case -------------------------------------------------------------------------------------------

// They serve every walk and every kind of statistics. Forward: a block for each set, then a loop over all elements.
// Backward: sums over each set, a loop over all elements, sums over the elements of each weight. The walks' kernels are
// faster in the cases that networks are made of.

inline constexpr int kAnyThreads = kLoopThreads;
/// Elements that a thread of the loop over all elements takes together: their bits are one byte.
inline constexpr int kBitsOfByte = 8;

/// A pivot near the mean of a set, from its first elements; the same for all threads of a block.
template <class S, class T = compute_t<S>>
NORMA_DEVICE T pivot_of(const NormShape& shape, const S* x, int64_t set) {
  const SetElements mine(shape, set, lane(), kWarp);
  const T value = mine.ended() ? T(0) : to_number(x[mine.offset()]);
  const T first = shuffle(value, 0);
  const int64_t count = shape.set_size() < kWarp ? shape.set_size() : kWarp;
  const double sum = LaneTeam().sum(mine.ended() ? 0.0 : static_cast<double>(value - first));
  return first + static_cast<T>(sum) / static_cast<T>(count);
}

/// The moments of a set by sums about a pivot, or about 0 for raw sums.
template <class S, class T = compute_t<S>>
NORMA_DEVICE Moments shifted_moments(const NormProblem& problem, const S* x, int64_t set, const BlockTeam& team) {
  const auto count = static_cast<double>(problem.shape.set_size());
  const bool raw = problem.raw_sums();
  T pivot = raw ? T(0) : pivot_of(problem.shape, x, set);
  for (int attempt = 0;; ++attempt) {
    WideSums<double> sums;
    for (SetElements i(problem.shape, set, team.rank(), team.size()); !i.ended(); i.next()) {
      const double d = static_cast<double>(to_number(x[i.offset()])) - static_cast<double>(pivot);
      sums.add(d, d, d);
    }
    double sum = sums.total_first;
    double squares = sums.total_second;
    team.sum(sum, squares);
    if (raw || attempt > 0 || !is_far(count, sum, squares)) {
      return moments_of(raw, count, static_cast<double>(pivot), sum, squares);
    }
    pivot = static_cast<T>(static_cast<double>(pivot) + sum / count);
  }
}

/// Computes the stats of each set, with one block for each.
template <class S>
NORMA_KERNEL void NORMA_LAUNCH_BOUNDS(kAnyThreads) any_statistics(NormProblem problem, ForwardArrays<S> arrays) {
  const BlockTeam team(shared_memory<double>());
  for (int64_t set = block(); set < problem.shape.sets(); set += blocks()) {
    const Moments moments =
        problem.by_textbook()
            ? textbook_moments<compute_t<S>>(problem, SetPass<S, BlockTeam>(problem.shape, arrays.x, set, team))
            : shifted_moments(problem, arrays.x, set, team);
    auto of_set = statistics_of<compute_t<S>>(problem, moments);
    if (of_set.lost) {
      of_set = scaled_statistics(problem, arrays.x, set, team, of_set);
    }
    if (thread() == 0) {
      store_set(arrays, set, of_set);
      update_running_set(arrays.running, set, of_set.mean, of_set.var);
    }
  }
}

/// Writes y of all elements, and their bits.
template <class S>
NORMA_KERNEL void NORMA_LAUNCH_BOUNDS(kAnyThreads) any_apply(NormProblem problem, ForwardArrays<S> arrays) {
  using T = compute_t<S>;
  const int64_t count = problem.shape.numel();
  for (int64_t first = kBitsOfByte * global_thread(); first < count; first += kBitsOfByte * global_threads()) {
    Place place = place_of(problem.shape, first);
    unsigned bits = 0;
    for (int i = 0; i < kBitsOfByte && first + i < count; ++i) {
      const int64_t offset = first + i;
      const auto normalize = normalizer(arrays, arrays.weight, arrays.bias, place.set(problem.shape),
                                        problem.affine.present ? weight_of(problem.affine, place) : 0);
      T z = normalize(to_number(arrays.x[offset]));
      if (arrays.residual != nullptr) {
        z += to_number(arrays.residual[offset]);
      }
      bits |= (z <= T(0) ? 0U : 1U) << i;
      with_activation(arrays.activation,
                      [&](auto activation) { arrays.y[offset] = to_element<S>(activated<activation>(z)); });
      place.next(problem.shape);
    }
    if (arrays.bits != nullptr) {
      arrays.bits[first / kBitsOfByte] = static_cast<uint8_t>(bits);
    }
  }
}

/// The number of blocks for a loop that gives each set or weight a block.
inline int64_t blocks_of_sets(int64_t sets) {
  return std::min(sets, int64_t{processors()} * (2048 / kAnyThreads) * 4);
}

/// The number of threads of such a block: no more than there are elements.
inline int threads_of_set(int64_t elements) {
  return static_cast<int>(std::min<int64_t>(kAnyThreads, ceil_div(elements, kWarp) * kWarp));
}

template <class S>
void compute_any_statistics(const NormProblem& problem, const ForwardArrays<S>& arrays) {
  launch(blocks_of_sets(problem.shape.sets()), threads_of_set(problem.shape.set_size()), BlockTeam::kBytes,
         current_stream(), any_statistics<S>, problem, arrays);
}

template <class S>
void apply_any(const NormProblem& problem, const ForwardArrays<S>& arrays) {
  launch_loop(ceil_div(problem.shape.numel(), kBitsOfByte), any_apply<S>, problem, arrays);
}

// --- backward -------------------------------------------------------------------------------------------------------

/// Computes the constants of each set's dx.
template <class S, class T = compute_t<S>>
NORMA_KERNEL void NORMA_LAUNCH_BOUNDS(kAnyThreads)
    any_gradient_sums(NormProblem problem, BackwardArrays<S> arrays, InputGradient<T>* gradients) {
  const BlockTeam team(shared_memory<double>());
  for (int64_t set = block(); set < problem.shape.sets(); set += blocks()) {
    const T mean = arrays.mean[set];
    const T mean_low = arrays.mean_low[set];
    const T rstd = arrays.rstd[set];
    WideSums<T> sums;
    for (SetElements i(problem.shape, set, team.rank(), team.size()); !i.ended(); i.next()) {
      const int64_t offset = i.offset();
      const int64_t weight = problem.affine.present ? weight_of(problem.affine, i.place()) : 0;
      const T dz = dz_of(arrays, offset, set, weight);
      const T g = arrays.weight == nullptr ? dz : dz * arrays.weight[weight];
      sums.add(g, g, ((to_number(arrays.x[offset]) - mean) - mean_low) * rstd);
    }
    double sum = sums.total_first;
    double sum_xhat = sums.total_second;
    team.sum(sum, sum_xhat);
    if (thread() == 0) {
      gradients[set] = input_gradient(problem, mean, rstd, sum, sum_xhat);
    }
  }
}

/// Writes dx and dresidual of all elements.
template <class S, class T = compute_t<S>>
NORMA_KERNEL void NORMA_LAUNCH_BOUNDS(kAnyThreads)
    any_input_gradients(NormProblem problem, BackwardArrays<S> arrays, const InputGradient<T>* gradients) {
  const int64_t count = problem.shape.numel();
  for (int64_t offset = global_thread(); offset < count; offset += global_threads()) {
    const Place place = place_of(problem.shape, offset);
    const int64_t set = place.set(problem.shape);
    const int64_t weight = problem.affine.present ? weight_of(problem.affine, place) : 0;
    const T dz = dz_of(arrays, offset, set, weight);
    if (arrays.dresidual != nullptr) {
      arrays.dresidual[offset] = to_element<S>(dz);
    }
    if (arrays.dx == nullptr) {
      continue;
    }
    const T rstd = arrays.rstd[set];
    const T by_dz = arrays.weight == nullptr ? rstd : rstd * arrays.weight[weight];
    const T xhat = ((to_number(arrays.x[offset]) - arrays.mean[set]) - arrays.mean_low[set]) * rstd;
    const auto of_set = problem.fixed_stats ? InputGradient<T>{} : gradients[set];
    arrays.dx[offset] = to_element<S>(dx_of(problem.fixed_stats, dz, by_dz, xhat, of_set));
  }
}

/// Writes the gradients of each weight, with one block for each.
template <class S, class T = compute_t<S>>
NORMA_KERNEL void NORMA_LAUNCH_BOUNDS(kAnyThreads) any_weight_gradients(NormProblem problem, BackwardArrays<S> arrays) {
  const BlockTeam team(shared_memory<double>());
  for (int64_t weight = block(); weight < problem.affine.numel(); weight += blocks()) {
    const WeightElements elements(problem, weight);
    WideSums<T> sums;
    for (int64_t i = team.rank(); i < elements.count(); i += team.size()) {
      const Place place = elements.at(i);
      const int64_t set = place.set(problem.shape);
      const int64_t offset = place.offset(problem.shape);
      const T dz = dz_of(arrays, offset, set, weight);
      const T centred = (to_number(arrays.x[offset]) - arrays.mean[set]) - arrays.mean_low[set];
      sums.add(dz, dz, centred * arrays.rstd[set]);
    }
    double dbias = sums.total_first;
    double dweight = sums.total_second;
    team.sum(dbias, dweight);
    if (thread() == 0) {
      store_weight_gradient(arrays, weight, dbias, dweight);
    }
  }
}

template <class S>
void any_backward(const NormProblem& problem, const BackwardArrays<S>& arrays) {
  using T = compute_t<S>;
  const Stream stream = current_stream();
  if (arrays.dx != nullptr || arrays.dresidual != nullptr) {
    const bool sums = arrays.dx != nullptr && !problem.fixed_stats;
    const DeviceBuffer<InputGradient<T>> gradients(sums ? problem.shape.sets() : 0);
    if (sums) {
      launch(blocks_of_sets(problem.shape.sets()), threads_of_set(problem.shape.set_size()), BlockTeam::kBytes, stream,
             any_gradient_sums<S>, problem, arrays, gradients.data());
    }
    launch_loop(problem.shape.numel(), any_input_gradients<S>, problem, arrays, gradients.data());
  }
  if (arrays.dweight != nullptr || arrays.dbias != nullptr) {
    launch(blocks_of_sets(problem.affine.numel()), threads_of_set(problem.shape.numel() / problem.affine.numel()),
           BlockTeam::kBytes, stream, any_weight_gradients<S>, problem, arrays);
  }
}

// --- bits of relu, and one number per channel -----------------------------------------------------------------------

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

void positive_bits(DType dtype, int64_t count, const void* y, uint8_t* bits) {
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

// --- the table ------------------------------------------------------------------------------------------------------

void norm_forward(DType dtype, const NormProblem& problem, const NormPointers& arrays) {
  NormProblem rest = problem;
  if (problem.by_textbook()) {
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
