#pragma once

#include "core/cuda/number.h"
#include "ops/pool/kernels.h"

// The kernels of pooling share this. Each thread has some neighbouring lanes of one position, as many as 16 bytes hold
// or one, and reads the windows around it. Only for large averages of planes do several threads add up one sum.

namespace norma::kernels::NORMA_BACKEND {

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

}  // namespace norma::kernels::NORMA_BACKEND
