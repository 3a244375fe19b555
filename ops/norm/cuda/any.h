#pragma once

#include "ops/norm/cuda/loops.h"

#include <algorithm>

// Kernels for every walk and every kind of statistics. Forward: a block for each set, then a loop over all elements.
// Backward: sums over each set, a loop over all elements, sums over the elements of each weight. The faster kernels for
// the cases that networks are made of stand beside it.

namespace norma::kernels::NORMA_BACKEND {

inline constexpr int kAnyThreads = 256;
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

/// Welford, 1962, in T for the elements of each thread; threads are merged by Chan's formula.
template <class S, class T = compute_t<S>>
NORMA_DEVICE Moments welford_moments(const NormProblem& problem, const S* x, int64_t set, const BlockTeam& team) {
  T mean = 0;
  T m2 = 0;
  T seen = 0;
  for (SetElements i(problem.shape, set, team.rank(), team.size()); !i.ended(); i.next()) {
    seen += T(1);
    const T value = to_number(x[i.offset()]);
    const T delta = value - mean;
    mean += delta / seen;
    m2 += delta * (value - mean);
  }
  // Means are added up as differences from an element: float64 has no wider type that would hold their sum.
  const auto near = static_cast<double>(to_number(x[SetElements(problem.shape, set, 0, 1).offset()]));
  const auto n = static_cast<double>(seen);
  const double from_near = seen > T(0) ? static_cast<double>(mean) - near : 0;
  const double all_from_near = team.sum(n * from_near) / static_cast<double>(problem.shape.set_size());
  const double from_all = from_near - all_from_near;
  const double total = team.sum(static_cast<double>(m2) + n * from_all * from_all);
  return {static_cast<double>(static_cast<T>(near + all_from_near)), 0, total};
}

/// mean = sum(x) / n, M2 = sum((x - mean)²)
template <class S, class T = compute_t<S>>
NORMA_DEVICE Moments two_pass_moments(const NormProblem& problem, const S* x, int64_t set, const BlockTeam& team) {
  T sum = 0;
  for (SetElements i(problem.shape, set, team.rank(), team.size()); !i.ended(); i.next()) {
    sum += to_number(x[i.offset()]);
  }
  const T mean = static_cast<T>(team.sum(static_cast<double>(sum)) / static_cast<double>(problem.shape.set_size()));
  T squares = 0;
  for (SetElements i(problem.shape, set, team.rank(), team.size()); !i.ended(); i.next()) {
    const T d = to_number(x[i.offset()]) - mean;
    squares += d * d;
  }
  return {static_cast<double>(mean), 0, team.sum(static_cast<double>(squares))};
}

/// Adds a value to one sum, and the rounding error of that to another (Neumaier, 1974).
template <class T>
NORMA_DEVICE void add_compensated(T& sum, T& lost, T value) {
  const T total = sum + value;
  lost += std::fabs(sum) >= std::fabs(value) ? (sum - total) + value : (value - total) + sum;
  sum = total;
}

/// Two passes whose sums carry their rounding errors along, with the mean as high + low.
template <class S, class T = compute_t<S>>
NORMA_DEVICE Moments compensated_moments(const NormProblem& problem, const S* x, int64_t set, const BlockTeam& team) {
  const auto count = static_cast<double>(problem.shape.set_size());
  T sum = 0;
  T lost = 0;
  for (SetElements i(problem.shape, set, team.rank(), team.size()); !i.ended(); i.next()) {
    add_compensated(sum, lost, to_number(x[i.offset()]));
  }
  double high_sum = static_cast<double>(sum);
  double low_sum = static_cast<double>(lost);
  team.sum_in_two_parts(high_sum, low_sum);
  const T high = static_cast<T>((high_sum + low_sum) / count);
  const T low = static_cast<T>((fused_multiply_add(-count, static_cast<double>(high), high_sum) + low_sum) / count);
  T squares = 0;
  T squares_lost = 0;
  for (SetElements i(problem.shape, set, team.rank(), team.size()); !i.ended(); i.next()) {
    const T d = (to_number(x[i.offset()]) - high) - low;
    add_compensated(squares, squares_lost, d * d);
  }
  return {static_cast<double>(high), static_cast<double>(low),
          team.sum(static_cast<double>(squares) + static_cast<double>(squares_lost))};
}

/// Computes the stats of each set, with one block for each.
template <class S>
NORMA_KERNEL void NORMA_LAUNCH_BOUNDS(kAnyThreads) any_statistics(NormProblem problem, ForwardArrays<S> arrays) {
  const BlockTeam team(shared_memory<double>());
  for (int64_t set = block(); set < problem.shape.sets(); set += blocks()) {
    Moments moments;
    if (problem.raw_sums()) {
      moments = shifted_moments(problem, arrays.x, set, team);
    } else {
      switch (problem.statistics) {
        case Statistics::welford: moments = welford_moments(problem, arrays.x, set, team); break;
        case Statistics::two_pass: moments = two_pass_moments(problem, arrays.x, set, team); break;
        case Statistics::compensated: moments = compensated_moments(problem, arrays.x, set, team); break;
        default: moments = shifted_moments(problem, arrays.x, set, team); break;
      }
    }
    auto of_set = statistics_of<compute_t<S>>(problem, moments);
    if (of_set.lost) {
      of_set = scaled_statistics(problem, arrays.x, set, team, of_set);
    }
    if (thread() == 0) {
      store_set(problem, arrays, set, of_set);
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
      const auto normalise = normaliser(arrays, arrays.weight, arrays.bias, place.set(problem.shape),
                                        problem.affine.present ? weight_of(problem.affine, place) : 0);
      T z = normalise(to_number(arrays.x[offset]));
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
  launch(blocks_for(ceil_div(problem.shape.numel(), kBitsOfByte), kAnyThreads),
         threads_for(ceil_div(problem.shape.numel(), kBitsOfByte), kAnyThreads), 0, current_stream(), any_apply<S>,
         problem, arrays);
}

// --- backward
// ---------------------------------------------------------------------------------------------------------

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
      gradients[set] = input_gradient(problem, rstd, sum, sum_xhat);
    }
  }
}

