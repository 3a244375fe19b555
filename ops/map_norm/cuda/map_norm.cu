#include "core/cuda/math.h"
#include "core/cuda/number.h"
#include "core/cuda/row_teams.h"
#include "ops/map_norm/functions.h"
#include "ops/map_norm/kernels.h"
#include "ops/map_norm/numbers.h"

#include <cmath>

// The kernels of the norms that are maps, and their table.

namespace norma::kernels::NORMA_BACKEND {

// --- maps -----------------------------------------------------------------------------------------------------------

// y and dx of a MapFunction. A thread has some neighbouring elements: of one map, or in channels_last of as many maps.

/// The number of neighbouring elements of one thread, if the tensor consists of so many.
template <class S>
inline constexpr int kMapVector = sizeof(S) == 8 ? 2 : 4;

/// The first `count` rows of an array of (rows, maps), for `width` neighbouring elements.
template <class T, int count, int width>
class ElementNumbers {
 public:
  /// Loads them from the first element's map on. `neighbours`: the elements belong to neighbouring maps, else to one.
  NORMA_DEVICE ElementNumbers(const T* all, int64_t maps, int64_t map, bool neighbours) {
    NORMA_UNROLL
    for (int k = 0; k < count; ++k) {
      const T* row = all + k * maps + map;
      if (neighbours) {
        load<T, width>(row, numbers_[k]);
      } else {
        NORMA_UNROLL
        for (int j = 0; j < width; ++j) {
          numbers_[k][j] = *row;
        }
      }
    }
  }
  /// The numbers of element `j`, in the form that the formulas take.
  NORMA_DEVICE auto of(int j) const {
    return [this, j](int k) { return numbers_[k][j]; };
  }

