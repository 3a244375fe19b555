#pragma once

#include "ops/norm/cuda/columns_backward.h"

namespace norma::kernels::NORMA_BACKEND {

bool columns_forward(DType dtype, const NormProblem& problem, const NormForward& arrays) {
  return dispatch_fast(dtype, [&](auto s) {
    using S = decltype(s);
    using T = compute_t<S>;
    const ColumnPlan plan = plan_columns(problem.shape, kVectorOf<S>);
    const int64_t blocks = plan.blocks(problem.shape);
    const ForwardArrays<S> typed(problem, arrays);
    if (!are_columns<S>(problem) || blocks > INT32_MAX || (arrays.bits != nullptr && plan.columns % 8 != 0) ||
        !are_aligned(typed)) {
      return false;
    }
    const Stream stream = current_stream();
    if (!problem.fixed_stats) {
      const int64_t all_columns = problem.shape.outer * plan.columns;
      const DeviceBuffer<T> pivots(all_columns);
      const DeviceBuffer<double> sums(2 * plan.chunks * all_columns);
      launch(blocks_for(all_columns, kColumnThreads), threads_for(all_columns, kColumnThreads), 0, stream,
             find_column_pivots<S>, problem, typed.x, pivots.data());
      launch(blocks, kColumnThreads, column_sum_bytes<S>(), stream, add_columns<S>, problem, plan, typed.x,
             pivots.data(), sums.data());
      launch(blocks_for(kWarp * problem.shape.sets(), kColumnThreads),
             threads_for(kWarp * problem.shape.sets(), kColumnThreads), 0, stream, finish_column_statistics<S>, problem,
             plan, typed, pivots.data(), sums.data());
    }
    if (typed.y != nullptr) {
      launch(blocks, kColumnThreads, 0, stream, normalise_columns<S>, problem, plan, typed);
    }
    return true;
  });
}

bool columns_backward(DType dtype, const NormProblem& problem, const NormBackward& arrays) {
  const bool weights_wanted = arrays.dweight != nullptr || arrays.dbias != nullptr;
  return dispatch_fast(dtype, [&](auto s) {
    using S = decltype(s);
    using T = compute_t<S>;
    const ColumnPlan plan = plan_columns(problem.shape, kVectorOf<S>);
    const int64_t blocks = plan.blocks(problem.shape);
    // A weight of its own for each column.
    const bool own_weights = problem.affine.outer_period == 1 && problem.affine.numel() == plan.columns;
    const BackwardArrays<S> typed(problem, arrays);
    if (!are_columns<S>(problem) || blocks > INT32_MAX || (weights_wanted && !own_weights) || !are_aligned(typed)) {
      return false;
    }
    const Stream stream = current_stream();
    const bool sets_wanted = arrays.dx != nullptr && !problem.fixed_stats;
    const int64_t parts = problem.shape.outer * plan.chunks;
    const DeviceBuffer<double> sums(sets_wanted || weights_wanted ? 2 * parts * plan.columns : 0);
    const DeviceBuffer<InputGradient<T>> gradients(sets_wanted ? problem.shape.sets() : 0);
    if (sums.data() != nullptr) {
      launch(blocks, kColumnThreads, column_sum_bytes<S>(), stream, add_column_gradients<S>, problem, plan, typed,
             sums.data());
    }
    if (sets_wanted) {
      launch(blocks_for(kWarp * problem.shape.sets(), kColumnThreads),
             threads_for(kWarp * problem.shape.sets(), kColumnThreads), 0, stream, finish_column_gradients<S>, problem,
             plan, typed, sums.data(), gradients.data());
    }
    if (weights_wanted) {
      launch(blocks_for(kWarp * plan.columns, kColumnThreads), threads_for(kWarp * plan.columns, kColumnThreads), 0,
             stream, finish_column_weights<T>, plan.columns, parts, sums.data(), typed.dweight, typed.dbias);
    }
    if (arrays.dx != nullptr || arrays.dresidual != nullptr) {
      launch(blocks, kColumnThreads, 0, stream, write_column_gradients<S>, problem, plan, typed, gradients.data());
    }
    return true;
  });
}

}  // namespace norma::kernels::NORMA_BACKEND
