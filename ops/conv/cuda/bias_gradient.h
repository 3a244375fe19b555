#pragma once

#include "core/device.h"
#include "ops/conv/kernels.h"
#include "ops/reduce/kernels.h"

namespace norma::kernels {

/// Computes ConvKernels::bias_gradient by the reductions of `device`.
inline void bias_gradient_on(Device device, const Conv2dCase& conv, const void* dy, void* db) {
  const int64_t pixels = conv.oh * conv.ow;
  const ReduceShape shape =
      conv.channels_last
          ? ReduceShape{.sizes = {conv.n * pixels, conv.o}, .x_strides = {conv.o, 1}, .y_strides = {0, 1}}
          : ReduceShape{
                .sizes = {conv.n, conv.o, pixels}, .x_strides = {conv.o * pixels, pixels, 1}, .y_strides = {0, 1, 0}};
  reduce_kernels.table("conv2d", device).fold(Fold::sum, shape, conv.dtype, dy, nullptr, db, 1);
}

}  // namespace norma::kernels
