#pragma once

#include "ops/norm/cuda/statistics.h"

// The second stage of columns and runs. The first stage left two sums for each part of a set: a chunk of rows of a
// column, or a run. Here a warp for each set or weight adds them up in a fixed order.
//
// `Parts` knows where the parts are:
//   for_each_of_set(set, f)        calls f(part) for the parts of a set that this lane takes
//   for_each_of_weight(weight, f)  does so for the parts of a weight
// A part has `sums` and `second_sums`, the numbers of its sums, `pivot`, that of its pivot, `elements`, their count,
// and `weight`, the number of the weight that its elements have.

namespace norma::kernels::NORMA_BACKEND {

struct Part {
  int64_t sums;
  int64_t second_sums;
  int64_t pivot;
  double elements;
  int64_t weight;
};

/// The square of the distance of pivots from the mean, in standard deviations, beyond which a set of `count` elements
/// is added up once more. Then the sums, in float32, lose digits that the results can show; the errors of many partial
/// sums cancel, so that large sets lose fewer. One warp adds a set up, and takes milliseconds for a large one.
template <class S>
NORMA_DEVICE double far_from_mean(double count) {
  constexpr double kManyElements = 4096;
  return sizeof(S) == 2 || count > kManyElements ? 64 : 4;
}

/// Writes the stats of each set. sums: of d and d² with d = x - pivot.
template <class S, class Parts, class T = compute_t<S>>
NORMA_KERNEL void finish_statistics(NormProblem problem, Parts parts, NormArrays<S> arrays, const T* pivots,
                                    const double* sums) {
  const LaneTeam team;
  const auto count = static_cast<double>(problem.shape.set_size());
  const int64_t warps = global_threads() / kWarp;
  for (int64_t set = global_thread() / kWarp; set < problem.shape.sets(); set += warps) {
    double total = 0;
    double squares = 0;
    parts.for_each_of_set(set, [&](const Part& part) {
      total += fused_multiply_add(part.elements, static_cast<double>(pivots[part.pivot]), sums[part.sums]);
      squares += sums[part.second_sums];
    });
    team.sum(total, squares);
    Moments moments{0, total, squares};
    if (!problem.raw_sums()) {
      const double mean = total / count;
      double m2 = 0;
      double from_pivots = 0;
      parts.for_each_of_set(set, [&](const Part& part) {
        const double d = static_cast<double>(pivots[part.pivot]) - mean;
        m2 += sums[part.second_sums] + 2 * sums[part.sums] * d + part.elements * d * d;
        from_pivots += part.elements * d * d;
      });
      team.sum(m2, from_pivots);
      moments = {mean, 0, m2 < 0 ? 0 : m2};
      if (from_pivots > far_from_mean<S>(count) * m2) {  // sums once more about the mean
        moments = moments_about(problem, arrays.x, set, static_cast<T>(mean), team);
      }
    }
    auto of_set = statistics_of<T>(problem, moments);
    if (of_set.lost) {
      of_set = scaled_statistics(problem, arrays.x, set, team, of_set);
    }
    if (lane() == 0) {
      store_set(problem, arrays, set, of_set);
      update_running_set(arrays.running, set, of_set.mean, of_set.var);
    }
  }
}

/// Writes the constants of the dx of `sets` sets, then dweight and dbias of `weights` weights; either may be null.
/// sums: of dz and dz · xhat.
template <class S, class Parts, class T = compute_t<S>>
NORMA_KERNEL void finish_gradients(NormProblem problem, int64_t sets, int64_t weights, Parts parts,
                                   NormArrays<S> arrays, const double* sums, InputGradient<T>* gradients) {
  const LaneTeam team;
  const int64_t warps = global_threads() / kWarp;
  for (int64_t task = global_thread() / kWarp; task < sets + weights; task += warps) {
    double sum = 0;
    double sum_xhat = 0;
    if (task < sets) {
      parts.for_each_of_set(task, [&](const Part& part) {
        const double weight = arrays.weight == nullptr ? 1.0 : static_cast<double>(arrays.weight[part.weight]);
        sum = fused_multiply_add(weight, sums[part.sums], sum);
        sum_xhat = fused_multiply_add(weight, sums[part.second_sums], sum_xhat);
      });
    } else {
      parts.for_each_of_weight(task - sets, [&](const Part& part) {
        sum += sums[part.sums];
        sum_xhat += sums[part.second_sums];
      });
    }
    team.sum(sum, sum_xhat);
    if (lane() != 0) {
      continue;
    }
    if (task < sets) {
      gradients[task] = input_gradient(problem, arrays.rstd[task], sum, sum_xhat);
    } else {
      store_weight_gradient(arrays, task - sets, sum, sum_xhat);
    }
  }
}

/// Launches finish_gradients().
template <class S, class Parts, class T = compute_t<S>>
void launch_finish_gradients(const NormProblem& problem, int64_t sets, int64_t weights, const Parts& parts,
                             const NormArrays<S>& arrays, const double* sums, InputGradient<T>* gradients) {
  constexpr int kThreads = 256;
  const int64_t threads_wanted = kWarp * (sets + weights);
  launch(blocks_for(threads_wanted, kThreads), threads_for(threads_wanted, kThreads), 0, current_stream(),
         finish_gradients<S, Parts>, problem, sets, weights, parts, arrays, sums, gradients);
}

}  // namespace norma::kernels::NORMA_BACKEND
