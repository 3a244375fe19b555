#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/map_norm/cpu/maps.cpp"
#include "core/simd/foreach_target.h"

#include "core/cpu/scratch.h"
#include "core/parallel.h"
#include "core/simd/call.h"
#include "core/simd/math.h"
#include "core/simd/sums.h"
#include "core/sizes.h"
#include "ops/map_norm/functions.h"
#include "ops/map_norm/numbers.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <numeric>
#include <type_traits>

// The CPU kernels of the norms that are a MapFunction, and the table of the family.

HWY_BEFORE_NAMESPACE();
namespace norma::kernels::cpu::HWY_NAMESPACE {

using namespace simd::HWY_NAMESPACE;

namespace {

// --- loops over maps ------------------------------------------------------------------------------------------------

// There are two kinds. In runs, a map is one run of memory and has the same numbers all along it. In rows, the elements
// of a run belong to neighbouring maps.

/// The number of short rows worked on together: numbers that vary along them are loaded once. Long rows would come from
/// too many places at a time.
inline constexpr int kRows = 4;
inline constexpr int64_t kShortRowBytes = 512;

/// The first `count` rows of a (rows, maps) array for one map.
template <class T, int count>
class RunNumbers {
 public:
  RunNumbers(const T* all, int64_t maps, int64_t map) {
    for (int k = 0; k < count; ++k) {
      numbers_[static_cast<size_t>(k)] = all[k * maps + map];
    }
  }
  /// The numbers as vectors of the size that `part` means.
  template <class Part>
  HWY_INLINE auto as(Part) const {
    return [this](int k) HWY_ATTR { return broadcast<T, kRegisters<T, Part>>(numbers_[static_cast<size_t>(k)]); };
  }

 private:
  std::array<T, static_cast<size_t>(count)> numbers_;
};

/// The first `count` rows of a (rows, maps) array for the maps of a vector of a row.
template <class T, int count, class Part>
class RowNumbers {
 public:
  using Vector = decltype(load(static_cast<const T*>(nullptr), Part{}));

  HWY_INLINE RowNumbers(const T* first, int64_t maps, Part part) {
    for (int k = 0; k < count; ++k) {
      numbers_[k] = load(first + k * maps, part);
    }
  }
  HWY_INLINE const Vector& operator()(int k) const { return numbers_[k]; }

