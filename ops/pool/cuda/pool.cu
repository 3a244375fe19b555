#include "core/cuda/number.h"
#include "core/cuda/teams.h"
#include "ops/pool/kernels.h"

// The kernels of pooling, and their table.

namespace norma::kernels::NORMA_BACKEND {

// --- windows -------------------------------------------------------------------------------------------------------

// The kernels of pooling share this. Each thread has some neighbouring lanes of one position, as many as 16 bytes hold
// or one, and reads the windows around it. Only for large averages of planes do several threads add up one sum.

inline constexpr int kPoolThreads = 256;

/// PoolCase as kernels take it.
struct PoolImages {
  int64_t images, lanes;
  int64_t h, w;
  PoolWindows rows, columns;
  int64_t divisor;

  explicit PoolImages(const PoolCase& pool)
      : images(pool.images),
        lanes(pool.lanes),
        h(pool.h),
        w(pool.w),
        rows(pool.rows->formula),
        columns(pool.columns->formula),
        divisor(pool.divisor) {}

  /// The divisor of a window's average.
  NORMA_DEVICE int64_t divisor_of(const PoolWindow& row, const PoolWindow& column) const {
    return divisor != 0 ? divisor : row.count * column.count;
  }
  [[nodiscard]] int64_t x_pixels() const { return images * h * w; }
  [[nodiscard]] int64_t y_pixels() const { return images * rows.count * columns.count; }
};

/// The place of some neighbouring lanes.
struct PoolPlace {
  int64_t image, row, column;
  int64_t lane;  ///< the first

  /// Place number i in images of (h, w, lanes), each of `width` lanes.
  NORMA_DEVICE PoolPlace(int64_t i, int64_t h, int64_t w, int64_t lanes, int width) {
    const int64_t vectors = lanes / width;
    const int64_t pixel = quotient(i, vectors);
    lane = (i - pixel * vectors) * width;
    const int64_t line = quotient(pixel, w);
    column = pixel - line * w;
    image = quotient(line, h);
    row = line - image * h;
  }
};

/// Calls f(width, blocks, threads) for a launch over `pixels` of the pool's lanes, with `width` lanes for each thread;
/// not at all if there are no pixels. All pointers are to such pixels.
template <class S, class F, class... Pointers>
void with_pool_width(int64_t pixels, int64_t lanes, F&& f, const Pointers*... pointers) {
  constexpr int kWidth = kVectorOf<S>;
  if (pixels * lanes == 0) {
    return;
  }
  const auto call = [&](auto width) {
    const int64_t work = pixels * (lanes / width);
    f(width, blocks_for(work, kPoolThreads), threads_for(work, kPoolThreads));
  };
  if (are_aligned(pointers...) && lanes % kWidth == 0) {
    call(std::integral_constant<int, kWidth>{});
  } else {
    call(std::integral_constant<int, 1>{});
  }
}

// --- max_pool ------------------------------------------------------------------------------------------------------

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
  dispatch_any_floating("max_pool2d", pool.dtype, [&]<class S>(S) {
    const auto run = [&](auto width, int64_t blocks, int threads) {
      launch(blocks, threads, 0, current_stream(), max_of_windows<S, width>, images, static_cast<const S*>(x),
             static_cast<S*>(y), index);
    };
    with_pool_width<S>(images.y_pixels(), pool.lanes, run, x, y, index);
  });
}

inline void max_pool_gradient(const PoolCase& pool, const void* dy, const int32_t* index, void* dx) {
  const PoolImages images(pool);
  dispatch_any_floating("max_pool2d", pool.dtype, [&]<class S>(S) {
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
  dispatch_any_floating("max_pool2d", pool.dtype, [&]<class S>(S) {
    launch_over(count, kPoolThreads, max_pick<S>, images, static_cast<const S*>(x), index, static_cast<S*>(y));
  });
}

// --- average_pool --------------------------------------------------------------------------------------------------

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
  dispatch_any_floating("avg_pool2d", pool.dtype, [&]<class S>(S) {
    const auto run = [&](auto width, int64_t blocks, int threads) {
      if (by_warp) {
        launch_over(images.y_pixels() * kWarp, kPoolThreads, average_by_warp<S>, images, static_cast<const S*>(x),
                    static_cast<S*>(y));
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
  dispatch_any_floating("avg_pool2d", pool.dtype, [&]<class S>(S) {
    const auto run = [&](auto width, int64_t blocks, int threads) {
      launch(blocks, threads, 0, current_stream(), average_gradient<S, width>, images, static_cast<const S*>(dy),
             static_cast<S*>(dx));
    };
    with_pool_width<S>(images.x_pixels(), pool.lanes, run, dy, dx);
  });
}

}  // namespace norma::kernels::NORMA_BACKEND

namespace norma::kernels {

using namespace NORMA_BACKEND;

constinit const PoolKernels NORMA_TABLE(pool){.max_pool = max_pool,
                                              .max_pool_gradient = max_pool_gradient,
                                              .max_pool_pick = max_pool_pick,
                                              .average_pool = average_pool,
                                              .average_pool_gradient = average_pool_gradient};

}  // namespace norma::kernels
