#pragma once

#include "ops/norm/cuda/rows.h"

namespace norma::kernels::NORMA_BACKEND {

bool rows_forward(DType dtype, const NormProblem& problem, const NormForward& arrays) {
  if (problem.walk != Walk::rows) {
    return false;
  }
  return dispatch_fast(dtype, [&](auto s) {
    using S = decltype(s);
    constexpr int kWidth = kVectorOf<S>;
    const int64_t count = problem.shape.reduce_inner;
    const RowPlan plan = plan_rows(count / kWidth, kWidth, kForwardLimits);
    const ForwardArrays<S> typed(problem, arrays);
    if (count % kWidth != 0 || plan.vectors == 0 || (arrays.bits != nullptr && count % 8 != 0) || !are_aligned(typed) ||
        !are_aligned(typed.weight, typed.bias)) {
      return false;
    }
    const int64_t blocks = blocks_of_rows(problem.shape.outer, plan);
    if (plan.width > 0) {
      dispatch_vectors<kWidth, kForwardLimits.of_lane>(plan.vectors, [&](auto vectors) {
        launch(blocks, plan.threads, 0, current_stream(), normalise_rows<S, vectors, false>, problem, typed,
               plan.width);
      });
    } else {
      dispatch_vectors<kWidth, kForwardLimits.of_thread>(plan.vectors, [&](auto vectors) {
        launch(blocks, plan.threads, BlockTeam::kBytes, current_stream(), normalise_rows<S, vectors, true>, problem,
               typed, plan.width);
      });
    }
    return true;
  });
}

bool rows_backward(DType dtype, const NormProblem& problem, const NormBackward& arrays) {
  const AffineShape& affine = problem.affine;
  const bool weights_wanted = arrays.dweight != nullptr || arrays.dbias != nullptr;
  const bool by_element = affine.segment == 1 && affine.inner == problem.shape.reduce_inner && affine.outer_period == 1;
  if (problem.walk != Walk::rows || (affine.present && !by_element)) {
    return false;
  }
  return dispatch_fast(dtype, [&](auto s) {
    using S = decltype(s);
    using T = compute_t<S>;
    constexpr int kWidth = kVectorOf<S>;
    const int64_t count = problem.shape.reduce_inner;
    const RowPlan plan = plan_rows(count / kWidth, kWidth, kBackwardLimits);
    const BackwardArrays<S> typed(problem, arrays);
    if (count % kWidth != 0 || plan.vectors == 0 || !are_aligned(typed) || !are_aligned(typed.weight, typed.bias)) {
      return false;
    }
    const int64_t blocks = std::min(ceil_div(problem.shape.outer, plan.rows_of_block()),
                                    int64_t{processors()} * std::max(1, 1024 / plan.threads));
    const DeviceBuffer<T> partials(weights_wanted ? 2 * blocks * count : 0);
    if (plan.width > 0) {
      dispatch_vectors<kWidth, kBackwardLimits.of_lane>(plan.vectors, [&](auto vectors) {
        launch(blocks, plan.threads, 0, current_stream(), row_gradients<S, vectors, false>, problem, typed, plan.width,
               partials.data());
      });
    } else {
      dispatch_vectors<kWidth, kBackwardLimits.of_thread>(plan.vectors, [&](auto vectors) {
        launch(blocks, plan.threads, BlockTeam::kBytes, current_stream(), row_gradients<S, vectors, true>, problem,
               typed, plan.width, partials.data());
      });
    }
    if (weights_wanted) {
      constexpr int kThreads = 128;
      launch(ceil_div(2 * count, kThreads), kThreads, 0, current_stream(), add_partials<T>, count, blocks,
             partials.data(), typed.dweight, typed.dbias);
    }
    return true;
  });
}

}  // namespace norma::kernels::NORMA_BACKEND
