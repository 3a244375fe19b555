#pragma once

#include "ops/norm/cuda/pixels.h"

namespace norma::kernels::NORMA_BACKEND {

bool pixels_forward(DType dtype, const NormProblem& problem, const NormForward& arrays) {
  return dispatch_fast(dtype, [&](auto s) {
    using S = decltype(s);
    const PixelPlan plan = plan_pixels(problem.shape.reduce_outer, 32);
    if (!are_pixels(problem) || plan.held == 0 || arrays.bits != nullptr) {
      return false;
    }
    dispatch_held<32>(plan.held, [&](auto held) {
      launch(4 * blocks_of_pixels(problem.shape, plan), plan.warps * kWarp, PixelTeam::bytes(plan.warps),
             current_stream(), normalise_pixels<S, held>, problem, ForwardArrays<S>(problem, arrays));
    });
    return true;
  });
}

bool pixels_backward(DType dtype, const NormProblem& problem, const NormBackward& arrays) {
  return dispatch_fast(dtype, [&](auto s) {
    using S = decltype(s);
    using T = compute_t<S>;
    const PixelPlan plan = plan_pixels(problem.shape.reduce_outer, 16);
    if (!are_pixels(problem) || plan.held == 0) {
      return false;
    }
    const BackwardArrays<S> typed(problem, arrays);
    const bool weights_wanted = arrays.dweight != nullptr || arrays.dbias != nullptr;
    const int64_t channels = problem.shape.reduce_outer;
    const int64_t blocks = blocks_of_pixels(problem.shape, plan);
    const DeviceBuffer<T> partials(weights_wanted ? 2 * blocks * channels : 0);
    dispatch_held<16>(plan.held, [&](auto held) {
      launch(blocks, plan.warps * kWarp, PixelTeam::bytes(plan.warps), current_stream(), pixel_gradients<S, held>,
             problem, typed, partials.data());
    });
    if (weights_wanted) {
      constexpr int kThreads = 128;
      launch(ceil_div(2 * channels, kThreads), kThreads, 0, current_stream(), add_partials<T>, channels, blocks,
             partials.data(), typed.dweight, typed.dbias);
    }
    return true;
  });
}

}  // namespace norma::kernels::NORMA_BACKEND