 private:
  Vector numbers_[count];
};

/// Calls f(o, first, last) for parts of the rows of one o, on all threads.
template <class F>
void for_each_rows(const MapShape& shape, F&& f) {
  const int64_t grain = std::max<int64_t>(1, kPointwiseGrain / shape.channels);
  parallel_for(0, shape.outer * shape.inner, grain, [&](int64_t begin, int64_t end) {
    while (begin < end) {
      const int64_t o = begin / shape.inner;
      const int64_t last = std::min(end, (o + 1) * shape.inner);
      f(o, begin - o * shape.inner, last - o * shape.inner);
      begin = last;
    }
  });
}
/// Calls f(first, last) for parts of the maps, on all threads.
template <class F>
void for_each_maps(const MapShape& shape, F&& f) {
  parallel_for(0, shape.maps(), std::max<int64_t>(1, kPointwiseGrain / shape.inner), f);
}

/// Calls f(first, rows) for the rows of [begin, end), kRows of them at a time if `together`. `rows` is a constant.
template <class F>
HWY_INLINE void for_each_few_rows(int64_t begin, int64_t end, bool together, F&& f) {
  int64_t row = begin;
  for (; together && row + kRows <= end; row += kRows) {
    f(row, std::integral_constant<int, kRows>{});
  }
  for (; row < end; ++row) {
    f(row, std::integral_constant<int, 1>{});
  }
}

// --- y and dx -------------------------------------------------------------------------------------------------------

/// Calls f(i, part, numbers, through_stats) for the vectors of all arrays. A vector begins with element i.
template <class F, bool has_stats, class S, class Each, class T = compute_t<S>>
HWY_INLINE void for_each_vector(const MapShape& shape, const TypedMapArrays<S>& a, Each&& f) {
  constexpr int kNumbers = map_counts(F::kFunction).numbers;
  constexpr int kStats = has_stats ? kThroughStatsRows : 1;
  const T* through_stats = has_stats ? a.through_stats : a.numbers;  // unused without stats
  const int64_t maps = shape.maps();
  if (!shape.channels_last) {
    for_each_maps(shape, [&](int64_t begin, int64_t end) {
      for (int64_t map = begin; map < end; ++map) {
        const RunNumbers<T, kNumbers> numbers(a.numbers, maps, map);
        const RunNumbers<T, kStats> of_stats(through_stats, maps, map);
        for_each_lanes<T>(shape.inner, [&](int64_t i, auto part) NORMA_INLINE {
          f(map * shape.inner + i, part, numbers.as(part), of_stats.as(part));
        });
      }
    });
    return;
  }
  const int64_t width = shape.channels;
  for_each_rows(shape, [&](int64_t o, int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      for_each_register<T>(width, [&](int64_t i, auto part) NORMA_INLINE {
        const RowNumbers<T, kNumbers, decltype(part)> numbers(a.numbers + o * width + i, maps, part);
        const RowNumbers<T, kStats, decltype(part)> of_stats(through_stats + o * width + i, maps, part);
        f((o * shape.inner + row) * width + i, part, numbers, of_stats);
      });
    }
  });
}

// --- sums -----------------------------------------------------------------------------------------------------------

// The sums over maps for the gradients of their numbers, and dx as well if it does not depend on them.

/// The most vectors, or rows, that a sum in T takes in before it is moved to double.
constexpr int64_t kChain = 32;

template <class F>
inline constexpr int kSums = map_counts(F::kFunction).sums;

/// Calls f(k, term k) for each of the terms.
template <int count, class V, class Each>
HWY_INLINE void for_each_term(Terms<V>& terms, Each&& f) {
  f(0, terms.a);
  f(1, terms.b);
  if constexpr (count > 2) {
    f(2, terms.c);
  }
  if constexpr (count > 3) {
    f(3, terms.d);
  }
  if constexpr (count > 4) {
    f(4, terms.e);
  }
}
template <int count, class V, class Part>
HWY_INLINE void add(Terms<V>& sums, const Terms<V>& terms, Part part) {
  sums.a += keep(terms.a, part);
  sums.b += keep(terms.b, part);
  if constexpr (count > 2) {
    sums.c += keep(terms.c, part);
  }
  if constexpr (count > 3) {
    sums.d += keep(terms.d, part);
  }
  if constexpr (count > 4) {
    sums.e += keep(terms.e, part);
  }
}

/// The terms of a vector from element i on; dx is written unless it is null.
template <class F, class S, class N, class Part>
HWY_INLINE auto terms_at(const TypedMapArrays<S>& a, int64_t i, const N& numbers, Part part) {
  const auto both = F::derivatives(load(a.dy + i, part), load(a.x + i, part), numbers);
  if constexpr (!has_map_stats(F::kFunction)) {
    store(a.result + i, both.slope, part);
  }
  return both.terms;
}

/// Adds the sums of a run of up to kChain vectors from element i on. (It goes by registers, as some processors have too
/// few for all sums of a whole vector.)
template <class F, class S, class N, class T = compute_t<S>>
HWY_INLINE void add_run(const TypedMapArrays<S>& a, int64_t i, int64_t count, const N& numbers, double* sums) {
  Terms<Register<T>> chain[kRegisters<T>];
  Terms<Lanes<T>> tail;
  for_each_lanes<T>(count, [&](int64_t first, auto part) NORMA_INLINE {
    if constexpr (std::is_same_v<decltype(part), Whole>) {
      unroll<kRegisters<T>>([&](auto r) NORMA_INLINE {
        add<kSums<F>>(chain[r],
                      terms_at<F>(a, i + first + r * kRegisterLanes<T>, numbers.as(OneRegister{}), OneRegister{}),
                      Whole{});
      });
    } else {
      add<kSums<F>>(tail, terms_at<F>(a, i + first, numbers.as(part), part), part);
    }
  });
  alignas(64) T lanes[5 * kLanes<T>];
  unroll<kRegisters<T>>([&](auto r) {
    for_each_term<kSums<F>>(chain[r], [&](int64_t k, const Register<T>& sum) HWY_ATTR {
      store(lanes + k * kLanes<T> + r * kRegisterLanes<T>, sum, OneRegister{});
    });
  });
  for_each_term<kSums<F>>(tail, [&](int64_t k, const Lanes<T>& sum) HWY_ATTR {
    sums[k] += add_lanes(load(static_cast<const T*>(lanes) + k * kLanes<T>, Whole{}) + sum);
  });
}

template <class F, class S, class T = compute_t<S>>
void sums_of_runs(const MapShape& shape, const TypedMapArrays<S>& a) {
  constexpr int64_t kElements = kChain * kLanes<T>;
  for_each_maps(shape, [&](int64_t begin, int64_t end) {
    for (int64_t map = begin; map < end; ++map) {
      const RunNumbers<T, map_counts(F::kFunction).numbers> numbers(a.numbers, shape.maps(), map);
      std::array<double, 5> sums{};
      for (int64_t first = 0; first < shape.inner; first += kElements) {
        const int64_t count = std::min(kElements, shape.inner - first);
        add_run<F>(a, map * shape.inner + first, count, numbers, sums.data());
      }
      for (int64_t k = 0; k < kSums<F>; ++k) {
        a.sums[k * shape.maps() + map] = sums[static_cast<size_t>(k)];
      }
    }
  });
}

/// Adds the sums of rows first to last of one o to sums (kSums, channels).
template <class F, class S, class T = compute_t<S>>
void sums_of_block(const MapShape& shape, const TypedMapArrays<S>& a, int64_t o, int64_t first, int64_t last,
                   double* sums) {
  const int64_t width = shape.channels;
  Scratch scratch;
  // Five sums take more loads and stores than the two inputs of a row.
  const bool together = kSums<F> > 3 || width * static_cast<int64_t>(sizeof(S)) <= kShortRowBytes;
  T* chains = scratch.take<T>(kSums<F> * width);
  std::fill_n(sums, kSums<F> * width, 0.0);
  for (int64_t begin = first; begin < last; begin += kChain) {
    std::fill_n(chains, kSums<F> * width, T(0));
    for_each_few_rows(begin, std::min(last, begin + kChain), together, [&](int64_t row, auto rows) {
      for_each_register<T>(width, [&](int64_t i, auto part) NORMA_INLINE {
        using Numbers = RowNumbers<T, map_counts(F::kFunction).numbers, decltype(part)>;
        using V = typename Numbers::Vector;
        const Numbers numbers(a.numbers + o * width + i, shape.maps(), part);
        Terms<V> few;
        for (int r = 0; r < rows; ++r) {
          add<kSums<F>>(few, terms_at<F>(a, (o * shape.inner + row + r) * width + i, numbers, part), Whole{});
        }
        for_each_term<kSums<F>>(few, [&](int64_t k, const V& sum) HWY_ATTR {
          T* chain = chains + k * width + i;
          store(chain, load(static_cast<const T*>(chain), part) + sum, part);
        });
      });
    });
    for (int64_t i = 0; i < kSums<F> * width; ++i) {
      sums[i] += static_cast<double>(chains[i]);
    }
  }
}

template <class F, class S>
void sums_of_rows(const MapShape& shape, const TypedMapArrays<S>& a) {
  // Blocks do not depend on the number of threads and are added up in order, so the bits are always the same.
  const int64_t width = shape.channels;
  const int64_t block = std::clamp<int64_t>(65536 / width, kChain, 512);
  const int64_t blocks = ceil_div(shape.inner, block);
  const int64_t per_block = kSums<F> * width;
  Scratch scratch;
  double* partial = scratch.take<double>(shape.outer * blocks * per_block);
  const int64_t grain = std::max<int64_t>(1, kPointwiseGrain / (block * width));
  parallel_for(0, shape.outer * blocks, grain, [&](int64_t begin, int64_t end) {
    for (int64_t b = begin; b < end; ++b) {
      const int64_t first = b % blocks * block;
      sums_of_block<F>(shape, a, b / blocks, first, std::min(first + block, shape.inner), partial + b * per_block);
    }
  });
  for (int64_t o = 0; o < shape.outer; ++o) {
    for (int64_t k = 0; k < kSums<F>; ++k) {
      double* sums = a.sums + k * shape.maps() + o * width;
      std::fill_n(sums, width, 0.0);
      for (int64_t b = 0; b < blocks; ++b) {
        const double* of_block = partial + (o * blocks + b) * per_block + k * width;
        for (int64_t i = 0; i < width; ++i) {
          sums[i] += of_block[i];
        }
      }
    }
  }
}

}  // namespace

