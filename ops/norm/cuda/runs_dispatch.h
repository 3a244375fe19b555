#pragma once

#include "ops/norm/cuda/runs.h"

namespace norma::kernels::NORMA_BACKEND {

bool runs_forward(DType dtype, const NormProblem& problem, const NormForward& arrays) {
  const RunPlan plan = plan_runs(problem);
  if (plan.length == 0 || problem.walk == Walk::columns || (arrays.bits != nullptr && plan.length % 8 != 0)) {
    return false;
  }
  return dispatch_fast(dtype, [&](auto s) {
    using S = decltype(s);
    const Stream stream = current_stream();
    const ForwardArrays<S> typed(problem, arrays);
    const bool aligned = are_aligned(typed);
    if (arrays.bits != nullptr && !aligned) {  // lanes put together bytes of bits out of vectors
      return false;
    }
    const int64_t blocks = blocks_for(kWarp * plan.runs, kRunThreads);
    dispatch_width<S>(plan.length, aligned, [&](auto width) {
      if (!problem.fixed_stats) {
        const DeviceBuffer<RunSums> sums(plan.runs);
        launch(blocks, kRunThreads, 0, stream, add_runs<S, width>, plan, typed.x, sums.data());
        launch(blocks_for(kWarp * problem.shape.sets(), kRunThreads),
               threads_for(kWarp * problem.shape.sets(), kRunThreads), 0, stream, finish_run_statistics<S>, problem,
               plan, typed, sums.data());
      }
      if (typed.y != nullptr) {
        launch(blocks, kRunThreads, 0, stream, normalise_runs<S, width>, plan, typed);
      }
    });
    return true;
  });
}

bool runs_backward(DType dtype, const NormProblem& problem, const NormBackward& arrays) {
  const RunPlan plan = plan_runs(problem);
  if (plan.length == 0 || problem.walk == Walk::columns) {
    return false;
  }
  return dispatch_fast(dtype, [&](auto s) {
    using S = decltype(s);
    using T = compute_t<S>;
    const Stream stream = current_stream();
    const BackwardArrays<S> typed(problem, arrays);
    const bool weights_wanted = arrays.dweight != nullptr || arrays.dbias != nullptr;
    const bool sets_wanted = arrays.dx != nullptr && !problem.fixed_stats;
    const int64_t blocks = blocks_for(kWarp * plan.runs, kRunThreads);
    const DeviceBuffer<double> sums(sets_wanted || weights_wanted ? 2 * plan.runs : 0);
    const DeviceBuffer<InputGradient<T>> gradients(sets_wanted ? problem.shape.sets() : 0);
    dispatch_width<S>(plan.length, are_aligned(typed), [&](auto width) {
      if (sums.data() != nullptr) {
        launch(blocks, kRunThreads, 0, stream, add_run_gradients<S, width>, plan, typed, sums.data());
      }
      if (sets_wanted) {
        launch(blocks_for(kWarp * problem.shape.sets(), kRunThreads),
               threads_for(kWarp * problem.shape.sets(), kRunThreads), 0, stream, finish_run_gradients<S>, problem,
               plan, typed, sums.data(), gradients.data());
      }
      if (weights_wanted) {
        launch(blocks_for(kWarp * problem.affine.numel(), kRunThreads),
               threads_for(kWarp * problem.affine.numel(), kRunThreads), 0, stream, finish_run_weights<T>, plan,
               sums.data(), typed.dweight, typed.dbias);
      }
      if (arrays.dx != nullptr || arrays.dresidual != nullptr) {
        launch(blocks, kRunThreads, 0, stream, write_run_gradients<S, width>, plan, typed, gradients.data());
      }
    });
    return true;
  });
}

}  // namespace norma::kernels::NORMA_BACKEND
