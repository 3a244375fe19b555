#pragma once

#include "core/strided_loop.h"
#include "ops/reduce/kernels.h"

#include <cstdint>

// The axes of a reduction and how they are counted through.

namespace norma::kernels::cpu {

/// Elements one task should see: enough to hide its overhead, few enough to feed all threads.
inline constexpr int64_t kTaskElements = 32768;

/// The merged axes of a reduction, kept and reduced ones apart, each outermost first. At least one of each.
struct Walk {
  Sizes kept, reduced;
  Strides kept_x, kept_y, reduced_x;
  bool innermost_is_kept = false;

  explicit Walk(const ReduceShape& shape) {
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

/// Counts through a list of axes in row-major order and keeps an offset in step.
class Odometer {
 public:
  Odometer(const Sizes& sizes, const Strides& strides, int64_t position)
      : sizes_(sizes), strides_(strides), index_(Sizes::filled(sizes.size(), 0)) {
    for (int64_t axis = sizes.size() - 1; axis >= 0; --axis) {
      index_[axis] = position % sizes[axis];
      position /= sizes[axis];
      offset_ += index_[axis] * strides[axis];
    }
  }
  [[nodiscard]] int64_t offset() const { return offset_; }
  void next() {
    for (int64_t axis = sizes_.size() - 1; axis >= 0; --axis) {
      offset_ += strides_[axis];
      if (++index_[axis] < sizes_[axis]) {
        return;
      }
      offset_ -= sizes_[axis] * strides_[axis];
      index_[axis] = 0;
    }
  }

 private:
  const Sizes& sizes_;
  const Strides& strides_;
  Sizes index_;
  int64_t offset_ = 0;
};

inline int64_t offset_at(const Sizes& sizes, const Strides& strides, int64_t position) {
  return Odometer(sizes, strides, position).offset();
}

inline Sizes without_last(Sizes sizes) {
  sizes.erase(sizes.size() - 1);
  return sizes;
}

}  // namespace norma::kernels::cpu
