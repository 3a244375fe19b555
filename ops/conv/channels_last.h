#pragma once

#include "core/buffer.h"
#include "core/kernels.h"
#include "ops/conv/kernels.h"

#include <array>

// Kernels for NHWC images that are given NCHW ones.

namespace norma::kernels {

/// Copies images (n, c, pixels) to (n, pixels, c), or back.
template <class T>
void transpose_images(int64_t n, int64_t c, int64_t pixels, const T* from, T* to, bool to_channels_last) {
  const Strides planes{c * pixels, pixels, 1};
  const Strides channels_last{c * pixels, 1, c};
  const auto loop = make_strided_loop<2>(
      {n, c, pixels}, to_channels_last ? std::array{channels_last, planes} : std::array{planes, channels_last});
  tensor_cpu.copy(loop, dtype_of<T>(), to, dtype_of<T>(), from);
}

/// Calls f with NHWC memory that holds the values of `data` (n, c, pixels).
template <class T, class F>
void read_channels_last(const Conv2dCase& conv, const void* data, int64_t c, int64_t pixels, F&& f) {
  if (conv.channels_last) {
    f(static_cast<const T*>(data));
    return;
  }
  const Buffer<T> copy(conv.n * c * pixels);
  transpose_images(conv.n, c, pixels, static_cast<const T*>(data), copy.data(), /* to_channels_last= */ true);
  f(static_cast<const T*>(copy.data()));
}

/// Calls f with NHWC memory, whose values then go to `data` (n, c, pixels).
template <class T, class F>
void write_channels_last(const Conv2dCase& conv, void* data, int64_t c, int64_t pixels, F&& f) {
  if (conv.channels_last) {
    f(static_cast<T*>(data));
    return;
  }
  const Buffer<T> copy(conv.n * c * pixels);
  f(copy.data());
  transpose_images(conv.n, c, pixels, static_cast<const T*>(copy.data()), static_cast<T*>(data),
                   /* to_channels_last= */ false);
}

}  // namespace norma::kernels
