#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/map_norm/cpu/map_sums.cpp"
#include "core/simd/foreach_target.h"

#include "core/cpu/scratch.h"
#include "core/sizes.h"
#include "ops/map_norm/cpu/map_kernels.h"
#include "ops/map_norm/cpu/map_loops.h"

#include <algorithm>
#include <array>

// The sums over maps for the gradients of their numbers, and dx as well if it does not depend on them.

HWY_BEFORE_NAMESPACE();
namespace norma::kernels::cpu::HWY_NAMESPACE {

namespace {

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
HWY_INLINE auto terms_at(const MapArrays<S>& a, int64_t i, const N& numbers, Part part) {
  const auto both = F::derivatives(load(a.dy + i, part), load(a.x + i, part), numbers);
  if constexpr (!has_map_stats(F::kFunction)) {
    store(a.result + i, both.slope, part);
  }
  return both.terms;
}

/// Adds the sums of a run of up to kChain vectors from element i on. (It goes by registers, as some processors have too
/// few for all sums of a whole vector.)
template <class F, class S, class N, class T = compute_t<S>>
HWY_INLINE void add_run(const MapArrays<S>& a, int64_t i, int64_t count, const N& numbers, double* sums) {
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
void sums_of_runs(const MapShape& shape, const MapArrays<S>& a) {
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
void sums_of_block(const MapShape& shape, const MapArrays<S>& a, int64_t o, int64_t first, int64_t last, double* sums) {
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
void sums_of_rows(const MapShape& shape, const MapArrays<S>& a) {
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

template <class S>
void sums_of(const MapProblem& problem, const MapArrays<S>& arrays) {
  with_map_function(problem, [&]<class F>(F) {
    problem.shape.channels_last ? sums_of_rows<F>(problem.shape, arrays) : sums_of_runs<F>(problem.shape, arrays);
  });
}

}  // namespace

void map_sums(DType dtype, const MapProblem& problem, const MapSums& a) {
  dispatch_any_floating("map_norm", dtype, [&]<class S>(S) {
    using T = compute_t<S>;
    sums_of<S>(problem, {.dy = static_cast<const S*>(a.dy),
                         .x = static_cast<const S*>(a.x),
                         .numbers = static_cast<const T*>(a.numbers),
                         .sums = a.sums,
                         .result = static_cast<S*>(a.dx)});
  });
}

}  // namespace norma::kernels::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace norma::kernels::cpu {

HWY_EXPORT(map_sums);
void map_sums(DType dtype, const MapProblem& problem, const MapSums& arrays) {
  NORMA_SIMD_BEST(map_sums)(dtype, problem, arrays);
}

}  // namespace norma::kernels::cpu
#endif