 private:
  T numbers_[count][width];
};

/// The map of element i.
NORMA_DEVICE int64_t map_of(const MapShape& shape, int64_t i) {
  if (!shape.channels_last) {
    return quotient(i, shape.inner);
  }
  const int64_t row = quotient(i, shape.channels);
  return quotient(row, shape.inner) * shape.channels + (i - row * shape.channels);
}

template <class F, class T, class N>
NORMA_DEVICE T map_value(bool relu, const T& x, const N& n) {
  return relu ? WithRelu<F>::value(x, n) : F::value(x, n);
}
template <class F, class T, class N>
NORMA_DEVICE Derivatives<T> map_derivatives(bool relu, const T& dy, const T& x, const N& n) {
  return relu ? WithRelu<F>::derivatives(dy, x, n) : F::derivatives(dy, x, n);
}

template <class F, class S, int width, class T = compute_t<S>>
NORMA_KERNEL void map_values(MapShape shape, bool relu, TypedMapArrays<S> a) {
  const int64_t vectors = shape.maps() * shape.inner / width;
  for (int64_t v = global_thread(); v < vectors; v += global_threads()) {
    const int64_t i = v * width;
    const ElementNumbers<T, map_counts(F::kFunction).numbers, width> of(a.numbers, shape.maps(), map_of(shape, i),
                                                                        shape.channels_last);
    T values[width];
    load<S, width>(a.x + i, values);
    NORMA_UNROLL
    for (int j = 0; j < width; ++j) {
      values[j] = map_value<F>(relu, values[j], of.of(j));
    }
    store<S, width>(a.result + i, values);
  }
}

template <class F, class S, int width>
NORMA_KERNEL void map_gradients(MapShape shape, bool relu, TypedMapArrays<S> a) {
  using T = compute_t<S>;
  const int64_t vectors = shape.maps() * shape.inner / width;
  for (int64_t v = global_thread(); v < vectors; v += global_threads()) {
    const int64_t i = v * width;
    const int64_t map = map_of(shape, i);
    const ElementNumbers<T, map_counts(F::kFunction).numbers, width> of(a.numbers, shape.maps(), map,
                                                                        shape.channels_last);
    const ElementNumbers<T, kThroughStatsRows, width> stats(a.through_stats, shape.maps(), map, shape.channels_last);
    T dy[width];
    T values[width];
    load<S, width>(a.dy + i, dy);
    load<S, width>(a.x + i, values);
    NORMA_UNROLL
    for (int j = 0; j < width; ++j) {
      const auto of_stats = stats.of(j);
      const T centred = ((values[j] - of_stats(kMean)) - of_stats(kMeanLow)) * of_stats(kRstd);
      const T through_stats = fused_multiply_add(centred, of_stats(kBy), of_stats(kShift));
      values[j] = map_derivatives<F>(relu, dy[j], values[j], of.of(j)).slope + through_stats;
    }
    store<S, width>(a.result + i, values);
  }
}

/// Calls f(width) for the neighbouring elements of a thread: a vector of kMapVector<S> if all arrays load such vectors,
/// and a vector has one map or as many as elements; else 1.
template <class S, class F>
void with_map_width(const MapShape& shape, const TypedMapArrays<S>& a, F&& f) {
  const int64_t neighbours = shape.channels_last ? shape.channels : shape.inner;
  if (are_aligned(a.dy, a.x, a.numbers, a.through_stats, a.result) && neighbours % kMapVector<S> == 0) {
    f(std::integral_constant<int, kMapVector<S>>{});
  } else {
    f(std::integral_constant<int, 1>{});
  }
}

/// Calls f(F{}, arrays with types) for the function and the dtype of a call.
template <class G>
void with_typed_maps(DType dtype, const MapProblem& problem, const MapArrays& arrays, G&& g) {
  dispatch_any_floating("map_norm", dtype, [&]<class S>(S) {
    with_function(problem.function, [&]<class F>(F f) { g(f, TypedMapArrays<S>(arrays)); });
  });
}

inline constexpr int kMapThreads = 256;

inline void map_forward(DType dtype, const MapProblem& problem, const MapArrays& arrays) {
  const MapShape& shape = problem.shape;
  with_typed_maps(dtype, problem, arrays, [&]<class F, class S>(F, const TypedMapArrays<S>& a) {
    with_map_width(shape, a, [&](auto width) {
      launch_over(shape.maps() * shape.inner / width, kMapThreads, map_values<F, S, width>, shape, problem.relu, a);
    });
  });
}

inline void map_gradient(DType dtype, const MapProblem& problem, const MapArrays& arrays) {
  const MapShape& shape = problem.shape;
  with_typed_maps(dtype, problem, arrays, [&]<class F, class S>(F, const TypedMapArrays<S>& a) {
    if constexpr (has_map_stats(F::kFunction)) {
      with_map_width(shape, a, [&](auto width) {
        launch_over(shape.maps() * shape.inner / width, kMapThreads, map_gradients<F, S, width>, shape, problem.relu,
                    a);
      });
    }
  });
}

// --- numbers --------------------------------------------------------------------------------------------------------

// The work done once for each map: the formulas of ops/map_norm/numbers.h, with a thread for each map, and the totals
// that they need.

/// totals[set] = the total of Formulas::response() over its maps.
template <class Formulas, class T, bool by_block>
NORMA_KERNEL void add_responses(Maps<T> m, int lanes, double* totals) {
  constexpr MapSet kSet = Formulas::kResponses;
  for_each_row<by_block>(m.count_of(kSet), lanes, [&](const auto& team, int64_t set, bool there) {
    double total = 0;
    for (int64_t i = team.rank(); there && i < m.size_of(kSet); i += team.size()) {
      total += Formulas::response(m, m.member(kSet, set, i));
    }
    total = team.sum(total);
    if (there && team.rank() == 0) {
      totals[set] = total;
    }
  });
}

/// The total for a map; 0 if there are no totals.
template <MapSet kind, class T>
NORMA_DEVICE double total_of(const Maps<T>& m, const double* totals, int64_t map) {
  if constexpr (kind == MapSet::none) {
    return 0;
  } else {
    return totals[m.set_of(kind, map)];
  }
}

/// totals[set] = the total of Formulas::share() over its maps.
template <class Formulas, class T, bool by_block>
NORMA_KERNEL void add_shares(Maps<T> m, int lanes, const double* responses, double* sums, double* totals) {
  constexpr MapSet kSet = Formulas::kTotals;
  for_each_row<by_block>(m.count_of(kSet), lanes, [&](const auto& team, int64_t set, bool there) {
    double total = 0;
    for (int64_t i = team.rank(); there && i < m.size_of(kSet); i += team.size()) {
      const int64_t map = m.member(kSet, set, i);
      total += Formulas::share(m, map, total_of<Formulas::kResponses>(m, responses, map),
                               MapColumn<double>(sums, m.maps, map));
    }
    total = team.sum(total);
    if (there && team.rank() == 0) {
      totals[set] = total;
    }
  });
}

template <class Formulas, class T>
NORMA_KERNEL void make_numbers(Maps<T> m, const double* responses, T* numbers) {
  for (int64_t map = global_thread(); map < m.maps; map += global_threads()) {
    Formulas::numbers(m, map, total_of<Formulas::kResponses>(m, responses, map), MapColumn<T>(numbers, m.maps, map));
  }
}

template <class Formulas, class T>
NORMA_KERNEL void finish_sums(Maps<T> m, const double* responses, const double* totals, double* sums,
                              T* through_stats) {
  for (int64_t map = global_thread(); map < m.maps; map += global_threads()) {
    Formulas::finish(m, map, total_of<Formulas::kResponses>(m, responses, map),
                     total_of<Formulas::kTotals>(m, totals, map), MapColumn<double>(sums, m.maps, map),
                     MapColumn<T>(through_stats, m.maps, map));
  }
}

/// to[i] = the sum of x[i], x[i + step], … (`length` numbers).
template <bool by_block>
NORMA_KERNEL void add_with_step(int64_t count, int64_t length, int64_t step, int lanes, const double* x, double* to) {
  for_each_row<by_block>(count, lanes, [&](const auto& team, int64_t i, bool there) {
    double sum = 0;
    for (int64_t k = team.rank(); there && k < length; k += team.size()) {
      sum += x[i + k * step];
    }
    sum = team.sum(sum);
    if (there && team.rank() == 0) {
      to[i] = sum;
    }
  });
}

template <class T>
RowTeams teams_of(const Maps<T>& m, MapSet kind) {
  return teams_of_rows(m.count_of(kind), m.size_of(kind), /* side_by_side= */ kind == MapSet::channel);
}

/// The totals of the responses; empty if there are none.
template <class Formulas, class T>
class Responses {
 public:
  explicit Responses(const Maps<T>& m)
      : totals_(Formulas::kResponses == MapSet::none ? 0 : m.count_of(Formulas::kResponses)) {
    if constexpr (Formulas::kResponses != MapSet::none) {
      with_row_teams(teams_of(m, Formulas::kResponses), [&](auto by_block, const RowTeams& teams, size_t shared_bytes) {
        launch(teams.blocks, teams.threads, shared_bytes, current_stream(), add_responses<Formulas, T, by_block>, m,
               teams.lanes, totals_.data());
      });
    }
  }
  /// The address, for kernels.
  [[nodiscard]] const double* data() const { return totals_.data(); }

