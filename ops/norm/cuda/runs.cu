#include "ops/norm/cuda/loops.h"

#include <algorithm>

// Runs: a set is one or several runs of memory with one weight each (batch norm in NCHW, gradients of group and
// instance norm in NCHW). Some lanes of a warp take a run at a time; its sums are merged by set, and by weight, in a
// fixed order. Where runs are no multiple of a vector, their ends lie in vectors that they share with their neighbours:
// each run loads such a vector, and takes its own part of it. These kernels are `shared`.

namespace norma::kernels::NORMA_BACKEND {

inline constexpr int kRunThreads = 256;

/// A problem whose elements are runs: the places of runs, their sets and weights follow from it like those of elements.
struct RunPlan {
  NormProblem of_runs;
  int64_t length = 0;  ///< elements of a run; 0: no run is worth a warp
  int64_t runs = 0;
  int lanes = kWarp;  ///< of a run

  /// Blocks of kRunThreads with enough threads for all runs.
  [[nodiscard]] int64_t blocks() const { return blocks_for(lanes * runs, kRunThreads); }
};

inline RunPlan plan_runs(const NormProblem& problem) {
  const AffineShape& affine = problem.affine;
  RunPlan plan{.of_runs = problem};
  const bool by_segment = affine.present && affine.inner > 1;
  const int64_t length = by_segment ? affine.segment : problem.shape.reduce_inner;
  if (length < kWarp || problem.shape.reduce_inner % length != 0) {
    return plan;
  }
  plan.of_runs.shape.reduce_inner /= length;
  plan.of_runs.affine.segment = 1;
  plan.length = length;
  plan.runs = plan.of_runs.shape.numel();
  return plan;
}

/// The places where the runs of each set have left their sums: see Parts in loops.h.
struct RunParts {
  RunPlan plan;

