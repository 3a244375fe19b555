// Included once for each target: see core/simd/targets.h.
#if defined(NORMA_OPS_POOL_CPU_TAPS_H) == defined(HWY_TARGET_TOGGLE)
#ifdef NORMA_OPS_POOL_CPU_TAPS_H
#undef NORMA_OPS_POOL_CPU_TAPS_H
#else
#define NORMA_OPS_POOL_CPU_TAPS_H
#endif

#include "core/buffer.h"
#include "core/parallel.h"
#include "core/simd/memory.h"
#include "ops/pool/kernels.h"

#include <algorithm>
#include <cstdint>
#include <type_traits>

// The loops of pooling share positions as vectors, and the places that neighbours of a row read.

HWY_BEFORE_NAMESPACE();
namespace norma::kernels::cpu::HWY_NAMESPACE {

using namespace simd::HWY_NAMESPACE;

// --- positions ------------------------------------------------------------------------------------------------------

/// Integers as wide as T, which are int32_t in memory.
template <class T>
using PositionTag = hn::RebindToSigned<Tag<T>>;
template <class T>
using Positions = Parts<hn::Vec<PositionTag<T>>, kLanes<T> / kRegisterLanes<T>>;

namespace detail {

template <class T, int n>
HWY_INLINE auto load_positions(const int32_t* from) {
  if constexpr (n > 1) {
    constexpr int kHalf = n / 2 * kRegisterLanes<T>;
    return Parts<hn::Vec<PositionTag<T>>, n>{load_positions<T, n / 2>(from), load_positions<T, n / 2>(from + kHalf)};
  } else {
    const auto words = hn::LoadU(hn::Rebind<int32_t, Tag<T>>{}, from);
    if constexpr (sizeof(T) == 8) {
      return Parts<hn::Vec<PositionTag<T>>, 1>{hn::PromoteTo(PositionTag<T>{}, words)};
    } else {
      return Parts<hn::Vec<PositionTag<T>>, 1>{words};
    }
  }
}
template <class T, class R, int n>
HWY_INLINE void store_positions(int32_t* to, const Parts<R, n>& positions) {
  if constexpr (n > 1) {
    store_positions<T>(to, positions.low);
    store_positions<T>(to + n / 2 * kRegisterLanes<T>, positions.high);
  } else if constexpr (sizeof(T) == 8) {
    int64_t wide[kRegisterLanes<T>];
    hn::StoreU(positions.only, PositionTag<T>{}, static_cast<int64_t*>(wide));
    std::copy_n(wide, kRegisterLanes<T>, to);
  } else {
    hn::StoreU(positions.only, PositionTag<T>{}, to);
  }
}

}  // namespace detail

/// Lanes beyond First are position 0.
template <class T, class Part>
HWY_INLINE Positions<T> load_positions(const int32_t* from, Part part) {
  constexpr int kRegisters = kLanes<T> / kRegisterLanes<T>;
  if constexpr (std::is_same_v<Part, Whole>) {
    return detail::load_positions<T, kRegisters>(from);
  } else {
    int32_t some[kLanes<float>] = {};  // copy_few knows vectors of 64 bytes
    simd::HWY_NAMESPACE::detail::copy_few(static_cast<int32_t*>(some), from, part.count);
    return detail::load_positions<T, kRegisters>(some);
  }
}
template <class T, class Part>
HWY_INLINE void store_positions(int32_t* to, const Positions<T>& positions, Part part) {
  if constexpr (std::is_same_v<Part, Whole>) {
    detail::store_positions<T>(to, positions);
  } else {
    int32_t some[kLanes<float>];
    detail::store_positions<T>(some, positions);
    simd::HWY_NAMESPACE::detail::copy_few(to, static_cast<const int32_t*>(some), part.count);
  }
}

/// The same position in every lane.
template <class T, int n = kLanes<T> / kRegisterLanes<T>>
HWY_INLINE auto same_position(int64_t position) {
  if constexpr (n > 1) {
    const auto half = same_position<T, n / 2>(position);
    return Parts<hn::Vec<PositionTag<T>>, n>{half, half};
  } else {
    return Parts<hn::Vec<PositionTag<T>>, 1>{
        hn::Set(PositionTag<T>{}, static_cast<hn::TFromD<PositionTag<T>>>(position))};
  }
}

/// condition ? yes : no
template <class T>
HWY_INLINE Positions<T> select_positions(const Mask<T>& condition, const Positions<T>& yes, const Positions<T>& no) {
  using P = hn::Vec<PositionTag<T>>;
  return by_register([](hn::Mask<Tag<T>> c, P y, P n)
                         HWY_ATTR { return hn::IfThenElse(hn::RebindMask(PositionTag<T>{}, c), y, n); },
                     condition, yes, no);
}
/// position == other ? value : 0
template <class T>
HWY_INLINE Lanes<T> where_equal(const Positions<T>& position, const Positions<T>& other, const Lanes<T>& value) {
  using P = hn::Vec<PositionTag<T>>;
  return by_register([](P a, P b, hn::Vec<Tag<T>> v)
                         HWY_ATTR { return hn::IfThenElseZero(hn::RebindMask(Tag<T>{}, hn::Eq(a, b)), v); },
                     position, other, value);
}
/// from[position] for each lane.
template <class T>
HWY_INLINE Lanes<T> gather(const T* from, const Positions<T>& positions) {
  return by_register([from](hn::Vec<PositionTag<T>> p) HWY_ATTR { return hn::GatherIndex(Tag<T>{}, from, p); },
                     positions);
}

// --- rows -----------------------------------------------------------------------------------------------------------

inline int64_t output_h(const PoolCase& pool) {
  return static_cast<int64_t>(pool.rows->windows.size());
}
inline int64_t output_w(const PoolCase& pool) {
  return static_cast<int64_t>(pool.columns->windows.size());
}

/// Calls f(image, row) for `rows` rows of every image.
template <class F>
void for_each_row(const PoolCase& pool, int64_t rows, int64_t row_elements, F&& f) {
  const int64_t grain = std::max<int64_t>(1, kPointwiseGrain / std::max<int64_t>(1, row_elements));
  parallel_for(0, pool.images * rows, grain, [&](int64_t first, int64_t last) {
    for (int64_t i = first; i < last; ++i) {
      f(i / rows, i % rows);
    }
  });
}

/// The places in a row that each of `count` neighbouring results reads: as many as the most that one result has.
class Taps {
 public:
  /// place(result, tap) is the place of a tap, or for results with fewer taps the place to read instead.
  template <class Place>
  Taps(int64_t taps, int64_t count, Place&& place) : taps_(taps), count_(count), places_(taps * count) {
    for (int64_t tap = 0; tap < taps; ++tap) {
      for (int64_t result = 0; result < count; ++result) {
        places_.data()[tap * count + result] = static_cast<int32_t>(place(result, tap));
      }
    }
  }

  [[nodiscard]] int64_t taps() const { return taps_; }
  /// The places of all results for one tap.
  [[nodiscard]] const int32_t* places(int64_t tap) const { return places_.data() + tap * count_; }

  /// The sums over the taps of the results in lanes i, i + 1, …
  template <class T, class Part>
  HWY_INLINE Lanes<T> sum(const T* row, int64_t i, Part part) const {
    Lanes<T> total = gather(row, load_positions<T>(places(0) + i, part));
    for (int64_t tap = 1; tap < taps_; ++tap) {
      total += gather(row, load_positions<T>(places(tap) + i, part));
    }
    return total;
  }

 private:
  int64_t taps_;
  int64_t count_;
  Buffer<int32_t> places_;
};

}  // namespace norma::kernels::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