 private:
  DeviceBuffer<double> totals_;
};

inline void map_numbers(DType dtype, const MapProblem& problem, const MapSources& sources, void* numbers) {
  with_map_numbers(dtype, problem, sources, [&]<class Formulas, class T>(Formulas, const Maps<T>& m) {
    const Responses<Formulas, T> responses(m);
    launch_over(m.maps, kMapThreads, make_numbers<Formulas, T>, m, responses.data(), static_cast<T*>(numbers));
  });
}

inline void map_numbers_backward(DType dtype, const MapProblem& problem, const MapSources& sources,
                                 const MapNumbersBackward& arrays) {
  with_map_numbers(dtype, problem, sources, [&]<class Formulas, class T>(Formulas, const Maps<T>& m) {
    constexpr MapSet kTotals = Formulas::kTotals;
    const Responses<Formulas, T> responses(m);
    const DeviceBuffer<double> totals(kTotals == MapSet::none ? 0 : m.count_of(kTotals));
    if constexpr (kTotals != MapSet::none) {
      with_row_teams(teams_of(m, kTotals), [&](auto by_block, const RowTeams& teams, size_t shared_bytes) {
        launch(teams.blocks, teams.threads, shared_bytes, current_stream(), add_shares<Formulas, T, by_block>, m,
               teams.lanes, responses.data(), arrays.sums, totals.data());
      });
    }
    launch_over(m.maps, kMapThreads, finish_sums<Formulas, T>, m, responses.data(), totals.data(), arrays.sums,
                static_cast<T*>(arrays.through_stats));
    for (int i = 0; i < kMaxMapParameters; ++i) {
      if (arrays.parameters[i] == nullptr) {
        continue;
      }
      const bool of_all = i < Formulas::kOfAll;
      const int64_t count = of_all ? 1 : m.channels;
      const int64_t length = m.maps / count;
      const int64_t step = of_all ? 1 : m.channels;
      const RowTeams of_parameter = teams_of_rows(count, length, /* side_by_side= */ !of_all);
      with_row_teams(of_parameter, [&](auto by_block, const RowTeams& teams, size_t shared_bytes) {
        launch(teams.blocks, teams.threads, shared_bytes, current_stream(), add_with_step<by_block>, count, length,
               step, teams.lanes, arrays.sums + Formulas::kGradientRows[i] * m.maps, arrays.parameters[i]);
      });
    }
  });
}

// --- sums -----------------------------------------------------------------------------------------------------------

// The sums over maps for the gradients of their numbers, and dx where there are no stats. Two walks: in runs, a map is
// one run of memory and has a team of threads; in columns (channels_last), neighbouring lanes have neighbouring maps
// and the warps share their pixels.

/// The sums of one thread: in T over some elements, then in double.
template <class T, int count>
class TermSums {
 public:
  NORMA_DEVICE void add(const Terms<T>& terms) {
    const T all[5] = {terms.a, terms.b, terms.c, terms.d, terms.e};
    NORMA_UNROLL
    for (int k = 0; k < count; ++k) {
      chains_[k] += all[k];
    }
    if (++length_ == kLongest) {
      move();
    }
  }
  /// Must be called after the last add().
  NORMA_DEVICE void move() {
    NORMA_UNROLL
    for (int k = 0; k < count; ++k) {
      totals_[k] += static_cast<double>(chains_[k]);
      chains_[k] = T(0);
    }
    length_ = 0;
  }
  NORMA_DEVICE double operator[](int k) const { return totals_[k]; }

