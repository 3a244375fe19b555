#pragma once

#include "core/by_device.h"
#include "core/dtype.h"
#include "core/sizes.h"

#include <cstdint>

namespace norma::kernels {

/// The elements that a dropout keeps: element i (row-major) is kept iff word i % 4 of philox(seed, first + i / 4), as a
/// fraction of 2^32, is at least `rate`.
struct DropoutMask {
  uint64_t seed = 0;
  uint64_t first = 0;
  double rate = 0;
  const uint64_t* origin = nullptr;  ///< on the device: counts on to `first`; null: 0

  /// The factor of kept elements.
  [[nodiscard]] double scale() const { return rate < 1 ? 1 / (1 - rate) : 0; }
};

struct RandomKernels {
  /// y = x * scale where kept, else 0. Operands of any strides, y and x may be the same memory. Floating dtypes.
  void (*dropout)(DType dtype, const Sizes& sizes, void* y, const Strides& y_strides, const void* x,
                  const Strides& x_strides, const DropoutMask& mask);
};

extern const RandomKernels random_cpu, random_cuda, random_emulated;
extern const ByDevice<RandomKernels> random_kernels;

}  // namespace norma::kernels
