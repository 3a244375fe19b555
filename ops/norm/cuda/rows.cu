#include "ops/norm/cuda/loops.h"

#include <algorithm>

// Rows: a set is one run of memory (layer norm over the last axes, layer norm 2d in channels_last, group and instance
// norm in NCHW). A team of threads, some lanes of a warp or a block, holds a row in its registers: x is read once, and
// the variance is taken about the mean.

namespace norma::kernels::NORMA_BACKEND {

/// The plan by which threads share rows: `width` lanes of a warp for each row, or a block of `threads` if width is 0.
/// Each thread holds up to `vectors` vectors of a row.
struct RowPlan {
  int width = 0;
  int threads = 0;
  int vectors = 0;  ///< 0: no row fits

  [[nodiscard]] int64_t rows_of_block() const { return width == 0 ? 1 : threads / width; }
};

/// The elements of a row that a thread's registers hold, by lanes and by blocks, and the most threads of a block.
/// `good_of_lane` are better than more, where there are lanes enough: with 32 in backward, two blocks of 128 threads
/// are all that a processor of an H100 runs at once, and memory waits (45 % of a copy's rate; 59 % with 16, 53 % with
/// 8).
struct RowLimits {
  int good_of_lane;
  int of_lane;
  int of_thread;
  int threads;
};
inline constexpr RowLimits kForwardLimits{.good_of_lane = 64, .of_lane = 64, .of_thread = 32, .threads = 512};
/// Backward holds x, dz and both gradients of the weights.
inline constexpr RowLimits kBackwardLimits{.good_of_lane = 16, .of_lane = 32, .of_thread = 16, .threads = 512};

/// The plan for rows of `row_vectors` vectors of `vector` elements.
inline RowPlan plan_rows(int64_t row_vectors, int vector, const RowLimits& limits) {
  constexpr int kLaneThreads = 128;
  const auto held = [](int64_t vectors) { return static_cast<int>(vectors <= 4 ? vectors : 8); };
  for (const int most : {limits.good_of_lane, limits.of_lane}) {
    for (const int width : {4, 8, 16, 32}) {
      const int64_t vectors = ceil_div(row_vectors, width);
      if (held(vectors) * vector <= most && vectors <= (width == 32 ? 8 : 4)) {
        return {width, kLaneThreads, held(vectors)};
      }
    }
  }
  for (int threads = 128; threads <= limits.threads; threads *= 2) {
    const int64_t vectors = ceil_div(row_vectors, threads);
    if (held(vectors) * vector <= limits.of_thread && vectors <= 8) {
      // No warp more than the row fills: each adds up the sums of all warps by itself.
      const int64_t full = ceil_div(row_vectors, held(vectors));
      return {0, static_cast<int>(ceil_div(full, kWarp) * kWarp), held(vectors)};
    }
  }
  return {};
}

/// Calls f(std::integral_constant<int, vectors>) for the numbers that plan_rows() gives within a limit.
template <int vector, int limit, class F>
void dispatch_vectors(int vectors, F&& f) {
  const auto call = [&](auto constant) {
    if constexpr (constant * vector <= limit) {
      f(constant);
    }
  };
  switch (vectors) {
    case 1: return call(std::integral_constant<int, 1>{});
    case 2: return call(std::integral_constant<int, 2>{});
    case 3: return call(std::integral_constant<int, 3>{});
    case 4: return call(std::integral_constant<int, 4>{});
    default: return call(std::integral_constant<int, 8>{});
  }
}

/// The part of a row that a thread holds: vectors number rank, rank + size, … of it.
template <class S, int vectors>
struct Held {
  static constexpr int kWidth = kVectorOf<S>;
  using T = compute_t<S>;
  T numbers[vectors][kWidth];