 private:
  static constexpr int kLongest = 32;

  T chains_[count] = {};
  double totals_[count] = {};
  int length_ = 0;
};

/// Adds the terms of the elements from i on, and writes dx if there is one.
template <class F, int width, class S, class N, class Sums>
NORMA_DEVICE void add_terms(bool relu, const TypedMapArrays<S>& a, int64_t i, const N& numbers, Sums& sums) {
  using T = compute_t<S>;
  T dy[width];
  T x[width];
  load<S, width>(a.dy + i, dy);
  load<S, width>(a.x + i, x);
  NORMA_UNROLL
  for (int j = 0; j < width; ++j) {
    const Derivatives<T> both = map_derivatives<F>(relu, dy[j], x[j], numbers);
    sums.add(both.terms);
    dy[j] = both.slope;
  }
  if constexpr (!has_map_stats(F::kFunction)) {
    store<S, width>(a.result + i, dy);
  }
}

template <class F, class S, int width, bool by_block>
NORMA_KERNEL void sums_of_runs(MapShape shape, bool relu, int lanes, TypedMapArrays<S> a) {
  using T = compute_t<S>;
  constexpr int kSums = map_counts(F::kFunction).sums;
  for_each_row<by_block>(shape.maps(), lanes, [&](const auto& team, int64_t map, bool there) {
    const ElementNumbers<T, map_counts(F::kFunction).numbers, 1> numbers(a.numbers, shape.maps(), map,
                                                                         /* neighbours= */ false);
    TermSums<T, kSums> sums;
    for (int64_t v = team.rank(); there && v < shape.inner / width; v += team.size()) {
      add_terms<F, width>(relu, a, map * shape.inner + v * width, numbers.of(0), sums);
    }
    sums.move();
    for (int k = 0; k < kSums; ++k) {
      const double total = team.sum(sums[k]);
      if (there && team.rank() == 0) {
        a.sums[k * shape.maps() + map] = total;
      }
    }
  });
}

/// The pixels of an image that a block takes, and the number of such chunks in an image.
struct MapChunks {
  int64_t pixels;
  int64_t count;
  int warps;  ///< of the block