void map_forward(DType dtype, const MapProblem& problem, const MapArrays& arrays) {
  dispatch_any_floating("map_norm", dtype, [&]<class S>(S) {
    const TypedMapArrays<S> a(arrays);
    with_map_function(problem, [&]<class F>(F) {
      for_each_vector<F, /* has_stats= */ false>(problem.shape, a,
                                                 [&](int64_t i, auto part, const auto& numbers, const auto&) HWY_ATTR {
                                                   store(a.result + i, F::value(load(a.x + i, part), numbers), part);
                                                 });
    });
  });
}

void map_gradient(DType dtype, const MapProblem& problem, const MapArrays& arrays) {
  dispatch_any_floating("map_norm", dtype, [&]<class S>(S) {
    const TypedMapArrays<S> a(arrays);
    with_map_function(problem, [&]<class F>(F) {
      if constexpr (has_map_stats(F::kFunction)) {  // without, map_sums() has written dx
        for_each_vector<F, /* has_stats= */ true>(
            problem.shape, a, [&](int64_t i, auto part, const auto& numbers, const auto& of_stats) HWY_ATTR {
              const auto x = load(a.x + i, part);
              const auto centred = ((x - of_stats(kMean)) - of_stats(kMeanLow)) * of_stats(kRstd);
              const auto through_stats = multiply_add(centred, of_stats(kBy), of_stats(kShift));
              store(a.result + i, F::derivatives(load(a.dy + i, part), x, numbers).slope + through_stats, part);
            });
      }
    });
  });
}