/// Writes dx and dresidual of all elements.
template <class S, class T = compute_t<S>>
NORMA_KERNEL void NORMA_LAUNCH_BOUNDS(kAnyThreads)
    any_input_gradients(NormProblem problem, BackwardArrays<S> arrays, const InputGradient<T>* gradients) {
  const int64_t count = problem.shape.numel();
  const T* centres = arrays.centre == nullptr ? arrays.mean : arrays.centre;
  const T* centres_low = arrays.centre == nullptr ? arrays.mean_low : arrays.centre_low;
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
    const T xhat = ((to_number(arrays.x[offset]) - centres[set]) - centres_low[set]) * rstd;
    const auto of_set = problem.fixed_stats ? InputGradient<T>{} : gradients[set];
    arrays.dx[offset] = to_element<S>(dx_of(problem.fixed_stats, dz, by_dz, xhat, of_set));
  }
}

/// The elements that share a weight: all of some of the four indices, one of each of the others.
class WeightElements {
 public:
  NORMA_DEVICE WeightElements(const NormProblem& problem, int64_t weight) : shape_(problem.shape) {
    const AffineShape& affine = problem.affine;
    int64_t rest = weight / affine.inner;
    const int64_t b = weight - rest * affine.inner;
    const int64_t kept = rest % affine.kept;
    rest /= affine.kept;
    period_a_ = affine.reduce_outer;
    const int64_t a = rest % period_a_;
    first_ = {.outer = rest / period_a_, .a = a, .kept = kept, .b = b * affine.segment};
    period_ = affine.outer_period;
    counts_ = {.outer = shape_.outer / period_,
               .a = shape_.reduce_outer / period_a_,
               .kept = affine.kept == 1 ? shape_.kept : 1,
               .b = affine.inner == 1 ? shape_.reduce_inner : affine.segment};
  }

  NORMA_DEVICE int64_t count() const { return counts_.outer * counts_.a * counts_.kept * counts_.b; }
  NORMA_DEVICE Place at(int64_t i) const {
    Place place = first_;
    int64_t rest = i / counts_.b;
    place.b += i - rest * counts_.b;
    int64_t next = rest / counts_.kept;
    place.kept += rest - next * counts_.kept;
    rest = next / counts_.a;
    place.a += (next - rest * counts_.a) * period_a_;
    place.outer += rest * period_;
    return place;
  }

 private:
  const NormShape& shape_;
  Place first_;
  Place counts_;
  int64_t period_;
  int64_t period_a_;
};

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
    launch(blocks_for(problem.shape.numel(), kAnyThreads), threads_for(problem.shape.numel(), kAnyThreads), 0, stream,
           any_input_gradients<S>, problem, arrays, gradients.data());
  }
  if (arrays.dweight != nullptr || arrays.dbias != nullptr) {
    launch(blocks_of_sets(problem.affine.numel()), threads_of_set(problem.shape.numel() / problem.affine.numel()),
           BlockTeam::kBytes, stream, any_weight_gradients<S>, problem, arrays);
  }
}

}  // namespace norma::kernels::NORMA_BACKEND