  NORMA_DEVICE Part part(const Place& place) const {
    const int64_t run = place.offset(plan.of_runs.shape);
    return {.sums = 2 * run,
            .second_sums = 2 * run + 1,
            .pivot = run,
            .elements = static_cast<double>(plan.length),
            .weight = plan.of_runs.affine.present ? weight_of(plan.of_runs.affine, place) : 0};
  }
  template <class F>
  NORMA_DEVICE void for_each_of_set(int64_t set, F f) const {
    for (SetElements i(plan.of_runs.shape, set, lane(), kWarp); !i.ended(); i.next()) {
      f(part(i.place()));
    }
  }
  template <class F>
  NORMA_DEVICE void for_each_of_weight(int64_t weight, F f) const {
    const WeightElements elements(plan.of_runs, weight);
    for (int64_t i = lane(); i < elements.count(); i += kWarp) {
      f(part(elements.at(i)));
    }
  }
};

/// Calls f(run, there) for the runs that this thread takes part in. A thread without a run goes along with its warp,
/// for the shuffles: its `there` is false, and its run is the last.
template <class F>
NORMA_DEVICE void for_each_run(const RunPlan& plan, F f) {
  const int64_t step = global_threads() / plan.lanes;
  for (int64_t first = (global_thread() - lane()) / plan.lanes; first < plan.runs; first += step) {
    const int64_t wanted = first + lane() / plan.lanes;
    const bool there = wanted < plan.runs;
    f(there ? wanted : plan.runs - 1, there);
  }
}

/// Calls f(first element, begin, end) for this lane's vectors of `width` of a run that begins at `base`. Elements begin
/// to end of the vector belong to the run. The first element may lie before the run.
template <int width, bool shared, class F>
NORMA_DEVICE void for_each_vector(const RunPlan& plan, int64_t base, F f) {
  const int rank = lane() & (plan.lanes - 1);
  const int before = shared ? static_cast<int>(base % width) : 0;
  for (int64_t i = rank * width - before; i < plan.length; i += plan.lanes * width) {
    if constexpr (shared) {
      const int64_t left = plan.length - i;
      f(i, i < 0 ? static_cast<int>(-i) : 0, left < width ? static_cast<int>(left) : width);
    } else {
      f(i, 0, width);
    }
  }
}

/// Writes the sums of d and d² with d = x - pivot over each run, and the pivots.
template <class S, int width, bool shared, class T = compute_t<S>>
NORMA_KERNEL void NORMA_LAUNCH_BOUNDS(kRunThreads) add_runs(RunPlan plan, const S* x, T* pivots, double* sums) {
  const LaneTeam team(plan.lanes);
  for_each_run(plan, [&](int64_t run, bool there) {
    const int64_t base = run * plan.length;
    T pivot = 0;
    if (!plan.of_runs.raw_sums()) {  // the mean of the first elements
      const T mine = to_number(x[base + team.rank()]);
      const T first = shuffle(mine, lane() - team.rank());
      pivot = first + team.sum(mine - first) / static_cast<T>(plan.lanes);
    }
    ChainedSums<T> of_lane;
    for_each_vector<width, shared>(plan, base, [&](int64_t i, int begin, int end) {
      T numbers[width];
      load<S, width>(x + base + i, numbers);
      NORMA_UNROLL
      for (int j = 0; j < width; ++j) {
        const T d = j >= begin && j < end ? numbers[j] - pivot : T(0);
        of_lane.add(d, d, d);
      }
      of_lane.have_added(width);
    });
    of_lane.move();
    double sum = of_lane.total_first;
    double squares = of_lane.total_second;
    team.sum(sum, squares);
    if (there && team.rank() == 0) {
      pivots[run] = pivot;
      sums[2 * run] = sum;
      sums[2 * run + 1] = squares;
    }
  });
}

template <class S, int width, bool shared>
NORMA_KERNEL void NORMA_LAUNCH_BOUNDS(kRunThreads) normalize_runs(RunPlan plan, ForwardArrays<S> arrays) {
  using T = compute_t<S>;
  const int rank = lane() & (plan.lanes - 1);
  for_each_run(plan, [&](int64_t run, bool there) {
    const Place place = place_of(plan.of_runs.shape, run);
    const auto normalize = normalizer(arrays, arrays.weight, arrays.bias, place.set(plan.of_runs.shape),
                                      plan.of_runs.affine.present ? weight_of(plan.of_runs.affine, place) : int64_t{0});
    const int64_t base = run * plan.length;
    const auto write = [&](int64_t i, int begin, int end) {
      T x[width];
      load<S, width>(arrays.x + base + i, x);
      return write_normalized(
          arrays, base + i, x, [&](int) { return normalize; }, begin, end);
    };
    if (arrays.bits == nullptr) {
      if (there) {
        for_each_vector<width, shared>(plan, base, write);
      }
      return;
    }
    // All lanes take the same number of rounds, for the shuffles of the bits. Runs are whole vectors.
    for (int64_t round = 0; round < plan.length; round += plan.lanes * width) {
      const int64_t i = round + rank * width;
      const bool writes = there && i < plan.length;
      write_bits<width>(arrays.bits, base + i, writes, writes ? write(i, 0, width) : 0U);
    }
  });
}

// --- backward -------------------------------------------------------------------------------------------------------

/// Loads the constants of a run, once for each element of a vector.
template <class S, int width, class T = compute_t<S>>
NORMA_DEVICE void run_constants(const RunPlan& plan, const BackwardArrays<S>& arrays, const Place& place,
                                ColumnConstants<T> (&constants)[width]) {
  const int64_t set = place.set(plan.of_runs.shape);
  const int64_t weight = plan.of_runs.affine.present ? weight_of(plan.of_runs.affine, place) : 0;
  const ColumnConstants<T> of_run{arrays.mean[set], arrays.mean_low[set], arrays.rstd[set],
                                  arrays.weight == nullptr ? T(1) : arrays.weight[weight],
                                  arrays.bias == nullptr ? T(0) : arrays.bias[weight]};
  NORMA_UNROLL
  for (int j = 0; j < width; ++j) {
    constants[j] = of_run;
  }
}

/// Writes the sum of dz to sums[2 · run], and that of dz · xhat to sums[2 · run + 1].
template <class S, int width, bool shared>
NORMA_KERNEL void NORMA_LAUNCH_BOUNDS(kRunThreads)
    add_run_gradients(RunPlan plan, BackwardArrays<S> arrays, double* sums) {
  using T = compute_t<S>;
  const LaneTeam team(plan.lanes);
  for_each_run(plan, [&](int64_t run, bool there) {
    ColumnConstants<T> constants[width];
    run_constants(plan, arrays, place_of(plan.of_runs.shape, run), constants);
    const int64_t base = run * plan.length;
    ChainedSums<T> of_lane;
    for_each_vector<width, shared>(plan, base, [&](int64_t i, int begin, int end) {
      T x[width];
      load<S, width>(arrays.x + base + i, x);
      T dz[width];
      load_dz(arrays, base + i, constants, x, dz);
      NORMA_UNROLL
      for (int j = 0; j < width; ++j) {
        const bool mine = j >= begin && j < end;
        const T xhat = ((x[j] - constants[j].mean) - constants[j].mean_low) * constants[j].rstd;
        of_lane.add(mine ? dz[j] : T(0), mine ? dz[j] : T(0), mine ? xhat : T(0));
      }
      of_lane.have_added(width);
    });
    of_lane.move();
    double sum = of_lane.total_first;
    double sum_xhat = of_lane.total_second;
    team.sum(sum, sum_xhat);
    if (there && team.rank() == 0) {
      sums[2 * run] = sum;
      sums[2 * run + 1] = sum_xhat;
    }
  });
}

/// Writes dx and dresidual of a run.
template <class S, int width, bool shared, class T = compute_t<S>>
NORMA_DEVICE void write_run(const RunPlan& plan, const BackwardArrays<S>& arrays, const Place& place,
                            const InputGradient<T>& gradient) {
  const bool fixed = plan.of_runs.fixed_stats;
  const int64_t base = place.offset(plan.of_runs.shape) * plan.length;
  ColumnConstants<T> constants[width];
  run_constants(plan, arrays, place, constants);
  const T rstd = constants[0].rstd;
  const T by_dz = rstd * constants[0].weight;
  for_each_vector<width, shared>(plan, base, [&](int64_t i, int begin, int end) {
    const int64_t at = base + i;
    T x[width];
    load<S, width>(arrays.x + at, x);
    T dz[width];
    load_dz(arrays, at, constants, x, dz);
    if (arrays.dresidual != nullptr) {
      store_part<S, width>(arrays.dresidual + at, dz, begin, end);
    }
    if (arrays.dx == nullptr) {
      return;
    }
    NORMA_UNROLL
    for (int j = 0; j < width; ++j) {
      const T xhat = ((x[j] - constants[0].mean) - constants[0].mean_low) * rstd;
      dz[j] = dx_of(fixed, dz[j], by_dz, xhat, gradient);
    }
    store_part<S, width>(arrays.dx + at, dz, begin, end);
  });
}

/// Writes dx and dresidual. gradients: of each set, or null where dx does not need them.
template <class S, int width, bool shared, class T = compute_t<S>>
NORMA_KERNEL void NORMA_LAUNCH_BOUNDS(kRunThreads)
    write_run_gradients(RunPlan plan, BackwardArrays<S> arrays, const InputGradient<T>* gradients) {
  for_each_run(plan, [&](int64_t run, bool there) {
    if (there) {
      const Place place = place_of(plan.of_runs.shape, run);
      write_run<S, width, shared>(plan, arrays, place,
                                  gradients == nullptr ? InputGradient<T>{} : gradients[place.set(plan.of_runs.shape)]);
    }
  });
}

/// The same for sets that have one weight each, of which no other set has any: each block adds the sums of its set up
/// by itself, and one of them writes dweight and dbias. That saves a launch. Each set has `pieces` blocks.
template <class S, int width, bool shared_vectors, class T = compute_t<S>>
NORMA_KERNEL void NORMA_LAUNCH_BOUNDS(kRunThreads)
    write_set_gradients(NormProblem problem, RunPlan plan, BackwardArrays<S> arrays, int pieces, const double* sums) {
  const int64_t set = block() / pieces;
  const int piece = static_cast<int>(block() - set * pieces);
  const int warp = thread() / kWarp;
  T* shared = shared_memory<T>();
  if (warp == 0) {
    const LaneTeam team;
    const double weight = arrays.weight == nullptr ? 1.0 : static_cast<double>(arrays.weight[set]);
    double sum_dz = 0;
    double sum_dz_xhat = 0;
    double sum_g = 0;
    double sum_g_xhat = 0;
    RunParts{plan}.for_each_of_set(set, [&](const Part& part) {
      sum_dz += sums[part.sums];
      sum_dz_xhat += sums[part.second_sums];
      sum_g = fused_multiply_add(weight, sums[part.sums], sum_g);
      sum_g_xhat = fused_multiply_add(weight, sums[part.second_sums], sum_g_xhat);
    });
    team.sum(sum_dz, sum_dz_xhat);
    team.sum(sum_g, sum_g_xhat);
    if (lane() == 0) {
      const auto gradient = input_gradient(problem, arrays.mean[set], arrays.rstd[set], sum_g, sum_g_xhat);
      shared[0] = gradient.by_xhat;
      shared[1] = gradient.shift;
      if (piece == 0) {
        store_weight_gradient(arrays, set, sum_dz, sum_dz_xhat);
      }
    }
  }
  sync_threads();
  const InputGradient<T> gradient{shared[0], shared[1]};
  const int teams = threads() / plan.lanes;
  for (SetElements i(plan.of_runs.shape, set, piece * teams + thread() / plan.lanes, int64_t{pieces} * teams);
       !i.ended(); i.next()) {
    write_run<S, width, shared_vectors>(plan, arrays, i.place(), gradient);
  }
}

/// True iff set and weight have the same number for all elements, or there are no weights.
inline bool has_weight_of_each_set(const NormProblem& problem) {
  const AffineShape& affine = problem.affine;
  return !affine.present || (affine.reduce_outer == 1 && affine.inner == 1 && affine.kept == problem.shape.kept &&
                             affine.outer_period == problem.shape.outer);
}

/// Bytes of shared memory for write_set_gradients().
inline constexpr size_t kPieceBytes = 2 * sizeof(double);

/// Blocks for each set: enough to fill the device some times over, and no more than have work. A grid of 2^31 blocks
/// would have as many sets of 32 elements or more: 137 GB of x alone.
inline int pieces_of_sets(int64_t sets, int64_t runs_of_set, int lanes, int64_t resident) {
  constexpr int64_t kTimes = 4;
  const int64_t most = ceil_div(runs_of_set, kRunThreads / lanes);
  return static_cast<int>(std::clamp<int64_t>(kTimes * resident / sets, 1, most));
}

/// Calls f(std::integral_constant<int, width>, std::bool_constant<shared>, plan) with the plan's lanes for such
/// vectors: 16 bytes if runs consist of them or may share them, four elements if runs consist of these, else one
/// element.
template <class S, class F>
void dispatch_width(RunPlan plan, bool aligned, F&& f) {
  const auto call = [&](auto width, auto shared) {
    constexpr int64_t kVectors = 4;  // of a lane, where runs are so long: what a run costs is shared by more runs
    const int64_t lanes = plan.length / (kVectors * width);
    plan.lanes = 2;
    while (plan.lanes < kWarp && 2 * plan.lanes <= lanes) {
      plan.lanes *= 2;
    }
    f(width, shared, plan);
  };
  constexpr int kWhole = kVectorOf<S>;
  if (aligned && plan.length % kWhole == 0) {
    call(std::integral_constant<int, kWhole>{}, std::false_type{});
  } else if (aligned && plan.length * plan.runs % kWhole == 0) {
    call(std::integral_constant<int, kWhole>{}, std::true_type{});
  } else {
    call(std::integral_constant<int, 1>{}, std::false_type{});
  }
}

bool runs_forward(DType dtype, const NormProblem& problem, const NormPointers& arrays) {
  const RunPlan all_runs = plan_runs(problem);
  if (all_runs.length == 0 || (arrays.bits != nullptr && all_runs.length % 8 != 0)) {
    return false;
  }
  return dispatch_fast(dtype, [&](auto s) {
    using S = decltype(s);
    using T = compute_t<S>;
    const Stream stream = current_stream();
    const ForwardArrays<S> typed(problem, arrays);
    const bool aligned = are_aligned(typed);
    if (arrays.bits != nullptr && !aligned) {  // lanes put bytes of bits together from vectors
      return false;
    }
    dispatch_width<S>(all_runs, aligned, [&](auto width, auto shared, const RunPlan& plan) {
      const int64_t blocks = plan.blocks();
      if (!problem.fixed_stats) {
        const DeviceBuffer<T> pivots(plan.runs);
        const DeviceBuffer<double> sums(2 * plan.runs);
        launch(blocks, kRunThreads, 0, stream, add_runs<S, width, shared>, plan, typed.x, pivots.data(), sums.data());
        launch_loop(kWarp * problem.shape.sets(), finish_statistics<S, RunParts>, problem, RunParts{plan}, typed,
                    pivots.data(), sums.data());
      }
      if (typed.y != nullptr) {
        launch(blocks, kRunThreads, 0, stream, normalize_runs<S, width, shared>, plan, typed);
      }
    });
    return true;
  });
}

bool runs_backward(DType dtype, const NormProblem& problem, const NormPointers& arrays) {
  const RunPlan all_runs = plan_runs(problem);
  if (all_runs.length == 0) {
    return false;
  }
  return dispatch_fast(dtype, [&](auto s) {
    using S = decltype(s);
    using T = compute_t<S>;
    const Stream stream = current_stream();
    const BackwardArrays<S> typed(problem, arrays);
    const bool weights_wanted = arrays.dweight != nullptr || arrays.dbias != nullptr;
    const bool sets_wanted = arrays.dx != nullptr && !problem.fixed_stats;
    const bool writes = arrays.dx != nullptr || arrays.dresidual != nullptr;
    const bool by_set = writes && (sets_wanted || weights_wanted) && has_weight_of_each_set(problem);
    const DeviceBuffer<double> sums(sets_wanted || weights_wanted ? 2 * all_runs.runs : 0);
    const DeviceBuffer<InputGradient<T>> gradients(sets_wanted && !by_set ? problem.shape.sets() : 0);
    dispatch_width<S>(all_runs, are_aligned(typed), [&](auto width, auto shared, const RunPlan& plan) {
      const int64_t blocks = plan.blocks();
      if (sums.data() != nullptr) {
        launch(blocks, kRunThreads, 0, stream, add_run_gradients<S, width, shared>, plan, typed, sums.data());
      }
      if (by_set) {
        const int64_t sets = problem.shape.sets();
        const int pieces =
            pieces_of_sets(sets, plan.runs / sets, plan.lanes,
                           resident_blocks(write_set_gradients<S, width, shared>, kRunThreads, kPieceBytes));
        launch(sets * pieces, kRunThreads, kPieceBytes, stream, write_set_gradients<S, width, shared>, problem, plan,
               typed, pieces, sums.data());
        return;
      }
      if (sums.data() != nullptr) {
        const int64_t sets = sets_wanted ? problem.shape.sets() : 0;
        const int64_t weights = weights_wanted ? problem.affine.numel() : 0;
        launch_loop(kWarp * (sets + weights), finish_gradients<S, RunParts>, problem, sets, weights, RunParts{plan},
                    typed, sums.data(), gradients.data());
      }
      if (writes) {
        launch(blocks, kRunThreads, 0, stream, write_run_gradients<S, width, shared>, plan, typed, gradients.data());
      }
    });
    return true;
  });
}

}  // namespace norma::kernels::NORMA_BACKEND
