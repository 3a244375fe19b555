#pragma once

#include "core/cuda/flat_loop.h"
#include "core/memory_format.h"
#include "ops/reduce/axes.h"
#include "ops/reduce/operations.h"

#include <algorithm>

namespace norma::kernels::NORMA_BACKEND {

// --- the plan -------------------------------------------------------------------------------------------------------

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

// --- the kernels ----------------------------------------------------------------------------------------------------

/// The largest element of a row and its index. Of NaN, and of equal elements, it is the first or the last.
template <class T>
struct Largest {
  T value;
  int64_t index;  ///< -1: none yet
};
template <class S>
struct Argmax {
  using Number = Largest<compute_t<S>>;
  bool last = false;

  NORMA_DEVICE Number start() const { return {compute_t<S>(0), -1}; }
  NORMA_DEVICE Number merge(const Number& a, const Number& b) const {
    if (a.index < 0 || b.index < 0) {
      return a.index < 0 ? b : a;
    }
    const bool a_is_nan = is_nan(a.value);
    const bool b_is_nan = is_nan(b.value);
    const bool equal = a_is_nan || b_is_nan ? a_is_nan == b_is_nan : a.value == b.value;
    if (equal) {
      return (a.index < b.index) == last ? b : a;
    }
    return a_is_nan || a.value > b.value ? a : b;
  }
  NORMA_DEVICE Number take(const Number& a, compute_t<S> x, const Number& /*mean*/, int64_t index) const {
    return merge(a, {x, index});
  }
  NORMA_DEVICE Number mean_of(const double* /*means*/, int64_t /*at*/) const { return start(); }
  template <class Y>
  NORMA_DEVICE Y result(const Number& total, double /*scale*/) const {
    return total.index;
  }
};

/// The operations of operations.h, with the calls of Largest.
template <class Operation>
struct Folding {
  using Number = typename Operation::Number;
  static constexpr bool kAdds = Operation::kAdds;

