// Included once for each target: see core/simd/targets.h.
#if defined(NORMA_OPS_MAP_NORM_CPU_MAP_LOOPS_H) == defined(HWY_TARGET_TOGGLE)
#ifdef NORMA_OPS_MAP_NORM_CPU_MAP_LOOPS_H
#undef NORMA_OPS_MAP_NORM_CPU_MAP_LOOPS_H
#else
#define NORMA_OPS_MAP_NORM_CPU_MAP_LOOPS_H
#endif

#include "core/half.h"
#include "core/parallel.h"
#include "ops/map_norm/kernels.h"
#include "ops/norm/cpu/run_loops.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <type_traits>

// What the loops over maps share. There are two: runs, where a map is one run of memory and its numbers stand in
// registers, and rows, where the elements of a run belong to neighbouring maps. 16 bits are widened by tiles.

HWY_BEFORE_NAMESPACE();
namespace norma::kernels::cpu::HWY_NAMESPACE {

/// Elements that are widened, and narrowed, at a time.
inline constexpr int64_t kTile = 1024;
/// The arrays of a call with their types; those that it does not have are null.
template <class S, class T = compute_t<S>>
struct MapArrays {
  const S* dy = nullptr;
  const S* x;
  const T* numbers;
  const T* through_stats = nullptr;
  double* sums = nullptr;
  S* result = nullptr;  ///< y or dx
};

/// The numbers of one map.
template <class T, int count>
struct MapNumbers {
  std::array<T, static_cast<size_t>(count)> numbers;
  MapNumbers(const T* all, int64_t maps, int64_t map) {
    for (int k = 0; k < count; ++k) {
      numbers[static_cast<size_t>(k)] = all[k * maps + map];
    }
  }
  T operator()(int k, int64_t) const { return numbers[static_cast<size_t>(k)]; }
};
/// Those of neighbouring maps.
template <class T>
struct RowNumbers {
  const T* first;
  int64_t maps;
  T operator()(int k, int64_t i) const { return first[k * maps + i]; }
};

/// from as T: itself, or widened into `scratch`.
template <class S, class T>
const T* widened(int64_t count, const S* from, T* scratch) {
  if constexpr (std::is_same_v<S, T>) {
    return from;
  } else {
    for_each_lanes<T>(count, [&](int64_t i, auto part) { store(scratch + i, load(from + i, part), part); });
    return scratch;
  }
}
/// Where a result of type S is computed as T, until store_wide().
template <class S, class T>
T* wide_place(S* to, T* scratch) {
  if constexpr (std::is_same_v<S, T>) {
    return to;
  } else {
    return scratch;
  }
}
template <class S, class T>
void store_wide(int64_t count, const T* from, S* to) {
  if constexpr (!std::is_same_v<S, T>) {
    store_run(count, from, to);
  }
}

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
/// Calls f(first, count) for the tiles of a run: one, or for 16 bits as many as it takes.
template <class S, class F>
void for_each_tile(int64_t count, F&& f) {
  const int64_t tile = sizeof(S) == 2 ? kTile : count;
  for (int64_t first = 0; first < count; first += tile) {
    f(first, std::min(tile, count - first));
  }
}

}  // namespace norma::kernels::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
