#pragma once

#include "core/by_device.h"
#include "core/dtype.h"

#include <algorithm>
#include <cstdint>
#include <vector>

namespace norma::kernels {

/// The window of one output position along one axis: positions begin + offset, begin + offset + step, … below end.
struct PoolWindow {
  int64_t begin = 0, end = 0;  ///< cut to the image; never empty
  int64_t count = 0;           ///< the number of positions in the divisor of the average, along this axis
  int64_t offset = 0;          ///< of the first position of a dilated window that is cut
  int64_t step = 1;            ///< dilation, the same for all windows; only max_pool uses it

  [[nodiscard]] constexpr int64_t first() const { return begin + offset; }
  [[nodiscard]] constexpr int64_t last() const { return first() + (end - 1 - first()) / step * step; }
};

/// a / b, neither of them negative. A GPU divides 32 bits in a quarter of the time that 64 take.
constexpr int64_t pool_quotient(int64_t a, int64_t b) {
  return ((a | b) >> 32) == 0 ? static_cast<int64_t>(static_cast<uint32_t>(a) / static_cast<uint32_t>(b)) : a / b;
}

/// The windows [first, last) that reach over a position.
struct PoolHolders {
  int64_t first = 0, last = 0;
};

/// The numbers that define all windows of an axis. Begins and ends do not decrease from window to window.
struct PoolWindows {
  int64_t size = 0;  ///< of the image
  int64_t count = 0;
  int64_t span = 0;  ///< of a sliding window, dilation included; 0: window i is [i size / count, (i + 1) size / count)
  int64_t stride = 1, padding = 0, dilation = 1;
  bool count_padding = false;  ///< the average divides by positions in the padding, too

  [[nodiscard]] constexpr bool is_adaptive() const { return span == 0; }

  [[nodiscard]] constexpr PoolWindow window(int64_t i) const {
    if (is_adaptive()) {
      const int64_t begin = pool_quotient(i * size, count);
      const int64_t end = pool_quotient((i + 1) * size + count - 1, count);
      return {.begin = begin, .end = end, .count = end - begin};
    }
    const int64_t begin = i * stride - padding;
    const int64_t end = std::min(begin + span, size + padding);
    PoolWindow window{
        .begin = std::max<int64_t>(begin, 0), .end = std::min(end, size), .step = std::min(dilation, size)};
    window.count = count_padding ? end - begin : window.end - window.begin;
    window.offset = dilation == 1 ? 0 : (dilation - (window.begin - begin) % dilation) % dilation;
    return window;
  }

  [[nodiscard]] constexpr PoolHolders holders(int64_t position) const {
    if (is_adaptive()) {
      return {.first = pool_quotient(position * count, size),
              .last = pool_quotient((position + 1) * count + size - 1, size)};
    }
    const int64_t behind = position + padding - span;  // the latest begin of a window that does not reach so far
    const int64_t first = behind < 0 ? 0 : std::min(pool_quotient(behind, stride) + 1, count);
    return {.first = first, .last = std::max(first, std::min(pool_quotient(position + padding, stride) + 1, count))};
  }
};

/// The windows of an axis and the holders of its positions, as tables.
struct PoolAxis {
  PoolWindows formula;
  std::vector<PoolWindow> windows;
  std::vector<PoolHolders> holders;

  explicit PoolAxis(const PoolWindows& of);
};

/// Pooling in plain numbers: `images` of (h, w, lanes), lanes innermost, give images of (oh, ow, lanes).
/// NHWC tensors are n images with c lanes, NCHW tensors n * c images with one.
struct PoolCase {
  DType dtype = DType::float32;
  int64_t images = 0, lanes = 0;
  int64_t h = 0, w = 0;
  const PoolAxis* rows = nullptr;
  const PoolAxis* columns = nullptr;
  int64_t divisor = 0;  ///< of averages; 0: the product of the counts of a window

  [[nodiscard]] int64_t divisor_of(const PoolWindow& row, const PoolWindow& column) const {
    return divisor != 0 ? divisor : row.count * column.count;
  }
};

struct PoolKernels {
  /// y = largest value of each window, index = its h * w_size + w: the first of equal ones, NaN above all.
  void (*max_pool)(const PoolCase& pool, const void* x, void* y, int32_t* index);
  /// dx = sum of dy over the windows whose index points here.
  void (*max_pool_gradient)(const PoolCase& pool, const void* dy, const int32_t* index, void* dx);
  /// y = the value of x that index points to.
  void (*max_pool_pick)(const PoolCase& pool, const void* x, const int32_t* index, void* y);
  void (*average_pool)(const PoolCase& pool, const void* x, void* y);
  void (*average_pool_gradient)(const PoolCase& pool, const void* dy, void* dx);
};

extern const PoolKernels pool_cpu, pool_cuda, pool_emulated;
extern const ByDevice<PoolKernels> pool_kernels;

}  // namespace norma::kernels
