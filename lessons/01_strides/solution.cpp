// Lesson 1: the three gaps, filled.

#include "exercise.h"

#include <stdexcept>

int64_t place(const View& view, const std::vector<int64_t>& index) {
  // GAP 1: from the offset, index steps of the stride along each axis.
  int64_t at = view.offset;
  for (size_t axis = 0; axis < index.size(); ++axis) {
    at += index[axis] * view.strides[axis];
  }
  return at;
}

View sliced(const View& view, int64_t axis, int64_t start, int64_t end, int64_t step) {
  View result = view;
  // GAP 2: the count is rounded up, since a last step that is cut short still has its first element.
  result.offset += start * view.strides[axis];
  result.sizes[axis] = (end - start + step - 1) / step;
  result.strides[axis] *= step;
  return result;
}

View expanded(const View& view, const std::vector<int64_t>& sizes) {
  View result = view;
  // GAP 3: stride 0 reads one element again and again.
  for (size_t axis = 0; axis < sizes.size(); ++axis) {
    if (view.sizes[axis] != sizes[axis]) {
      if (view.sizes[axis] != 1) {
        throw std::invalid_argument("expanded: only an axis of size 1 can be repeated");
      }
      result.sizes[axis] = sizes[axis];
      result.strides[axis] = 0;
    }
  }
  return result;
}