void map_sums(DType dtype, const MapProblem& problem, const MapArrays& arrays) {
  dispatch_any_floating("map_norm", dtype, [&]<class S>(S) {
    const TypedMapArrays<S> a(arrays);
    with_map_function(problem, [&]<class F>(F) {
      problem.shape.channels_last ? sums_of_rows<F>(problem.shape, a) : sums_of_runs<F>(problem.shape, a);
    });
  });
}

}  // namespace norma::kernels::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace norma::kernels {

namespace cpu {

// --- numbers --------------------------------------------------------------------------------------------------------

// The work done once for each map, in double and in plain loops.

namespace {

/// The totals of f(map) over the maps of each set; null if there are none.
template <MapSet kind, class T, class F>
const double* totals_of(const Maps<T>& m, Scratch& scratch, F&& f) {
  if constexpr (kind == MapSet::none) {
    return nullptr;
  } else {
    double* totals = scratch.take<double>(m.count_of(kind));
    for (int64_t set = 0; set < m.count_of(kind); ++set) {
      totals[set] = 0;
      for (int64_t i = 0; i < m.size_of(kind); ++i) {
        totals[set] += f(m.member(kind, set, i));
      }
    }
    return totals;
  }
}
template <MapSet kind, class T>
double total_of(const Maps<T>& m, const double* totals, int64_t map) {
  return kind == MapSet::none ? 0 : totals[m.set_of(kind, map)];
}

template <class Formulas, class T>
const double* responses_of(const Maps<T>& m, Scratch& scratch) {
  return totals_of<Formulas::kResponses>(m, scratch, [&](int64_t map) { return Formulas::response(m, map); });
}

/// sums[c] = the sum of of_maps over the maps of channel c.
template <class T>
void over_maps(const Maps<T>& m, const double* of_maps, double* sums) {
  std::fill_n(sums, m.channels, 0.0);
  for (int64_t first = 0; first < m.maps; first += m.channels) {
    for (int64_t c = 0; c < m.channels; ++c) {
      sums[c] += of_maps[first + c];
    }
  }
}

}  // namespace

void map_numbers(DType dtype, const MapProblem& problem, const MapSources& sources, void* numbers) {
  with_map_numbers(dtype, problem, sources, [&]<class Formulas, class T>(Formulas, const Maps<T>& m) {
    Scratch scratch;
    const double* responses = responses_of<Formulas>(m, scratch);
    for (int64_t map = 0; map < m.maps; ++map) {
      Formulas::numbers(m, map, total_of<Formulas::kResponses>(m, responses, map),
                        MapColumn<T>(static_cast<T*>(numbers), m.maps, map));
    }
  });
}

void map_numbers_backward(DType dtype, const MapProblem& problem, const MapSources& sources,
                          const MapNumbersBackward& arrays) {
  with_map_numbers(dtype, problem, sources, [&]<class Formulas, class T>(Formulas, const Maps<T>& m) {
    Scratch scratch;
    const double* responses = responses_of<Formulas>(m, scratch);
    const auto response = [&](int64_t map) { return total_of<Formulas::kResponses>(m, responses, map); };
    const auto sums = [&](int64_t map) { return MapColumn<double>(arrays.sums, m.maps, map); };
    const double* totals = totals_of<Formulas::kTotals>(
        m, scratch, [&](int64_t map) { return Formulas::share(m, map, response(map), sums(map)); });
    for (int64_t map = 0; map < m.maps; ++map) {
      Formulas::finish(m, map, response(map), total_of<Formulas::kTotals>(m, totals, map), sums(map),
                       MapColumn<T>(static_cast<T*>(arrays.through_stats), m.maps, map));
    }
    for (int i = 0; i < kMaxMapParameters; ++i) {
      double* gradient = arrays.parameters[i];
      if (gradient == nullptr) {
        continue;
      }
      const double* of_maps = arrays.sums + Formulas::kGradientRows[i] * m.maps;
      if (i < Formulas::kOfAll) {
        *gradient = std::accumulate(of_maps, of_maps + m.maps, 0.0);
      } else {
        over_maps(m, of_maps, gradient);
      }
    }
  });
}

// --- the table ------------------------------------------------------------------------------------------------------

/// local_response.cpp has it.
void local_response(DType dtype, const LocalResponseProblem& problem, const LocalResponse& arrays);

constexpr MapNormKernels kTable{.numbers = map_numbers,
                                .forward = NORMA_SIMD_CALL(map_forward),
                                .sums = NORMA_SIMD_CALL(map_sums),
                                .numbers_backward = map_numbers_backward,
                                .gradient = NORMA_SIMD_CALL(map_gradient),
                                .local_response = local_response};

}  // namespace cpu

constinit const MapNormKernels map_norm_cpu = cpu::kTable;

}  // namespace norma::kernels
#endif