  explicit MapChunks(const MapShape& shape) {
    constexpr int64_t kFewest = 128;
    constexpr int64_t kMostChunks = 128;
    const int64_t wanted = std::clamp<int64_t>(shape.inner / kFewest, 1, kMostChunks);
    pixels = ceil_div(shape.inner, wanted);
    count = ceil_div(shape.inner, pixels);
    warps = static_cast<int>(std::clamp<int64_t>(pixels / 4, 1, 8));
  }
};

/// partial: (chunks, sums, maps). A block has 32 neighbouring channels of one chunk. Its shared memory has a number for
/// each thread and sum.
template <class F, class S>
NORMA_KERNEL void sums_of_columns(MapShape shape, bool relu, MapChunks chunks, TypedMapArrays<S> a, double* partial) {
  using T = compute_t<S>;
  constexpr int kSums = map_counts(F::kFunction).sums;
  const int64_t groups = ceil_div(shape.channels, kWarp);
  const int64_t rest = quotient(block(), groups);
  const int64_t channel = (block() - rest * groups) * kWarp + lane();
  const int64_t outer = quotient(rest, chunks.count);
  const int64_t chunk = rest - outer * chunks.count;
  const bool there = channel < shape.channels;
  const int warp = thread() / kWarp;
  double* shared = shared_memory<double>();
  TermSums<T, kSums> sums;
  if (there) {
    const ElementNumbers<T, map_counts(F::kFunction).numbers, 1> numbers(
        a.numbers, shape.maps(), outer * shape.channels + channel, /* neighbours= */ false);
    const int64_t first = chunk * chunks.pixels;
    const int64_t last = first + chunks.pixels < shape.inner ? first + chunks.pixels : shape.inner;
    for (int64_t pixel = first + warp; pixel < last; pixel += threads() / kWarp) {
      add_terms<F, 1>(relu, a, (outer * shape.inner + pixel) * shape.channels + channel, numbers.of(0), sums);
    }
  }
  sums.move();
  for (int k = 0; k < kSums; ++k) {
    shared[k * threads() + thread()] = sums[k];
  }
  sync_threads();
  for (int k = warp; there && k < kSums; k += threads() / kWarp) {
    double total = 0;
    for (int i = lane(); i < threads(); i += kWarp) {
      total += shared[k * threads() + i];
    }
    partial[(chunk * kSums + k) * shape.maps() + outer * shape.channels + channel] = total;
  }
}

/// sums[i] = the sum over the chunks.
NORMA_KERNEL void add_chunks(int64_t count, int64_t chunks, const double* partial, double* sums) {
  for (int64_t i = global_thread(); i < count; i += global_threads()) {
    double total = 0;
    for (int64_t chunk = 0; chunk < chunks; ++chunk) {
      total += partial[chunk * count + i];
    }
    sums[i] = total;
  }
}

template <class F, class S>
void launch_sums_of_runs(const MapProblem& problem, const TypedMapArrays<S>& a) {
  const MapShape& shape = problem.shape;
  with_map_width(shape, a, [&](auto width) {
    const RowTeams of_maps = teams_of_rows(shape.maps(), shape.inner / width, /* side_by_side= */ false);
    with_row_teams(of_maps, [&](auto by_block, const RowTeams& teams, size_t shared_bytes) {
      launch(teams.blocks, teams.threads, shared_bytes, current_stream(), sums_of_runs<F, S, width, by_block>, shape,
             problem.relu, teams.lanes, a);
    });
  });
}

template <class F, class S>
void launch_sums_of_columns(const MapProblem& problem, const TypedMapArrays<S>& a) {
  constexpr int kSums = map_counts(F::kFunction).sums;
  const MapShape& shape = problem.shape;
  const MapChunks chunks(shape);
  const int64_t count = kSums * shape.maps();
  const DeviceBuffer<double> partial(chunks.count == 1 ? 0 : chunks.count * count);
  const int threads = chunks.warps * kWarp;
  // A grid of 2^31 blocks would have as many maps, whose sums and numbers take over 60 GB; the launch would throw.
  launch(shape.outer * chunks.count * ceil_div(shape.channels, kWarp), threads,
         static_cast<size_t>(kSums * threads) * sizeof(double), current_stream(), sums_of_columns<F, S>, shape,
         problem.relu, chunks, a, chunks.count == 1 ? a.sums : partial.data());
  if (chunks.count > 1) {
    launch_over(count, kMapThreads, add_chunks, count, chunks.count, partial.data(), a.sums);
  }
}

inline void map_sums(DType dtype, const MapProblem& problem, const MapArrays& arrays) {
  with_typed_maps(dtype, problem, arrays, [&]<class F, class S>(F, const TypedMapArrays<S>& a) {
    problem.shape.channels_last ? launch_sums_of_columns<F>(problem, a) : launch_sums_of_runs<F>(problem, a);
  });
}

// --- local response -------------------------------------------------------------------------------------------------

// Local response norm, with a thread for each element. dx takes two kernels: the first writes the shares that each
// element gives to its neighbours, in double, whose range holds every such number.

template <class S>
struct ResponseArrays {
  const S* x;
  const S* dy;
  double* shares;  ///< dy * x * s^(-beta - 1)
  S* result;
};

/// The formulas of one call.
template <class T>
struct Responder {
  LocalResponseProblem problem;
  ResponseLimits<T> limits;
  int64_t stride;  ///< from one channel to the next
  int64_t count;   ///< of all elements

