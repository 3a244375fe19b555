#pragma once

#include "core/strided_loop.h"
#include "ops/reduce/kernels.h"

namespace norma::kernels {

/// The merged axes of a reduction, kept and reduced ones apart, each outermost first. At least one of each.
struct ReduceAxes {
  Sizes kept, reduced;
  Strides kept_x, kept_y, reduced_x;
  bool innermost_is_kept = false;

  explicit ReduceAxes(const ReduceShape& shape) {
    const StridedLoop<2> loop = make_strided_loop<2>(shape.sizes, {shape.x_strides, shape.y_strides});
    innermost_is_kept = loop.strides[1].back() != 0;
    for (int64_t axis = 0; axis < loop.sizes.size(); ++axis) {
      add_axis(loop.sizes[axis], loop.strides[0][axis], loop.strides[1][axis], loop.strides[1][axis] != 0);
    }
    if (kept.empty()) {
      add_axis(1, 0, 0, /* is_kept= */ true);
    }
    if (reduced.empty()) {
      add_axis(1, 0, 0, /* is_kept= */ false);
    }
  }

 private:
  void add_axis(int64_t size, int64_t x_stride, int64_t y_stride, bool is_kept) {
    (is_kept ? kept : reduced).push_back(size);
    (is_kept ? kept_x : reduced_x).push_back(x_stride);
    if (is_kept) {
      kept_y.push_back(y_stride);
    }
  }
};

}  // namespace norma::kernels