  /// Loads the vectors that exist.
  template <class Team>
  NORMA_DEVICE void load_row(const S* row, int row_vectors, const Team& team) {
    NORMA_UNROLL
    for (int v = 0; v < vectors; ++v) {
      const int i = team.rank() + v * team.size();
      if (i < row_vectors) {
        load<S, kWidth>(row + i * kWidth, numbers[v]);
      }
    }
  }
};

/// Loads the weights of a vector's elements, from element `first` of a row on; without weights all are `otherwise`.
template <class T, int width>
NORMA_DEVICE void load_weights(const T* weights, int first, T otherwise, T (&to)[width]) {
  if (weights != nullptr) {
    load<T, width>(weights + first, to);
    return;
  }
  NORMA_UNROLL
  for (int j = 0; j < width; ++j) {
    to[j] = otherwise;
  }
}

/// Loads rstd · weight and bias of a vector's elements, from element `first` of a row on. `weights` and `biases` begin
/// with those of the row's first element, or are null.
template <class T, int width>
NORMA_DEVICE void load_scales(const AffineShape& affine, const T* weights, const T* biases, int first, T rstd,
                              T (&scales)[width], T (&shifts)[width]) {
  const int segment = static_cast<int>(affine.segment);
  if (weights == nullptr || segment == 1) {
    load_weights(weights, first, T(1), scales);
    load_weights(biases, first, T(0), shifts);
    NORMA_UNROLL
    for (int j = 0; j < width; ++j) {
      scales[j] *= rstd;
    }
    return;
  }
  int at = affine.inner == 1 ? 0 : first / segment;
  int left = segment - (first - at * segment);
  if (segment >= width) {  // two weights at most: both are multiplied before one of them is chosen for each element
    const int next = left < width ? at + 1 : at;
    const T scale = rstd * weights[at];
    const T next_scale = rstd * weights[next];
    const T shift = biases[at];
    const T next_shift = biases[next];
    NORMA_UNROLL
    for (int j = 0; j < width; ++j) {
      scales[j] = j < left ? scale : next_scale;
      shifts[j] = j < left ? shift : next_shift;
    }
    return;
  }
  NORMA_UNROLL
  for (int j = 0; j < width; ++j) {
    scales[j] = rstd * weights[at];
    shifts[j] = biases[at];
    if (--left == 0) {
      ++at;
      left = segment;
    }
  }
}

NORMA_DEVICE int64_t row_weights(const AffineShape& affine, int64_t row) {
  return affine.outer_period == 1 ? 0 : row % affine.outer_period * affine.inner;
}

/// The statistics of a row that a team holds. First comes the mean, then the squares about it; the sum beside them
/// gives what the mean lost to rounding. So they are exact whatever the pivot.
template <class S, bool plain, int vectors, class Team, class T = compute_t<S>>
NORMA_DEVICE SetStatistics<T> held_statistics(const NormProblem& problem, const NearStatistics<T>& statistics,
                                              const Held<S, vectors>& held, T pivot, int row_vectors,
                                              const Team& team) {
  constexpr int kWidth = kVectorOf<S>;
  /// Calls f(x) for each element that the thread holds.
  const auto for_each = [&](auto f) {
    NORMA_UNROLL
    for (int v = 0; v < vectors; ++v) {
      if (team.rank() + v * team.size() < row_vectors) {
        NORMA_UNROLL
        for (int j = 0; j < kWidth; ++j) {
          f(held.numbers[v][j]);
        }
      }
    }
  };
  const bool raw = !plain && problem.raw_sums();
  T mean = 0;
  T mean_low = 0;
  if (!raw) {
    T sum = 0;
    for_each([&](T x) { sum += x - pivot; });
    statistics.near_mean(pivot, team.sum(sum), mean, mean_low);
  }
  T sum = 0;
  T squares = 0;
  for_each([&](T x) {
    const T d = (x - mean) - mean_low;
    sum += d;
    squares = fused_multiply_add(d, d, squares);
  });
  team.sum(sum, squares);
  if (raw && problem.centring != Centring::none) {
    return statistics_of<T>(problem, {0, static_cast<double>(sum), static_cast<double>(squares)});
  }
  return statistics.of(mean, mean_low, sum, squares);
}

/// `plain`: see is_plain(). Those who train networks run it for most rows, with half of the instructions.
template <class S, int vectors, bool by_block, bool plain>
NORMA_KERNEL void NORMA_LAUNCH_BOUNDS(by_block ? 512 : 128)
    normalize_rows(NormProblem problem, NearStatistics<compute_t<S>> statistics, ForwardArrays<S> arrays, int width) {
  using T = compute_t<S>;
  constexpr int kWidth = kVectorOf<S>;
  const auto team = row_team<by_block>(width);
  const int64_t count = problem.shape.reduce_inner;
  const int row_vectors = static_cast<int>(count / kWidth);
  const int64_t rows_of_block = threads() / team.size();
  for (int64_t first = block() * rows_of_block; first < problem.shape.outer; first += blocks() * rows_of_block) {
    const int64_t wanted = first + thread() / team.size();
    const bool there = wanted < problem.shape.outer;  // lanes without a row go along for the shuffles
    const int64_t row = there ? wanted : problem.shape.outer - 1;
    const S* x = arrays.x + row * count;
    Held<S, vectors> held;
    held.load_row(x, row_vectors, team);
    SetStatistics<T> of_row{};
    if (!plain && problem.fixed_stats) {
      of_row.mean = arrays.mean[row];
      of_row.mean_low = arrays.mean_low[row];
      of_row.rstd = arrays.rstd[row];
    } else {
      of_row = held_statistics<S, plain>(problem, statistics, held, to_number(x[0]), row_vectors, team);
      if (team.any(of_row.lost)) {
        const auto scaled = scaled_statistics(problem, arrays.x, row, team, of_row);
        of_row = of_row.lost ? scaled : of_row;
      }
      if (there && team.rank() == 0) {
        store_set(arrays, row, of_row);
      }
    }
    if (arrays.y == nullptr) {
      continue;
    }
    if constexpr (plain) {
      NORMA_UNROLL
      for (int v = 0; v < vectors; ++v) {
        const int i = team.rank() + v * team.size();
        if (there && i < row_vectors) {
          T weight[kWidth];
          T bias[kWidth];
          load<T, kWidth>(arrays.weight + i * kWidth, weight);
          load<T, kWidth>(arrays.bias + i * kWidth, bias);
          T y[kWidth];
          NORMA_UNROLL
          for (int j = 0; j < kWidth; ++j) {
            y[j] = Normalizer<T>{of_row.mean, of_row.mean_low, of_row.rstd * weight[j], bias[j]}(held.numbers[v][j]);
          }
          store<S, kWidth>(arrays.y + row * count + i * kWidth, y);
        }
      }
      continue;
    }
    const int64_t at_weight = row_weights(problem.affine, row);
    const T* weights = arrays.weight == nullptr ? nullptr : arrays.weight + at_weight;
    const T* biases = arrays.bias == nullptr ? nullptr : arrays.bias + at_weight;
    NORMA_UNROLL
    for (int v = 0; v < vectors; ++v) {
      const int i = team.rank() + v * team.size();
      const int64_t at = row * count + i * kWidth;
      const bool writes = there && i < row_vectors;
      unsigned positive = 0;
      if (writes) {
        T scales[kWidth];
        T shifts[kWidth];
        load_scales(problem.affine, weights, biases, i * kWidth, of_row.rstd, scales, shifts);
        positive = write_normalized(arrays, at, held.numbers[v], [&](int j) {
          return Normalizer<T>{of_row.mean, of_row.mean_low, scales[j], shifts[j]};
        });
      }
      write_bits<kWidth>(arrays.bits, at, writes, positive);
    }
  }
}

// --- backward -------------------------------------------------------------------------------------------------------

/// Writes dx and dresidual of rows, and each block's part of the weight gradients: `partials` has for each block a row
/// for the weights and one for the biases, or is null. Weights vary from element to element and are the same for all
/// rows.
template <class S, int vectors, bool by_block>
NORMA_KERNEL void NORMA_LAUNCH_BOUNDS(by_block ? 512 : 128)
    row_gradients(NormProblem problem, InputGradients gradients, BackwardArrays<S> arrays, int width,
                  compute_t<S>* partials) {
  using T = compute_t<S>;
  constexpr int kWidth = kVectorOf<S>;
  const auto team = row_team<by_block>(width);
  const int64_t count = problem.shape.reduce_inner;
  const int row_vectors = static_cast<int>(count / kWidth);
  const int64_t rows_of_block = threads() / team.size();
  T dweight[vectors][kWidth] = {};
  T dbias[vectors][kWidth] = {};
  for (int64_t first = block() * rows_of_block; first < problem.shape.outer; first += blocks() * rows_of_block) {
    const int64_t wanted = first + thread() / team.size();
    const bool there = wanted < problem.shape.outer;
    const int64_t row = there ? wanted : problem.shape.outer - 1;
    const int64_t at = row * count;
    const T mean = arrays.mean[row];
    const T mean_low = arrays.mean_low[row];
    const T rstd = arrays.rstd[row];
    Held<S, vectors> x;
    x.load_row(arrays.x + at, row_vectors, team);
    Held<S, vectors> dz;
    dz.load_row(arrays.dy + at, row_vectors, team);
    T sum = 0;
    T sum_xhat = 0;
    NORMA_UNROLL
    for (int v = 0; v < vectors; ++v) {
      const int i = team.rank() + v * team.size();
      if (!there || i >= row_vectors) {
        continue;
      }
      T weight[kWidth];
      load_weights(arrays.weight, i * kWidth, T(1), weight);
      T bias[kWidth] = {};
      if (arrays.bits == nullptr && arrays.activation != Activation::identity) {
        load_weights(arrays.bias, i * kWidth, T(0), bias);
      }
      through_activations(
          arrays, at + i * kWidth, x.numbers[v],
          [&](int j) {
            return Normalizer<T>{mean, mean_low, rstd * weight[j], bias[j]};
          },
          dz.numbers[v]);
      NORMA_UNROLL
      for (int j = 0; j < kWidth; ++j) {
        const T xhat = ((x.numbers[v][j] - mean) - mean_low) * rstd;
        const T g = dz.numbers[v][j] * weight[j];
        sum += g;
        sum_xhat = fused_multiply_add(g, xhat, sum_xhat);
        dweight[v][j] = fused_multiply_add(dz.numbers[v][j], xhat, dweight[v][j]);
        dbias[v][j] += dz.numbers[v][j];
      }
      if (arrays.dresidual != nullptr) {
        store<S, kWidth>(arrays.dresidual + at + i * kWidth, dz.numbers[v]);
      }
    }
    if (arrays.dx == nullptr) {
      continue;
    }
    InputGradient<T> gradient{};
    if (!problem.fixed_stats) {
      team.sum(sum, sum_xhat);
      gradient = gradients.of<T>(static_cast<double>(mean), static_cast<double>(rstd), static_cast<double>(sum),
                                 static_cast<double>(sum_xhat));
    }
    NORMA_UNROLL
    for (int v = 0; v < vectors; ++v) {
      const int i = team.rank() + v * team.size();
      if (!there || i >= row_vectors) {
        continue;
      }
      T dx[kWidth];
      load_weights(arrays.weight, i * kWidth, T(1), dx);
      NORMA_UNROLL
      for (int j = 0; j < kWidth; ++j) {
        const T by_dz = rstd * dx[j];
        const T xhat = ((x.numbers[v][j] - mean) - mean_low) * rstd;
        dx[j] = dx_of(problem.fixed_stats, dz.numbers[v][j], by_dz, xhat, gradient);
      }
      store<S, kWidth>(arrays.dx + at + i * kWidth, dx);
    }
  }
  if (partials == nullptr) {
    return;
  }
  T* of_block = partials + 2 * block() * count;
  // The teams of a block come together in shared memory, each with a row for the weights and one for the biases.
  T* of_team = by_block ? of_block : shared_memory<T>() + 2 * (thread() / team.size()) * count;
  NORMA_UNROLL
  for (int v = 0; v < vectors; ++v) {
    const int i = team.rank() + v * team.size();
    for (int j = 0; j < kWidth && i < row_vectors; ++j) {
      of_team[i * kWidth + j] = dweight[v][j];
      of_team[count + i * kWidth + j] = dbias[v][j];
    }
  }
  if constexpr (!by_block) {
    sync_threads();
    const T* shared = shared_memory<T>();
    for (int i = thread(); i < 2 * count; i += threads()) {
      T sum = shared[i];
      for (int of = 1; of < static_cast<int>(rows_of_block); ++of) {
        sum += shared[2 * of * count + i];
      }
      of_block[i] = sum;
    }
  }
}

// --- which rows -----------------------------------------------------------------------------------------------------

/// True iff all that is asked for is y = (x - mean) · rstd · weight + bias, with weights that vary along the row alone.
template <class S>
bool is_plain(const NormProblem& problem, const ForwardArrays<S>& arrays) {
  const AffineShape& affine = problem.affine;
  return !problem.fixed_stats && !problem.raw_sums() && problem.centring == Centring::mean &&
         affine.outer_period == 1 && affine.segment == 1 && affine.inner == problem.shape.reduce_inner &&
         arrays.weight != nullptr && arrays.bias != nullptr && arrays.y != nullptr && arrays.residual == nullptr &&
         arrays.bits == nullptr && arrays.activation == Activation::identity;
}

bool rows_forward(DType dtype, const NormProblem& problem, const NormPointers& arrays) {
  if (!problem.shape.set_is_one_run() || arrays.running.mean != nullptr) {
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
    const auto run = [&](auto kernel, size_t shared_bytes) {
      constexpr int64_t kTimes = 4;  // as many blocks as run together: the last ones end at about the same time
      const int64_t resident = resident_blocks(kernel, plan.threads, shared_bytes);
      const int64_t blocks = std::min(ceil_div(problem.shape.outer, plan.rows_of_block()), kTimes * resident);
      launch(blocks, plan.threads, shared_bytes, current_stream(), kernel, problem,
             NearStatistics<compute_t<S>>(problem), typed, plan.width);
    };
    const bool plain = is_plain(problem, typed);
    if (plan.width > 0) {
      dispatch_vectors<kWidth, kForwardLimits.of_lane>(plan.vectors, [&](auto vectors) {
        run(plain ? normalize_rows<S, vectors, false, true> : normalize_rows<S, vectors, false, false>, 0);
      });
    } else {
      dispatch_vectors<kWidth, kForwardLimits.of_thread>(plan.vectors, [&](auto vectors) {
        run(plain ? normalize_rows<S, vectors, true, true> : normalize_rows<S, vectors, true, false>,
            BlockTeam::kBytes);
      });
    }
    return true;
  });
}

