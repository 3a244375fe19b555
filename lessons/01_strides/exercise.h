#pragma once

#include <cstdint>
#include <vector>

/// A tensor without its memory: what this lesson is about.
struct View {
  std::vector<int64_t> sizes;    ///< how many elements along each axis
  std::vector<int64_t> strides;  ///< how many places one step along each axis goes
  int64_t offset = 0;            ///< the place of element (0, 0, …)
};

/// The place in memory of the element at `index`, which has one number for each axis.
int64_t place(const View& view, const std::vector<int64_t>& index);

/// Elements start, start + step, … below end of one axis; the other axes stay. No element moves.
View sliced(const View& view, int64_t axis, int64_t start, int64_t end, int64_t step);

/// The same view with axes of size 1 repeated, so that its sizes are `sizes`. Throws std::invalid_argument where an
/// axis that is not of size 1 would have to change.
View expanded(const View& view, const std::vector<int64_t>& sizes);