  Responder(const LocalResponseProblem& p, bool gradient)
      : problem(p),
        limits(p.beta, gradient),
        stride(p.shape.channels_last ? 1 : p.shape.inner),
        count(p.shape.maps() * p.shape.inner) {}

  NORMA_DEVICE int64_t channel_of(int64_t i) const {
    const int64_t line = quotient(i, stride);
    return line - quotient(line, problem.shape.channels) * problem.shape.channels;
  }
  /// Calls f(j) for the elements at i of `below` channels before, of i's own channel, and of `above` channels after.
  template <class F>
  NORMA_DEVICE void for_each_neighbour(int64_t i, int64_t below, int64_t above, F&& f) const {
    const int64_t channel = channel_of(i);
    const int64_t last = problem.shape.channels - 1;
    const int64_t from = channel < below ? -channel : -below;
    const int64_t to = channel + above > last ? last - channel : above;
    for (int64_t k = from; k <= to; ++k) {
      f(i + k * stride);
    }
  }

  /// s = k + scale * sum of x², in N.
  template <class N, class S>
  NORMA_DEVICE N sum_at(const S* x, int64_t i) const {
    N squares = 0;
    for_each_neighbour(i, problem.below, problem.above, [&](int64_t j) {
      const auto value = static_cast<N>(to_number(x[j]));
      squares = fused_multiply_add(value, value, squares);
    });
    return fused_multiply_add(squares, static_cast<N>(problem.scale), static_cast<N>(problem.k));
  }
  NORMA_DEVICE bool is_in_range(T s) const { return limits.least <= s && s <= limits.most; }

  /// s^-beta
  template <class N>
  NORMA_DEVICE N power_of(N s) const {
    if (problem.beta == 0.75) {
      const N root = std::sqrt(s);
      const N power = N(1) / (root * std::sqrt(root));
      if constexpr (std::is_same_v<N, float>) {
        // e = 1 - s^3 power^4 is the error of four roundings; (1 - e)^(-1/4) = 1 + e / 4 + …
        const N square = s * power * power;
        return fused_multiply_add(power * fused_multiply_add(-s * square, square, N(1)), N(0.25), power);
      }
      return power;
    }
    return std::pow(s, static_cast<N>(-problem.beta));
  }
  /// dy where y = x * power is not cut off, else 0.
  template <class N>
  NORMA_DEVICE N through_relu(N dy, N x, N power) const {
    return problem.relu && x * power <= N(0) ? N(0) : dy;
  }