  NORMA_DEVICE Number start() const { return Operation::kStart; }
  NORMA_DEVICE Number merge(Number a, Number b) const { return Operation::merge(a, b); }
  template <class T>
  NORMA_DEVICE Number take(Number a, T x, Number mean, int64_t /*index*/) const {
    return Operation::take(a, static_cast<Number>(x), mean);
  }
  NORMA_DEVICE Number mean_of(const double* means, int64_t at) const {
    return means == nullptr ? Number(0) : static_cast<Number>(means[at]);
  }
  template <class Y>
  NORMA_DEVICE Y result(Number total, double scale) const {
    if constexpr (kAdds && std::is_same_v<Number, double>) {
      total *= scale;
    }
    return to_element<Y>(static_cast<compute_t<Y>>(total));
  }
};

/// Takes in one step: kWidth elements, or the result of one part.
template <bool kOfParts, int kWidth, class Op, class X, class Number = typename Op::Number>
NORMA_DEVICE Number take_step(const Op& op, Number total, const Vector<X, kWidth>& x, int64_t step, Number mean) {
  if constexpr (kOfParts) {
    return op.merge(total, x.elements[0]);
  } else {
    NORMA_UNROLL
    for (int i = 0; i < kWidth; ++i) {
      total = op.take(total, to_number(x.elements[i]), mean, step * kWidth + i);
    }
    return total;
  }
}

/// Takes in the steps of one thread, in order: first, first + stride, … before `end`.
template <bool kOfParts, int kWidth, class Op, class X, class Number = typename Op::Number>
NORMA_DEVICE Number take_steps(const Op& op, const FlatLoop<1>& steps, const X* x, int64_t first, int64_t stride,
                               int64_t end, Number mean) {
  const auto read = [&](int64_t step) {
    int64_t at[1];
    steps.offsets(step, at);
    expect_aligned<Vector<X, kWidth>>(x + at[0]);
    return *reinterpret_cast<const Vector<X, kWidth>*>(x + at[0]);
  };
  constexpr int kAtOnce = 4;  // loads on their way together
  Number total = op.start();
  int64_t step = first;
  for (; step + (kAtOnce - 1) * stride < end; step += kAtOnce * stride) {
    Vector<X, kWidth> vectors[kAtOnce];
    NORMA_UNROLL
    for (int i = 0; i < kAtOnce; ++i) {
      vectors[i] = read(step + i * stride);
    }
    NORMA_UNROLL
    for (int i = 0; i < kAtOnce; ++i) {
      total = take_step<kOfParts>(op, total, vectors[i], step + i * stride, mean);
    }
  }
  for (; step < end; step += stride) {
    total = take_step<kOfParts>(op, total, read(step), step, mean);
  }
  return total;
}

/// Merges the results of the threads of one output, by halves. Every thread of the block calls it; the one of rank 0
/// gets the result.
template <class Op, class Number = typename Op::Number>
NORMA_DEVICE Number merge_ranks(const Op& op, const ReducePlan& plan, int rank, const Number& total) {
  if (plan.along == 1) {
    return total;
  }
  auto* shared = shared_memory<Number>();
  const int to_next_rank = plan.outputs_are_neighbours ? plan.across : 1;
  shared[thread()] = total;
  sync_threads();
  for (int half = plan.along / 2; half > 0; half /= 2) {
    if (rank < half) {
      shared[thread()] = op.merge(shared[thread()], shared[thread() + half * to_next_rank]);
    }
    sync_threads();
  }
  return shared[thread()];
}

/// y = scale · op over x, or partials[part][output] = the result of each part.
template <int kWidth, bool kOfParts, class Op, class X, class Y>
NORMA_KERNEL void reduce_steps(ReducePlan plan, Op op, const X* x, const double* means, double scale, Y* y,
                               typename Op::Number* partials) {
  using Number = typename Op::Number;
  const int column = plan.outputs_are_neighbours ? thread() % plan.across : thread() / plan.along;
  const int rank = plan.outputs_are_neighbours ? thread() / plan.across : thread() % plan.along;
  const int64_t tiles = ceil_div(plan.outputs.count, plan.across);
  for (int64_t task = block(); task < tiles * plan.parts; task += blocks()) {
    const int64_t part = task / tiles;
    const int64_t output = (task - part * tiles) * plan.across + column;
    const bool is_there = output < plan.outputs.count;
    int64_t at[3] = {};
    Number total = op.start();
    if (is_there) {
      plan.outputs.offsets(output, at);
      const Number mean = op.mean_of(means, at[2]);
      const int64_t end = std::min(plan.steps.count, (part + 1) * plan.part_steps);
      total =
          take_steps<kOfParts, kWidth>(op, plan.steps, x + at[0], part * plan.part_steps + rank, plan.along, end, mean);
    }
    total = merge_ranks(op, plan, rank, total);
    if (is_there && rank == 0) {
      if (partials != nullptr) {
        partials[part * plan.outputs.count + output] = total;
      } else {
        y[at[1]] = op.template result<Y>(total, scale);
      }
    }
  }
}

/// y = scale · op over x.
template <class Op, class S, class Y>
void reduce(const ReduceAxes& axes, Op op, const S* x, const double* means, double scale, Y* y) {
  using Number = typename Op::Number;
  constexpr int kWidth = std::min(8, 16 / static_cast<int>(sizeof(S)));
  const bool by_vectors = takes_vectors(axes, kWidth, reinterpret_cast<uintptr_t>(x), sizeof(S));
  const ReducePlan plan = plan_reduction(axes, by_vectors ? kWidth : 1);
  const bool in_parts = plan.parts > 1;
  const DeviceBuffer<Number> partials(in_parts ? plan.parts * plan.outputs.count : 0);
  const auto run = [&](const ReducePlan& p, auto kernel, const auto* from, const double* of_outputs, Number* parts_to) {
    constexpr int64_t kMostBlocks = int64_t{1} << 30;
    const size_t shared_bytes = p.along == 1 ? 0 : static_cast<size_t>(p.threads()) * sizeof(Number);
    launch(std::min(p.tiles() * p.parts, kMostBlocks), p.threads(), shared_bytes, current_stream(), kernel, p, op, from,
           of_outputs, scale, y, parts_to);
  };
  Number* parts_to = in_parts ? partials.data() : nullptr;
  if (by_vectors) {
    run(plan, reduce_steps<kWidth, false, Op, S, Y>, x, means, parts_to);
  } else {
    run(plan, reduce_steps<1, false, Op, S, Y>, x, means, parts_to);
  }
  if (in_parts) {
    run(plan_merge(axes, plan), reduce_steps<1, true, Op, Number, Y>, static_cast<const Number*>(partials.data()),
        nullptr, static_cast<Number*>(nullptr));
  }
}

}  // namespace norma::kernels::NORMA_BACKEND
