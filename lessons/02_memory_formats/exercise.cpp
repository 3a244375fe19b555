// Lesson 2: fill the three gaps, then: ./run lesson 2 --check

#include "exercise.h"

std::vector<int64_t> strides_of(const std::vector<int64_t>& sizes, Format format) {
  const int64_t c = sizes[1];
  const int64_t h = sizes[2];
  const int64_t w = sizes[3];
  // GAP 1: return the four strides, those of N, C, H and W. The fastest axis has stride 1; each slower axis steps over
  // everything that is faster.
  return {0, 0, 0, 0};
}

void to_nhwc(const float* from, float* to, int64_t n, int64_t c, int64_t h, int64_t w) {
  // GAP 2: copy each element. Four loops go over its image in, channel ic, row ih and column iw. Two sums of
  // index * stride say where it is in `from`, and where it belongs in `to`. Use strides_of, or write the strides down.
}

int64_t bytes_moved(const std::vector<int64_t>& sizes, const std::vector<int64_t>& strides, Format format) {
  // GAP 3: compare the strides with those of the format, but only along axes that are longer than 1. If all agree, no
  // byte moves. Else each element is read once and written once, and a float32 has 4 bytes.
  return -1;
}
