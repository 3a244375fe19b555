#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/pool/cpu/max_pool.cpp"
#include "core/simd/foreach_target.h"

#include "core/cpu/scratch.h"
#include "ops/pool/cpu/pool_kernels.h"
#include "ops/pool/cpu/taps.h"

#include <algorithm>
#include <type_traits>

// Images with many lanes (channels_last) are vectors of channels. Images with one lane (planes) are vectors of
// neighbouring results, which gather the values of their windows.

HWY_BEFORE_NAMESPACE();
namespace norma::kernels::cpu::HWY_NAMESPACE {

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
  // Taps behind the end of a window read its last value again, which changes nothing.
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

}  // namespace norma::kernels::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace norma::kernels::cpu {

HWY_EXPORT(max_pool);
void max_pool(const PoolCase& pool, const void* x, void* y, int32_t* index) {
  NORMA_SIMD_BEST(max_pool)(pool, x, y, index);
}
HWY_EXPORT(max_pool_gradient);
void max_pool_gradient(const PoolCase& pool, const void* dy, const int32_t* index, void* dx) {
  NORMA_SIMD_BEST(max_pool_gradient)(pool, dy, index, dx);
}
HWY_EXPORT(max_pool_pick);
void max_pool_pick(const PoolCase& pool, const void* x, const int32_t* index, void* y) {
  NORMA_SIMD_BEST(max_pool_pick)(pool, x, index, y);
}

}  // namespace norma::kernels::cpu
#endif
