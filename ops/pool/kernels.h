#pragma once

#include "core/by_device.h"
#include "core/dtype.h"

#include <cstdint>
#include <vector>

namespace norma::kernels {

/// The window of one output position along one axis: positions begin + offset, begin + offset + step, … below end.
struct PoolWindow {
  int64_t begin = 0, end = 0;  ///< cut to the image; never empty
  int64_t count = 0;           ///< how many positions the average divides by, along this axis
  int64_t offset = 0;          ///< of the first position of a dilated window that is cut
  int64_t step = 1;            ///< dilation, the same for all windows; max_pool alone looks at it

  [[nodiscard]] int64_t first() const { return begin + offset; }
  [[nodiscard]] int64_t last() const { return first() + (end - 1 - first()) / step * step; }
};

/// The windows of an axis, and for each input position the windows [first, last) that reach over it.
struct PoolAxis {
  struct Holders {
    int64_t first = 0, last = 0;
  };

  std::vector<PoolWindow> windows;
  std::vector<Holders> holders;

  /// Beginnings and ends of `all` must not decrease.
  PoolAxis(std::vector<PoolWindow> all, int64_t size);
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

extern const PoolKernels pool_cpu;
extern const ByDevice<PoolKernels> pool_kernels;

}  // namespace norma::kernels