bool rows_backward(DType dtype, const NormProblem& problem, const NormPointers& arrays) {
  const AffineShape& affine = problem.affine;
  const bool weights_wanted = arrays.dweight != nullptr || arrays.dbias != nullptr;
  const bool by_element = affine.segment == 1 && affine.inner == problem.shape.reduce_inner && affine.outer_period == 1;
  if (!problem.shape.set_is_one_run() || (affine.present && !by_element)) {
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
    const auto run = [&](auto kernel, size_t shared_bytes) {
      // Each block leaves a part of the weights' gradients, so there are no more than run at the same time.
      const int64_t resident = resident_blocks(kernel, plan.threads, shared_bytes);
      const int64_t blocks = std::min(ceil_div(problem.shape.outer, plan.rows_of_block()), resident);
      const DeviceBuffer<T> partials(weights_wanted ? 2 * blocks * count : 0);
      launch(blocks, plan.threads, shared_bytes, current_stream(), kernel, problem, InputGradients(problem), typed,
             plan.width, partials.data());
      if (weights_wanted) {
        launch_add_partials(count, blocks, partials.data(), typed.dweight, typed.dbias);
      }
    };
    if (plan.width > 0) {
      const size_t of_teams = weights_wanted ? 2 * plan.rows_of_block() * count * sizeof(T) : 0;
      dispatch_vectors<kWidth, kBackwardLimits.of_lane>(
          plan.vectors, [&](auto vectors) { run(row_gradients<S, vectors, false>, of_teams); });
    } else {
      dispatch_vectors<kWidth, kBackwardLimits.of_thread>(
          plan.vectors, [&](auto vectors) { run(row_gradients<S, vectors, true>, BlockTeam::kBytes); });
    }
    return true;
  });
}

}  // namespace norma::kernels::NORMA_BACKEND
