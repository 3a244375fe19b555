#pragma once

#include <cstdint>
#include <vector>

enum class Format { nchw, nhwc };

/// The strides of a batch of images that fills its memory without gaps. `sizes` are N, C, H, W in this order, for both
/// formats, and so are the strides.
std::vector<int64_t> strides_of(const std::vector<int64_t>& sizes, Format format);

/// Copies a batch of images from NCHW to NHWC. Both pointers have room for n * c * h * w numbers.
void to_nhwc(const float* from, float* to, int64_t n, int64_t c, int64_t h, int64_t w);

/// The number of bytes that are read and written to bring a float32 tensor into `format`: 0 if it lies in that format
/// already. An axis of size 1 takes no step, so its stride does not matter.
int64_t bytes_moved(const std::vector<int64_t>& sizes, const std::vector<int64_t>& strides, Format format);
