#pragma once

#include "core/cuda/teams.h"
#include "ops/pool/cuda/windows.h"

namespace norma::kernels::NORMA_BACKEND {

template <class S, int width>
NORMA_KERNEL void average_of_windows(PoolImages pool, const S* x, S* y) {
  using T = compute_t<S>;
  const int64_t count = pool.images * pool.rows.count * pool.columns.count * (pool.lanes / width);
  for (int64_t i = global_thread(); i < count; i += global_threads()) {
    const PoolPlace place(i, pool.rows.count, pool.columns.count, pool.lanes, width);
    const PoolWindow rows = pool.rows.window(place.row);
    const PoolWindow columns = pool.columns.window(place.column);
    const S* source = x + place.image * pool.h * pool.w * pool.lanes + place.lane;
    T sums[width] = {};
    for (int64_t h = rows.begin; h < rows.end; ++h) {
      for (int64_t w = columns.begin; w < columns.end; ++w) {
        T values[width];
        load<S, width>(source + (h * pool.w + w) * pool.lanes, values);
        NORMA_UNROLL
        for (int j = 0; j < width; ++j) {
          sums[j] += values[j];
        }
      }
    }
    const auto divisor = static_cast<T>(pool.divisor_of(rows, columns));
    NORMA_UNROLL
    for (int j = 0; j < width; ++j) {
      sums[j] /= divisor;
    }
    store<S, width>(y + i * width, sums);
  }
}

/// The averages of one lane over windows of many positions, with a warp for each window.
template <class S>
NORMA_KERNEL void average_by_warp(PoolImages pool, const S* x, S* y) {
  using T = compute_t<S>;
  const int64_t count = pool.images * pool.rows.count * pool.columns.count;
  for (int64_t i = global_thread() / kWarp; i < count; i += global_threads() / kWarp) {
    const PoolPlace place(i, pool.rows.count, pool.columns.count, 1, 1);
    const PoolWindow rows = pool.rows.window(place.row);
    const PoolWindow columns = pool.columns.window(place.column);
    const S* source = x + place.image * pool.h * pool.w;
    const int64_t across = columns.end - columns.begin;
    T sum = 0;
    for (int64_t k = lane(); k < (rows.end - rows.begin) * across; k += kWarp) {
      const int64_t down = quotient(k, across);
      sum += to_number(source[(rows.begin + down) * pool.w + columns.begin + (k - down * across)]);
    }
    for (int mask = kWarp / 2; mask > 0; mask /= 2) {
      sum += shuffle_xor(sum, mask);
    }
    if (lane() == 0) {
      y[i] = to_element<S>(sum / static_cast<T>(pool.divisor_of(rows, columns)));
    }
  }
}

/// dx of a position is the sum of dy / divisor over the windows that hold it.
template <class S, int width>
NORMA_KERNEL void average_gradient(PoolImages pool, const S* dy, S* dx) {
  using T = compute_t<S>;
  const int64_t count = pool.images * pool.h * pool.w * (pool.lanes / width);
  for (int64_t i = global_thread(); i < count; i += global_threads()) {
    const PoolPlace place(i, pool.h, pool.w, pool.lanes, width);
    const PoolHolders rows = pool.rows.holders(place.row);
    const PoolHolders columns = pool.columns.holders(place.column);
    T sums[width] = {};
    for (int64_t oh = rows.first; oh < rows.last; ++oh) {
      const PoolWindow row = pool.rows.window(oh);
      const int64_t line = (place.image * pool.rows.count + oh) * pool.columns.count;
      for (int64_t ow = columns.first; ow < columns.last; ++ow) {
        const auto divisor = static_cast<T>(pool.divisor_of(row, pool.columns.window(ow)));
        T values[width];
        load<S, width>(dy + (line + ow) * pool.lanes + place.lane, values);
        NORMA_UNROLL
        for (int j = 0; j < width; ++j) {
          sums[j] += values[j] / divisor;
        }
      }
    }
    store<S, width>(dx + i * width, sums);
  }
}

inline void average_pool(const PoolCase& pool, const void* x, void* y) {
  constexpr int64_t kManyPositions = 32;
  const PoolImages images(pool);
  const PoolWindow row = images.rows.window(0);
  const PoolWindow column = images.columns.window(0);
  const bool by_warp = pool.lanes == 1 && (row.end - row.begin) * (column.end - column.begin) >= kManyPositions;
  dispatch_any_floating("avg_pool2d", pool.dtype, [&](auto zero) {
    using S = decltype(zero);
    const auto run = [&](auto width, int64_t blocks, int threads) {
      if (by_warp) {
        launch(blocks_for(images.y_pixels() * kWarp, kPoolThreads),
               threads_for(images.y_pixels() * kWarp, kPoolThreads), 0, current_stream(), average_by_warp<S>, images,
               static_cast<const S*>(x), static_cast<S*>(y));
      } else {
        launch(blocks, threads, 0, current_stream(), average_of_windows<S, width>, images, static_cast<const S*>(x),
               static_cast<S*>(y));
      }
    };
    with_pool_width<S>(images.y_pixels(), pool.lanes, run, x, y);
  });
}

inline void average_pool_gradient(const PoolCase& pool, const void* dy, void* dx) {
  const PoolImages images(pool);
  dispatch_any_floating("avg_pool2d", pool.dtype, [&](auto zero) {
    using S = decltype(zero);
    const auto run = [&](auto width, int64_t blocks, int threads) {
      launch(blocks, threads, 0, current_stream(), average_gradient<S, width>, images, static_cast<const S*>(dy),
             static_cast<S*>(dx));
    };
    with_pool_width<S>(images.x_pixels(), pool.lanes, run, dy, dx);
  });
}

}  // namespace norma::kernels::NORMA_BACKEND
