#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/pool/cpu/pool.cpp"
#include "core/simd/foreach_target.h"

#include "core/buffer.h"
#include "core/cpu/scratch.h"
#include "core/parallel.h"
#include "core/simd/call.h"
#include "core/simd/memory.h"
#include "core/simd/sums.h"
#include "ops/pool/kernels.h"

#include <algorithm>
#include <cstdint>
#include <type_traits>

// The kernels of pooling, and their table.

HWY_BEFORE_NAMESPACE();
namespace norma::kernels::HWY_NAMESPACE {

using namespace simd::HWY_NAMESPACE;
using cpu::Scratch;

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

// --- max_pool ------------------------------------------------------------------------------------------------------

// Images with many lanes (channels_last) are vectors of channels. Images with one lane (planes) are vectors of
// neighbouring results, which gather the values of their windows.

namespace {

/// The largest values so far, and their positions.
template <class T>
struct Best {
  Lanes<T> value;
  Positions<T> position;

  /// Takes values that are larger, or the first NaN.
  HWY_INLINE void take(const Lanes<T>& other, const Positions<T>& other_position) {
    const Mask<T> stays = (other <= value) | is_nan(value);
    value = select(stays, value, other);
    position = select_positions<T>(stays, position, other_position);
  }
};

template <class S>
void max_of_lanes(const PoolCase& pool, const S* x, S* y, int32_t* index) {
  using T = compute_t<S>;
  const int64_t lanes = pool.lanes;
  const int64_t ows = output_w(pool);
  for_each_row(pool, output_h(pool), ows * lanes, [&](int64_t image, int64_t oh) {
    const S* source = x + image * pool.h * pool.w * lanes;
    const PoolWindow rows = pool.rows->windows[static_cast<size_t>(oh)];
    for (int64_t ow = 0; ow < ows; ++ow) {
      const PoolWindow columns = pool.columns->windows[static_cast<size_t>(ow)];
      const int64_t out = ((image * output_h(pool) + oh) * ows + ow) * lanes;
      const int64_t start = rows.first() * pool.w + columns.first();
      for_each_lanes<T>(lanes, [&](int64_t c, auto part) {
        Best<T> best{load(source + start * lanes + c, part), same_position<T>(start)};
        for (int64_t h = rows.first(); h < rows.end; h += rows.step) {
          for (int64_t w = columns.first(); w < columns.end; w += columns.step) {
            const int64_t position = h * pool.w + w;
            best.take(load(source + position * lanes + c, part), same_position<T>(position));
          }
        }
        store(y + out + c, best.value, part);
        store_positions<T>(index + out + c, best.position, part);
      });
    }
  });
}

/// `count` elements as T: the elements themselves, or widened ones.
template <class S, class T>
const T* widened(int64_t count, const S* from, T* wide) {
  if constexpr (std::is_same_v<S, T>) {
    return from;
  } else {
    for_each_lanes<T>(count, [&](int64_t i, auto part) { store(wide + i, load(from + i, part), part); });
    return wide;
  }
}

template <class S>
void max_of_planes(const PoolCase& pool, const S* x, S* y, int32_t* index) {
  using T = compute_t<S>;
  const int64_t ows = output_w(pool);
  const auto window = [&](int64_t ow) -> const PoolWindow& { return pool.columns->windows[static_cast<size_t>(ow)]; };
  const int64_t step = window(0).step;
  int64_t most = 1;
  for (int64_t ow = 0; ow < ows; ++ow) {
    most = std::max(most, (window(ow).last() - window(ow).first()) / step + 1);
  }
  // Taps after the end of a window read its last value again, which changes nothing.
  const Taps taps(
      most, ows, [&](int64_t ow, int64_t tap) { return std::min(window(ow).first() + tap * step, window(ow).last()); });
  for_each_row(pool, output_h(pool), ows * most, [&](int64_t image, int64_t oh) {
    Scratch scratch;
    T* wide = scratch.take<T>(std::is_same_v<S, T> ? 0 : pool.w);
    T* values = scratch.take<T>(ows);
    const PoolWindow rows = pool.rows->windows[static_cast<size_t>(oh)];
    const int64_t out = (image * output_h(pool) + oh) * ows;
    for (int64_t h = rows.first(); h < rows.end; h += rows.step) {
      const T* row = widened(pool.w, x + (image * pool.h + h) * pool.w, wide);
      const Positions<T> first = same_position<T>(h * pool.w);
      for_each_lanes<T>(ows, [&](int64_t ow, auto part) {
        const auto places = [&](int64_t tap) HWY_ATTR { return load_positions<T>(taps.places(tap) + ow, part); };
        Best<T> best{gather(row, places(0)), first + places(0)};
        if (h > rows.first()) {
          const Best<T> of_row = best;
          best = {load(static_cast<const T*>(values) + ow, part), load_positions<T>(index + out + ow, part)};
          best.take(of_row.value, of_row.position);
        }
        for (int64_t tap = 1; tap < taps.taps(); ++tap) {
          best.take(gather(row, places(tap)), first + places(tap));
        }
        store(values + ow, best.value, part);
        store_positions<T>(index + out + ow, best.position, part);
      });
    }
    for_each_lanes<T>(
        ows, [&](int64_t ow, auto part) { store(y + out + ow, load(static_cast<const T*>(values) + ow, part), part); });
  });
}

/// dx of a position is the sum of dy over the few windows that hold it and have chosen it: each is written once.
template <class S>
void max_gradient_of_lanes(const PoolCase& pool, const S* dy, const int32_t* index, S* dx) {
  using T = compute_t<S>;
  const int64_t lanes = pool.lanes;
  const int64_t ows = output_w(pool);
  for_each_row(pool, pool.h, pool.w * lanes, [&](int64_t image, int64_t h) {
    const PoolHolders rows = pool.rows->holders[static_cast<size_t>(h)];
    const int64_t first = image * output_h(pool) * ows;
    for (int64_t w = 0; w < pool.w; ++w) {
      const PoolHolders columns = pool.columns->holders[static_cast<size_t>(w)];
      const Positions<T> here = same_position<T>(h * pool.w + w);
      S* place = dx + ((image * pool.h + h) * pool.w + w) * lanes;
      for_each_lanes<T>(lanes, [&](int64_t c, auto part) {
        Lanes<T> sum = {};
        for (int64_t oh = rows.first; oh < rows.last; ++oh) {
          for (int64_t ow = columns.first; ow < columns.last; ++ow) {
            const int64_t out = (first + oh * ows + ow) * lanes + c;
            sum += where_equal<T>(load_positions<T>(index + out, part), here, load(dy + out, part));
          }
        }
        store(place + c, sum, part);
      });
    }
  });
}

/// Each output adds to the place that it came from: a quarter of the work of a search at each place.
template <class S>
void max_gradient_of_planes(const PoolCase& pool, const S* dy, const int32_t* index, S* dx) {
  using T = compute_t<S>;
  const int64_t plane = pool.h * pool.w;
  const int64_t out_plane = output_h(pool) * output_w(pool);
  const int64_t grain = std::max<int64_t>(1, kPointwiseGrain / std::max<int64_t>(1, plane));
  parallel_for(0, pool.images, grain, [&](int64_t begin, int64_t end) {
    Scratch scratch;
    T* wide = scratch.take<T>(std::is_same_v<S, T> ? 0 : plane);
    for (int64_t image = begin; image < end; ++image) {
      T* sums = wide;
      if constexpr (std::is_same_v<S, T>) {
        sums = dx + image * plane;
      }
      std::fill_n(sums, plane, T(0));
      for (int64_t i = image * out_plane; i < (image + 1) * out_plane; ++i) {
        sums[index[i]] += static_cast<T>(dy[i]);
      }
      if constexpr (!std::is_same_v<S, T>) {
        for_each_lanes<T>(plane, [&](int64_t i, auto part) {
          store(dx + image * plane + i, load(static_cast<const T*>(sums) + i, part), part);
        });
      }
    }
  });
}

template <class S>
void max_pick(const PoolCase& pool, const S* x, const int32_t* index, S* y) {
  const int64_t lanes = pool.lanes;
  const int64_t row = output_w(pool) * lanes;
  for_each_row(pool, output_h(pool), row, [&](int64_t image, int64_t oh) {
    const S* source = x + image * pool.h * pool.w * lanes;
    const int64_t first = (image * output_h(pool) + oh) * row;
    for (int64_t i = 0; i < row; ++i) {
      y[first + i] = source[index[first + i] * lanes + i % lanes];
    }
  });
}

}  // namespace

void max_pool(const PoolCase& pool, const void* x, void* y, int32_t* index) {
  dispatch_any_floating("max_pool2d", pool.dtype, [&]<class S>(S) {
    const auto run = pool.lanes == 1 ? max_of_planes<S> : max_of_lanes<S>;
    run(pool, static_cast<const S*>(x), static_cast<S*>(y), index);
  });
}

void max_pool_gradient(const PoolCase& pool, const void* dy, const int32_t* index, void* dx) {
  dispatch_any_floating("max_pool2d", pool.dtype, [&]<class S>(S) {
    const auto run = pool.lanes == 1 ? max_gradient_of_planes<S> : max_gradient_of_lanes<S>;
    run(pool, static_cast<const S*>(dy), index, static_cast<S*>(dx));
  });
}

void max_pool_pick(const PoolCase& pool, const void* x, const int32_t* index, void* y) {
  dispatch_any_floating("max_pool2d", pool.dtype,
                        [&]<class S>(S) { max_pick(pool, static_cast<const S*>(x), index, static_cast<S*>(y)); });
}

// --- average_pool --------------------------------------------------------------------------------------------------

// Sums over windows, and the gradient of each position from the windows that hold it. Images with one lane (planes)
// take one axis after the other, images with many lanes (channels_last) all positions at once.

namespace {

/// to = of(from), or to += it.
template <class S, class T, class F>
HWY_INLINE void add_row(int64_t count, bool is_first, const S* from, F of, T* to) {
  for_each_lanes<T>(count, [&](int64_t i, auto part) {
    const Lanes<T> value = of(load(from + i, part), i, part);
    store(to + i, is_first ? value : load(static_cast<const T*>(to) + i, part) + value, part);
  });
}

/// The lanes of one position, and their factor.
template <class S, class T = compute_t<S>>
struct Addend {
  const S* lanes;
  T factor;
};

/// to = finish(the sum of the addends), lane by lane.
template <class S, class Finish>
HWY_INLINE void add_up(int64_t lanes, int64_t count, const Addend<S>* addends, S* to, Finish finish) {
  using T = compute_t<S>;
  constexpr int kBlock = 4;
  int64_t c = 0;
  for (; c + kBlock * kLanes<T> <= lanes; c += kBlock * kLanes<T>) {
    Lanes<T> sums[kBlock] = {};
    for (int64_t i = 0; i < count; ++i) {
      const Lanes<T> factor = broadcast(addends[i].factor);
#pragma GCC unroll 4
      for (int v = 0; v < kBlock; ++v) {
        sums[v] = multiply_add(load(addends[i].lanes + c + v * kLanes<T>, Whole{}), factor, sums[v]);
      }
    }
#pragma GCC unroll 4
    for (int v = 0; v < kBlock; ++v) {
      store(to + c + v * kLanes<T>, finish(sums[v]), Whole{});
    }
  }
  for_each_lanes<T>(lanes - c, [&](int64_t i, auto part) {
    Lanes<T> sum = {};
    for (int64_t k = 0; k < count; ++k) {
      sum = multiply_add(load(addends[k].lanes + c + i, part), broadcast(addends[k].factor), sum);
    }
    store(to + c + i, finish(sum), part);
  });
}

template <class S>
void average_of_lanes(const PoolCase& pool, const S* x, S* y) {
  using T = compute_t<S>;
  const int64_t lanes = pool.lanes;
  const int64_t ows = output_w(pool);
  for_each_row(pool, output_h(pool), pool.h * pool.w * lanes / output_h(pool), [&](int64_t image, int64_t oh) {
    const S* source = x + image * pool.h * pool.w * lanes;
    const PoolWindow rows = pool.rows->windows[static_cast<size_t>(oh)];
    Scratch scratch;
    auto* addends = scratch.take<Addend<S>>((rows.end - rows.begin) * pool.w);
    for (int64_t ow = 0; ow < ows; ++ow) {
      const PoolWindow columns = pool.columns->windows[static_cast<size_t>(ow)];
      int64_t count = 0;
      for (int64_t h = rows.begin; h < rows.end; ++h) {
        for (int64_t w = columns.begin; w < columns.end; ++w) {
          addends[count++] = {.lanes = source + (h * pool.w + w) * lanes, .factor = 1};
        }
      }
      const auto divisor = static_cast<T>(pool.divisor_of(rows, columns));
      add_up(lanes, count, addends, y + ((image * output_h(pool) + oh) * ows + ow) * lanes,
             [divisor](const Lanes<T>& sum) HWY_ATTR { return sum / divisor; });
    }
  });
}

template <class S>
void average_gradient_of_lanes(const PoolCase& pool, const S* dy, S* dx) {
  using T = compute_t<S>;
  const int64_t lanes = pool.lanes;
  const int64_t ows = output_w(pool);
  for_each_row(pool, pool.h, pool.w * lanes, [&](int64_t image, int64_t h) {
    const PoolHolders rows = pool.rows->holders[static_cast<size_t>(h)];
    Scratch scratch;
    auto* addends = scratch.take<Addend<S>>((rows.last - rows.first) * ows);
    for (int64_t w = 0; w < pool.w; ++w) {
      const PoolHolders columns = pool.columns->holders[static_cast<size_t>(w)];
      int64_t count = 0;
      for (int64_t oh = rows.first; oh < rows.last; ++oh) {
        for (int64_t ow = columns.first; ow < columns.last; ++ow) {
          const int64_t divisor = pool.divisor_of(pool.rows->windows[static_cast<size_t>(oh)],
                                                  pool.columns->windows[static_cast<size_t>(ow)]);
          addends[count++] = {.lanes = dy + ((image * output_h(pool) + oh) * ows + ow) * lanes,
                              .factor = T(1) / static_cast<T>(divisor)};
        }
      }
      add_up(lanes, count, addends, dx + ((image * pool.h + h) * pool.w + w) * lanes,
             [](const Lanes<T>& sum) HWY_ATTR { return sum; });
    }
  });
}

/// The sum of a run of memory.
template <class S, class T = compute_t<S>>
T sum_of(int64_t count, const S* x) {
  Lanes<T> sum = {};
  for_each_lanes<T>(count, [&](int64_t i, auto part) { sum += load(x + i, part); });
  return static_cast<T>(add_lanes(sum));
}

template <class S>
void average_of_planes(const PoolCase& pool, const S* x, S* y) {
  using T = compute_t<S>;
  const int64_t ows = output_w(pool);
  const auto window = [&](int64_t ow) -> const PoolWindow& { return pool.columns->windows[static_cast<size_t>(ow)]; };
  const bool whole_rows = ows == 1 && window(0).begin == 0 && window(0).end == pool.w;
  int64_t most = 1;
  for (int64_t ow = 0; ow < ows; ++ow) {
    most = std::max(most, window(ow).end - window(ow).begin);
  }
  // Taps after the end of a window read the place after the row, which holds 0.
  const Taps taps(whole_rows ? 0 : most, ows, [&](int64_t ow, int64_t tap) {
    return window(ow).begin + tap < window(ow).end ? window(ow).begin + tap : pool.w;
  });
  const Buffer<T> counts(ows);
  for (int64_t ow = 0; ow < ows; ++ow) {
    counts.data()[ow] = static_cast<T>(window(ow).count);
  }
  for_each_row(pool, output_h(pool), pool.h * pool.w / output_h(pool), [&](int64_t image, int64_t oh) {
    const S* source = x + image * pool.h * pool.w;
    const PoolWindow rows = pool.rows->windows[static_cast<size_t>(oh)];
    S* place = y + (image * output_h(pool) + oh) * ows;
    if (whole_rows) {  // one run of memory
      const T sum = sum_of((rows.end - rows.begin) * pool.w, source + rows.begin * pool.w);
      *place = static_cast<S>(sum / static_cast<T>(pool.divisor_of(rows, window(0))));
      return;
    }
    Scratch scratch;
    T* sums = scratch.take<T>(pool.w + 1);
    sums[pool.w] = 0;
    for (int64_t h = rows.begin; h < rows.end; ++h) {
      add_row(
          pool.w, h == rows.begin, source + h * pool.w, [](const Lanes<T>& v, int64_t, auto) HWY_ATTR { return v; },
          sums);
    }
    for_each_lanes<T>(ows, [&](int64_t ow, auto part) {
      const Lanes<T> divisor = pool.divisor != 0
                                   ? broadcast(static_cast<T>(pool.divisor))
                                   : load(static_cast<const T*>(counts.data()) + ow, part) * static_cast<T>(rows.count);
      store(place + ow, taps.sum<T>(sums, ow, part) / divisor, part);
    });
  });
}

template <class S>
void average_gradient_of_planes(const PoolCase& pool, const S* dy, S* dx) {
  using T = compute_t<S>;
  const int64_t ows = output_w(pool);
  const PoolWindow row = pool.rows->windows.front();
  const PoolWindow column = pool.columns->windows.front();
  const int64_t plane = pool.h * pool.w;
  if (output_h(pool) * ows == 1 && (row.end - row.begin) * (column.end - column.begin) == plane) {  // one window
    for_each_row(pool, 1, plane, [&](int64_t image, int64_t) {
      const Lanes<T> share = broadcast(static_cast<T>(dy[image]) / static_cast<T>(pool.divisor_of(row, column)));
      for_each_lanes<T>(plane, [&](int64_t i, auto part) { store(dx + image * plane + i, share, part); });
    });
    return;
  }
  const auto holders = [&](int64_t w) { return pool.columns->holders[static_cast<size_t>(w)]; };
  int64_t most = 1;
  for (int64_t w = 0; w < pool.w; ++w) {
    most = std::max(most, holders(w).last - holders(w).first);
  }
  // Taps after the last window that holds a position read the place after the row, which holds 0.
  const Taps taps(most, pool.w, [&](int64_t w, int64_t tap) {
    return holders(w).first + tap < holders(w).last ? holders(w).first + tap : ows;
  });
  const Buffer<T> counts(ows);
  for (int64_t ow = 0; ow < ows; ++ow) {
    counts.data()[ow] = static_cast<T>(pool.columns->windows[static_cast<size_t>(ow)].count);
  }
  for_each_row(pool, pool.h, pool.w, [&](int64_t image, int64_t h) {
    const PoolHolders rows = pool.rows->holders[static_cast<size_t>(h)];
    Scratch scratch;
    T* sums = scratch.zeros<T>(ows + 1);
    for (int64_t oh = rows.first; oh < rows.last; ++oh) {
      const auto row_count = static_cast<T>(pool.rows->windows[static_cast<size_t>(oh)].count);
      add_row(
          ows, oh == rows.first, dy + (image * output_h(pool) + oh) * ows,
          [&](const Lanes<T>& v, int64_t ow, auto part) HWY_ATTR {
            return pool.divisor != 0 ? v / static_cast<T>(pool.divisor)
                                     : v / (load(static_cast<const T*>(counts.data()) + ow, part) * row_count);
          },
          sums);
    }
    S* place = dx + (image * pool.h + h) * pool.w;
    for_each_lanes<T>(pool.w, [&](int64_t w, auto part) { store(place + w, taps.sum<T>(sums, w, part), part); });
  });
}

}  // namespace

void average_pool(const PoolCase& pool, const void* x, void* y) {
  dispatch_any_floating("avg_pool2d", pool.dtype, [&]<class S>(S) {
    const auto run = pool.lanes == 1 ? average_of_planes<S> : average_of_lanes<S>;
    run(pool, static_cast<const S*>(x), static_cast<S*>(y));
  });
}

void average_pool_gradient(const PoolCase& pool, const void* dy, void* dx) {
  dispatch_any_floating("avg_pool2d", pool.dtype, [&]<class S>(S) {
    const auto run = pool.lanes == 1 ? average_gradient_of_planes<S> : average_gradient_of_lanes<S>;
    run(pool, static_cast<const S*>(dy), static_cast<S*>(dx));
  });
}

}  // namespace norma::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace norma::kernels {

constinit const PoolKernels pool_cpu{.max_pool = NORMA_SIMD_CALL(max_pool),
                                     .max_pool_gradient = NORMA_SIMD_CALL(max_pool_gradient),
                                     .max_pool_pick = NORMA_SIMD_CALL(max_pool_pick),
                                     .average_pool = NORMA_SIMD_CALL(average_pool),
                                     .average_pool_gradient = NORMA_SIMD_CALL(average_pool_gradient)};

}  // namespace norma::kernels
#endif