  /// Calls f(s) with the sum at an element: in T, or in double if its powers leave the range of T.
  template <class S, class F>
  NORMA_DEVICE void with_sum(const S* x, int64_t i, F&& f) const {
    const T s = sum_at<T>(x, i);
    if (is_in_range(s)) {
      f(s);
    } else {
      f(sum_at<double>(x, i));
    }
  }
};

template <class S>
NORMA_KERNEL void respond(Responder<compute_t<S>> of, ResponseArrays<S> a) {
  using T = compute_t<S>;
  for (int64_t i = global_thread(); i < of.count; i += global_threads()) {
    of.with_sum(a.x, i, [&](auto s) {
      using N = decltype(s);
      const N y = static_cast<N>(to_number(a.x[i])) * of.power_of(s);
      a.result[i] = to_element<S>(static_cast<T>(of.problem.relu && y <= N(0) ? N(0) : y));
    });
  }
}

template <class S>
NORMA_KERNEL void make_response_shares(Responder<compute_t<S>> of, ResponseArrays<S> a) {
  for (int64_t i = global_thread(); i < of.count; i += global_threads()) {
    of.with_sum(a.x, i, [&](auto s) {
      using N = decltype(s);
      const auto x = static_cast<N>(to_number(a.x[i]));
      const N power = of.power_of(s);
      const N dy = of.through_relu(static_cast<N>(to_number(a.dy[i])), x, power);
      a.shares[i] = static_cast<double>(dy * power * x / s);
    });
  }
}

template <class S>
NORMA_KERNEL void response_gradient(Responder<compute_t<S>> of, ResponseArrays<S> a) {
  using T = compute_t<S>;
  const double factor = -2 * of.problem.scale * of.problem.beta;
  for (int64_t i = global_thread(); i < of.count; i += global_threads()) {
    double shares = 0;
    of.for_each_neighbour(i, of.problem.above, of.problem.below, [&](int64_t j) { shares += a.shares[j]; });
    of.with_sum(a.x, i, [&](auto s) {
      using N = decltype(s);
      const auto x = static_cast<N>(to_number(a.x[i]));
      const N power = of.power_of(s);
      const N direct = of.through_relu(static_cast<N>(to_number(a.dy[i])), x, power) * power;
      const double dx = static_cast<double>(x) * (factor * shares) + static_cast<double>(direct);
      a.result[i] = to_element<S>(static_cast<T>(dx));
    });
  }
}

inline void local_response(DType dtype, const LocalResponseProblem& problem, const LocalResponse& arrays) {
  constexpr int kThreads = 256;
  dispatch_any_floating("local_response_norm", dtype, [&]<class S>(S) {
    const bool gradient = arrays.dy != nullptr;
    const Responder<compute_t<S>> of(problem, gradient);
    const DeviceBuffer<double> shares(gradient ? of.count : 0);
    const ResponseArrays<S> a{.x = static_cast<const S*>(arrays.x),
                              .dy = static_cast<const S*>(arrays.dy),
                              .shares = shares.data(),
                              .result = static_cast<S*>(arrays.result)};
    const auto run = [&](auto kernel) { launch_over(of.count, kThreads, kernel, of, a); };
    if (gradient) {
      run(make_response_shares<S>);
      run(response_gradient<S>);
    } else {
      run(respond<S>);
    }
  });
}

}  // namespace norma::kernels::NORMA_BACKEND

namespace norma::kernels {

using namespace NORMA_BACKEND;

constinit const MapNormKernels NORMA_TABLE(map_norm){.numbers = map_numbers,
                                                     .forward = map_forward,
                                                     .sums = map_sums,
                                                     .numbers_backward = map_numbers_backward,
                                                     .gradient = map_gradient,
                                                     .local_response = local_response};

}  // namespace norma::kernels
