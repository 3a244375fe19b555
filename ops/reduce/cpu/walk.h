#pragma once

#include "ops/reduce/axes.h"

#include <cstdint>

// Counting through the axes of a reduction.

namespace norma::kernels::cpu {

/// The elements that one task should have: enough to hide its overhead, few enough to feed all threads.
inline constexpr int64_t kTaskElements = 32768;

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
