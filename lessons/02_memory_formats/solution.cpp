// Lesson 2: the three gaps, filled.

#include "exercise.h"

std::vector<int64_t> strides_of(const std::vector<int64_t>& sizes, Format format) {
  const int64_t c = sizes[1];
  const int64_t h = sizes[2];
  const int64_t w = sizes[3];
  // GAP 1: W, H, C, N from the fastest to the slowest; or C, W, H, N.
  if (format == Format::nchw) {
    return {c * h * w, h * w, w, 1};
  }
  return {h * w * c, 1, w * c, c};
}

void to_nhwc(const float* from, float* to, int64_t n, int64_t c, int64_t h, int64_t w) {
  // GAP 2: the same index, two sets of strides. The innermost loop writes neighbours.
  const std::vector<int64_t> a = strides_of({n, c, h, w}, Format::nchw);
  const std::vector<int64_t> b = strides_of({n, c, h, w}, Format::nhwc);
  for (int64_t in = 0; in < n; ++in) {
    for (int64_t ih = 0; ih < h; ++ih) {
      for (int64_t iw = 0; iw < w; ++iw) {
        for (int64_t ic = 0; ic < c; ++ic) {
          to[in * b[0] + ic * b[1] + ih * b[2] + iw * b[3]] = from[in * a[0] + ic * a[1] + ih * a[2] + iw * a[3]];
        }
      }
    }
  }
}

int64_t bytes_moved(const std::vector<int64_t>& sizes, const std::vector<int64_t>& strides, Format format) {
  // GAP 3: one axis that differs is enough to move everything.
  const std::vector<int64_t> wanted = strides_of(sizes, format);
  int64_t elements = 1;
  bool same = true;
  for (size_t axis = 0; axis < 4; ++axis) {
    elements *= sizes[axis];
    same = same && (sizes[axis] == 1 || strides[axis] == wanted[axis]);
  }
  return same ? 0 : 2 * 4 * elements;
}
