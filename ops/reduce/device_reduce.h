#pragma once

#include "ops/reduce/cuda/plan.h"
#include "ops/reduce/operations.h"

namespace norma::kernels::NORMA_BACKEND {

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
