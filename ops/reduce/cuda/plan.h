#pragma once

#include "core/cuda/flat_loop.h"
#include "core/memory_format.h"
#include "ops/reduce/axes.h"

#include <algorithm>

namespace norma::kernels::NORMA_BACKEND {

inline constexpr int kReduceThreads = 256;

/// The plan by which the threads of a reduction share its work. It follows from the shape, the strides and the
/// alignment of x, which vectors need, so that bits do not depend on the device.
///
/// A block takes `across` outputs, each with `along` threads, a power of two: steps rank, rank + along, … of the loop
/// over the reduced axes. If few outputs have many steps, the steps are cut into parts, whose results a second kernel
/// merges.
struct ReducePlan {
  FlatLoop<3> outputs;  ///< offsets of an output in x, y and mean
  FlatLoop<1> steps;    ///< offsets of its steps in x; a step is one element or a vector of them
  /// True iff neighbours in a block take neighbouring outputs; else they take steps of the same output.
  bool outputs_are_neighbours;
  int across;
  int along;
  int64_t parts;
  int64_t part_steps;

  [[nodiscard]] int64_t tiles() const { return ceil_div(outputs.count, across); }
  [[nodiscard]] int threads() const { return across * along; }
};

/// The least power of two that is not less than n.
constexpr int64_t power_of_two_from(int64_t n) {
  int64_t power = 1;
  while (power < n) {
    power *= 2;
  }
  return power;
}

/// Gives `plan` its threads. `may_cut`: there may be more than one part.
inline void share_work(ReducePlan& plan, bool may_cut) {
  constexpr int64_t kStepsOfThread = 8;    // fewer are not worth a thread of their own
  constexpr int64_t kStepsOfPart = 16;     // of a thread
  constexpr int64_t kBlocksToFill = 1024;  // any device
  const int64_t outputs = plan.outputs.count;
  const int64_t steps = plan.steps.count;
  // Neighbouring outputs are read together: a warp of them comes first.
  const int64_t side_by_side = plan.outputs_are_neighbours ? std::min<int64_t>(kWarp, power_of_two_from(outputs)) : 1;
  const int64_t along = std::min(power_of_two_from(ceil_div(steps, kStepsOfThread)), kReduceThreads / side_by_side);
  const int64_t across = std::min(ceil_div(outputs * along, kWarp) * kWarp, int64_t{kReduceThreads}) / along;
  plan.along = static_cast<int>(along);
  plan.across = static_cast<int>(across);
  const int64_t parts = may_cut ? std::min(kBlocksToFill / plan.tiles(), steps / (along * kStepsOfPart)) : int64_t{1};
  plan.part_steps = ceil_div(steps, std::max<int64_t>(parts, 1));
  plan.parts = ceil_div(steps, plan.part_steps);
}

/// The plan of the first kernel. `width`: elements of a step, neighbours along the innermost reduced axis.
inline ReducePlan plan_reduction(const ReduceAxes& axes, int width) {
  StridedLoop<1> steps{axes.reduced, {axes.reduced_x}};
  const int64_t innermost = steps.sizes.size() - 1;
  steps.sizes[innermost] /= width;
  steps.strides[0][innermost] *= width;
  ReducePlan plan{.outputs = FlatLoop<3>(StridedLoop<3>{axes.kept, {axes.kept_x, axes.kept_y, axes.kept_y}}),
                  .steps = FlatLoop<1>(steps),
                  .outputs_are_neighbours = axes.innermost_is_kept,
                  .across = 1,
                  .along = 1,
                  .parts = 1,
                  .part_steps = 1};
  share_work(plan, /* may_cut= */ true);
  return plan;
}

/// The plan of the second kernel. Its x are the results of the parts, one row of all outputs for each.
inline ReducePlan plan_merge(const ReduceAxes& axes, const ReducePlan& first) {
  const int64_t outputs = first.outputs.count;
  ReducePlan plan = first;
  plan.outputs = FlatLoop<3>(StridedLoop<3>{axes.kept, {contiguous_strides(axes.kept), axes.kept_y, axes.kept_y}});
  plan.steps = FlatLoop<1>(StridedLoop<1>{Sizes{first.parts}, {Strides{outputs}}});
  plan.outputs_are_neighbours = outputs > 1;
  share_work(plan, /* may_cut= */ false);
  return plan;
}

/// True iff the reduced elements can be read by vectors of `width` elements.
inline bool takes_vectors(const ReduceAxes& axes, int width, uintptr_t address, size_t element_size) {
  const auto whole = [&](const Strides& strides, int64_t count) {
    for (int64_t axis = 0; axis < count; ++axis) {
      if (strides[axis] % width != 0) {
        return false;
      }
    }
    return true;
  };
  return !axes.innermost_is_kept && axes.reduced_x.back() == 1 && axes.reduced.back() % width == 0 &&
         address % (static_cast<size_t>(width) * element_size) == 0 &&
         whole(axes.reduced_x, axes.reduced_x.size() - 1) && whole(axes.kept_x, axes.kept_x.size());
}

}  // namespace norma::kernels::NORMA_BACKEND
