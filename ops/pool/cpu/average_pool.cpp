#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/pool/cpu/average_pool.cpp"
#include "core/simd/foreach_target.h"

#include "core/cpu/scratch.h"
#include "core/simd/sums.h"
#include "ops/pool/cpu/pool_kernels.h"
#include "ops/pool/cpu/taps.h"

#include <algorithm>
#include <type_traits>

// Sums over windows, and the gradient of each position from the windows that hold it. Images with one lane (planes)
// take one axis after the other, images with many lanes (channels_last) all positions at once.

HWY_BEFORE_NAMESPACE();
namespace norma::kernels::cpu::HWY_NAMESPACE {

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
  // Taps behind the end of a window read the place behind the row, which holds 0.
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
  // Taps behind the last window that holds a position read the place behind the row, which holds 0.
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

}  // namespace norma::kernels::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace norma::kernels::cpu {

HWY_EXPORT(average_pool);
void average_pool(const PoolCase& pool, const void* x, void* y) {
  NORMA_SIMD_BEST(average_pool)(pool, x, y);
}
HWY_EXPORT(average_pool_gradient);
void average_pool_gradient(const PoolCase& pool, const void* dy, void* dx) {
  NORMA_SIMD_BEST(average_pool_gradient)(pool, dy, dx);
}

}  // namespace norma::kernels::cpu
#endif
