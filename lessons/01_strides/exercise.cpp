// Lesson 1: fill the three gaps, then: ./run lesson 1 --check

#include "exercise.h"

#include <stdexcept>

int64_t place(const View& view, const std::vector<int64_t>& index) {
  // GAP 1: the place of the element at `index`. Start at the offset; then, for each axis, go index steps of its stride.
  return -1;
}

View sliced(const View& view, int64_t axis, int64_t start, int64_t end, int64_t step) {
  View result = view;
  // GAP 2: three things change: result.offset, result.sizes[axis] and result.strides[axis]. Where does the first
  // element lie now? `view` may have an offset already. How many elements are left, when `end` is not one of them? How
  // far is it to the next one? A division of whole numbers rounds down: (a + b - 1) / b rounds up.
  return result;
}

View expanded(const View& view, const std::vector<int64_t>& sizes) {
  View result = view;
  // GAP 3: for each axis whose size differs from sizes[axis]: throw std::invalid_argument("…") unless its size is 1,
  // then give it the new size and the stride with which every step stays at the same place.
  return result;
}
