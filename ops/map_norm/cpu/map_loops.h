// Included once for each target: see core/simd/targets.h.
#if defined(NORMA_OPS_MAP_NORM_CPU_MAP_LOOPS_H) == defined(HWY_TARGET_TOGGLE)
#ifdef NORMA_OPS_MAP_NORM_CPU_MAP_LOOPS_H
#undef NORMA_OPS_MAP_NORM_CPU_MAP_LOOPS_H
#else
#define NORMA_OPS_MAP_NORM_CPU_MAP_LOOPS_H
#endif

#include "core/parallel.h"
#include "core/simd/math.h"
#include "core/simd/sums.h"
#include "ops/map_norm/functions.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <type_traits>

// The two kinds of loops over maps. In runs, a map is one run of memory and has the same numbers all along it. In rows,
// the elements of a run belong to neighbouring maps.

HWY_BEFORE_NAMESPACE();
namespace norma::kernels::cpu::HWY_NAMESPACE {

using namespace simd::HWY_NAMESPACE;

/// The number of short rows worked on together: numbers that vary along them are loaded once. Long rows would come from
/// too many places at a time.
inline constexpr int kRows = 4;
inline constexpr int64_t kShortRowBytes = 512;

/// The arrays of a call with their types; null if the call does not have them.
template <class S, class T = compute_t<S>>
struct MapArrays {
  const S* dy = nullptr;
  const S* x;
  const T* numbers;
  const T* through_stats = nullptr;
  double* sums = nullptr;
  S* result = nullptr;  ///< y or dx
};

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

}  // namespace norma::kernels::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
