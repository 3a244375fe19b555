#pragma once

#include "ops/pool/cuda/windows.h"

namespace norma::kernels::NORMA_BACKEND {

template <class S, int width>
NORMA_KERNEL void max_of_windows(PoolImages pool, const S* x, S* y, int32_t* index) {
  using T = compute_t<S>;
  const int64_t count = pool.images * pool.rows.count * pool.columns.count * (pool.lanes / width);
  for (int64_t i = global_thread(); i < count; i += global_threads()) {
    const PoolPlace place(i, pool.rows.count, pool.columns.count, pool.lanes, width);
    const PoolWindow rows = pool.rows.window(place.row);
    const PoolWindow columns = pool.columns.window(place.column);
    const S* source = x + place.image * pool.h * pool.w * pool.lanes + place.lane;
    const int64_t start = rows.first() * pool.w + columns.first();
    T best[width];
    int32_t positions[width];
    load<S, width>(source + start * pool.lanes, best);
    NORMA_UNROLL
    for (int j = 0; j < width; ++j) {
      positions[j] = static_cast<int32_t>(start);
    }
    for (int64_t h = rows.first(); h < rows.end; h += rows.step) {
      for (int64_t w = columns.first(); w < columns.end; w += columns.step) {
        const int64_t position = h * pool.w + w;
        T values[width];
        load<S, width>(source + position * pool.lanes, values);
        NORMA_UNROLL
        for (int j = 0; j < width; ++j) {
          const bool stays = values[j] <= best[j] || best[j] != best[j];  // takes larger values, or the first NaN
          best[j] = stays ? best[j] : values[j];
          positions[j] = stays ? positions[j] : static_cast<int32_t>(position);
        }
      }
    }
    store<S, width>(y + i * width, best);
    store<int32_t, width>(index + i * width, positions);
  }
}

/// dx of a position is the sum of dy over the few windows that hold it and have chosen it: each is written once.
template <class S, int width>
NORMA_KERNEL void max_gradient(PoolImages pool, const S* dy, const int32_t* index, S* dx) {
  using T = compute_t<S>;
  const int64_t count = pool.images * pool.h * pool.w * (pool.lanes / width);
  for (int64_t i = global_thread(); i < count; i += global_threads()) {
    const PoolPlace place(i, pool.h, pool.w, pool.lanes, width);
    const PoolHolders rows = pool.rows.holders(place.row);
    const PoolHolders columns = pool.columns.holders(place.column);
    const auto here = static_cast<int32_t>(place.row * pool.w + place.column);
    T sums[width] = {};
    for (int64_t oh = rows.first; oh < rows.last; ++oh) {
      const int64_t line = (place.image * pool.rows.count + oh) * pool.columns.count;
      for (int64_t ow = columns.first; ow < columns.last; ++ow) {
        const int64_t at = (line + ow) * pool.lanes + place.lane;
        int32_t positions[width];
        T values[width];
        load<int32_t, width>(index + at, positions);
        load<S, width>(dy + at, values);
        NORMA_UNROLL
        for (int j = 0; j < width; ++j) {
          sums[j] += positions[j] == here ? values[j] : T(0);
        }
      }
    }
    store<S, width>(dx + i * width, sums);
  }
}

template <class S>
NORMA_KERNEL void max_pick(PoolImages pool, const S* x, const int32_t* index, S* y) {
  const int64_t of_image = pool.rows.count * pool.columns.count * pool.lanes;
  for (int64_t i = global_thread(); i < pool.images * of_image; i += global_threads()) {
    const int64_t image = quotient(i, of_image);
    const int64_t lane = i - quotient(i, pool.lanes) * pool.lanes;
    y[i] = x[(image * pool.h * pool.w + index[i]) * pool.lanes + lane];
  }
}

inline void max_pool(const PoolCase& pool, const void* x, void* y, int32_t* index) {
  const PoolImages images(pool);
  dispatch_any_floating("max_pool2d", pool.dtype, [&](auto zero) {
    using S = decltype(zero);
    const auto run = [&](auto width, int64_t blocks, int threads) {
      launch(blocks, threads, 0, current_stream(), max_of_windows<S, width>, images, static_cast<const S*>(x),
             static_cast<S*>(y), index);
    };
    with_pool_width<S>(images.y_pixels(), pool.lanes, run, x, y, index);
  });
}

inline void max_pool_gradient(const PoolCase& pool, const void* dy, const int32_t* index, void* dx) {
  const PoolImages images(pool);
  dispatch_any_floating("max_pool2d", pool.dtype, [&](auto zero) {
    using S = decltype(zero);
    const auto run = [&](auto width, int64_t blocks, int threads) {
      launch(blocks, threads, 0, current_stream(), max_gradient<S, width>, images, static_cast<const S*>(dy), index,
             static_cast<S*>(dx));
    };
    with_pool_width<S>(images.x_pixels(), pool.lanes, run, dy, index, dx);
  });
}

inline void max_pool_pick(const PoolCase& pool, const void* x, const int32_t* index, void* y) {
  const PoolImages images(pool);
  const int64_t count = images.y_pixels() * pool.lanes;
  if (count == 0) {
    return;
  }
  dispatch_any_floating("max_pool2d", pool.dtype, [&](auto zero) {
    using S = decltype(zero);
    launch(blocks_for(count, kPoolThreads), threads_for(count, kPoolThreads), 0, current_stream(), max_pick<S>, images,
           static_cast<const S*>(x), index, static_cast<S*>(y));
  });
}

}  // namespace norma::kernels::NORMA_BACKEND
