#pragma once

#include "ops/norm/cuda/any_forward.h"

// Backward for every walk: sums over each set, a loop over all elements, sums over the elements of each weight.

namespace norma::kernels::NORMA_BACKEND {

/// Computes the constants of each set's dx.
template <class S, class T = compute_t<S>>
NORMA_KERNEL void NORMA_LAUNCH_BOUNDS(kAnyThreads)
    any_gradient_sums(NormProblem problem, NormArrays<S> arrays, InputGradient<T>* gradients) {
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
    any_input_gradients(NormProblem problem, NormArrays<S> arrays, const InputGradient<T>* gradients) {
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
NORMA_KERNEL void NORMA_LAUNCH_BOUNDS(kAnyThreads) any_weight_gradients(NormProblem problem, NormArrays<S> arrays) {
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
void any_backward(const NormProblem& problem, const NormArrays<S>& arrays) {
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
