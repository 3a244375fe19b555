#pragma once

// The part of core/cuda/kernel.h that the host's compiler compiles, for the device cuda-emulated.

#include "core/cuda/warp.h"
#include "core/device.h"
#include "core/emulated/launch.h"

#include <cstddef>
#include <cstdint>
#include <cstring>

#define NORMA_BACKEND emulated
#define NORMA_TABLE(family) family##_emulated
#define NORMA_KERNEL inline
#define NORMA_DEVICE inline
#define NORMA_LAUNCH_BOUNDS(threads)
#define NORMA_UNROLL

namespace norma::kernels::NORMA_BACKEND {

struct Stream {};
inline Stream current_stream() {
  return {};
}
inline int processors() {
  return norma::emulated::launch_checks().processors;
}
/// A number that is the same for all kernels of a size.
template <class... Parameters>
int blocks_of_processor(void (*)(Parameters...), int threads_of_block, size_t) {
  const int blocks = norma::emulated::launch_checks().resident_blocks * 128 / threads_of_block;
  return blocks < 1 ? 1 : blocks;
}
inline Device this_device() {
  return kCudaEmulated;
}

inline int thread() {
  return norma::emulated::place().thread;
}
inline int threads() {
  return norma::emulated::place().threads;
}
inline int64_t block() {
  return norma::emulated::place().block;
}
inline int64_t blocks() {
  return norma::emulated::place().blocks;
}
inline void sync_threads() {
  norma::emulated::wait_for_block();
}
template <class T>
T shuffle(T value, int source) {
  static_assert(sizeof(T) <= sizeof(norma::emulated::Words));
  norma::emulated::Words words;
  std::memcpy(static_cast<void*>(&words), &value, sizeof(T));
  words = norma::emulated::exchange(words, source);
  std::memcpy(&value, &words, sizeof(T));
  return value;
}
template <class T>
T shuffle_xor(T value, int mask) {
  return shuffle(value, (thread() ^ mask) & (kWarp - 1));
}
inline bool any_lane(bool value) {
  int some = value ? 1 : 0;
  for (int mask = kWarp / 2; mask > 0; mask /= 2) {
    some |= shuffle_xor(some, mask);
  }
  return some != 0;
}
template <class T>
T* shared_memory() {
  return static_cast<T*>(norma::emulated::place().shared_memory);
}
inline float fused_multiply_add(float a, float b, float c) {
  return __builtin_fmaf(a, b, c);
}
inline double fused_multiply_add(double a, double b, double c) {
  return __builtin_fma(a, b, c);
}

template <class... Parameters, class... Arguments>
void launch(int64_t blocks, int threads, size_t shared_bytes, Stream, void (*kernel)(Parameters...),
            const Arguments&... arguments) {
  auto call = [&] { kernel(static_cast<Parameters>(arguments)...); };
  norma::emulated::run_grid(
      blocks, threads, shared_bytes, [](void* context) { (*static_cast<decltype(call)*>(context))(); }, &call);
}

template <class S>
float widened(S element) {
  return static_cast<float>(element);
}
template <class S>
S narrowed(float number) {
  return S(number);
}

template <class S>
void widened(const S (&elements)[2], float (&numbers)[2]) {
  numbers[0] = widened(elements[0]);
  numbers[1] = widened(elements[1]);
}
template <class S>
void narrowed(float first, float second, S (&elements)[2]) {
  elements[0] = narrowed<S>(first);
  elements[1] = narrowed<S>(second);
}

/// Ends the program where a vector does not begin at a multiple of its size, as a GPU does.
template <class Vector>
void expect_aligned(const void* address) {
  if (reinterpret_cast<uintptr_t>(address) % alignof(Vector) != 0) {
    __builtin_trap();
  }
}
template <class Vector>
void store_vector(void* to, const Vector& vector) {
  *static_cast<Vector*>(to) = vector;
}

}  // namespace norma::kernels::NORMA_BACKEND
