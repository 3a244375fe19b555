#pragma once

// The part of core/cuda/kernel.h that nvcc compiles, for the device cuda.

#include "core/cuda/runtime.h"
#include "core/cuda/warp.h"
#include "core/device.h"
#include "core/dtype.h"

#include <cuda_fp16.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

#define NORMA_BACKEND cuda
#define NORMA_TABLE(family) family##_cuda
#define NORMA_KERNEL __global__
#define NORMA_DEVICE __device__ __forceinline__
#define NORMA_LAUNCH_BOUNDS(threads) __launch_bounds__(threads)
#define NORMA_UNROLL _Pragma("unroll")

namespace norma::kernels::NORMA_BACKEND {

using Stream = cudaStream_t;
inline Stream current_stream() {
  return norma::cuda::current_stream();
}
/// Multiprocessors of the device.
inline int processors() {
  return norma::cuda::processors();
}
/// Blocks of a kernel that a multiprocessor runs at the same time, by the registers and shared memory that they take.
template <class... Parameters>
int blocks_of_processor(void (*kernel)(Parameters...), int threads_of_block, size_t shared_bytes) {
  return norma::cuda::blocks_of_processor(reinterpret_cast<const void*>(kernel), threads_of_block, shared_bytes);
}
inline Device this_device() {
  return norma::cuda::current_device();
}

NORMA_DEVICE int thread() {
  return static_cast<int>(threadIdx.x);
}
NORMA_DEVICE int threads() {
  return static_cast<int>(blockDim.x);
}
NORMA_DEVICE int64_t block() {
  return blockIdx.x;
}
NORMA_DEVICE int64_t blocks() {
  return gridDim.x;
}
NORMA_DEVICE void sync_threads() {
  __syncthreads();
}
/// The value of lane `source` of this warp.
template <class T>
NORMA_DEVICE T shuffle(T value, int source) {
  return __shfl_sync(0xFFFFFFFFU, value, source);
}
template <class T>
NORMA_DEVICE T shuffle_xor(T value, int mask) {
  return __shfl_xor_sync(0xFFFFFFFFU, value, mask);
}
NORMA_DEVICE TwoNumbers shuffle_xor(TwoNumbers value, int mask) {
  return {shuffle_xor(value.first, mask), shuffle_xor(value.second, mask)};
}
/// True iff `value` is true in any lane of this warp.
NORMA_DEVICE bool any_lane(bool value) {
  return __any_sync(0xFFFFFFFFU, value) != 0;
}
/// The shared memory of the block, aligned to 16 bytes.
template <class T>
NORMA_DEVICE T* shared_memory() {
  extern __shared__ uint4 norma_shared_memory[];
  return reinterpret_cast<T*>(norma_shared_memory);
}
/// a · b + c, rounded once.
NORMA_DEVICE float fused_multiply_add(float a, float b, float c) {
  return __fmaf_rn(a, b, c);
}
NORMA_DEVICE double fused_multiply_add(double a, double b, double c) {
  return __fma_rn(a, b, c);
}

/// Runs `kernel` on blocks · threads threads, in the order of the stream. A block has at most 48 KiB of shared memory;
/// cuda-emulated says which launch asks for more.
template <class... Parameters, class... Arguments>
void launch(int64_t blocks, int threads, size_t shared_bytes, Stream stream, void (*kernel)(Parameters...),
            const Arguments&... arguments) {
  const auto start = [&] {
    (void)cudaGetLastError();  // of an earlier call that nobody asked about: it would seem to be this launch's
    kernel<<<static_cast<unsigned>(blocks), static_cast<unsigned>(threads), shared_bytes, stream>>>(
        static_cast<Parameters>(arguments)...);
    return cudaGetLastError();
  };
  norma::cuda::check_launch(norma::cuda::with_memory(start), stream);
}

/// Numbers of 16 bits in float32, and back, ties to even.
NORMA_DEVICE float widened(bfloat16 element) {
  return __uint_as_float(static_cast<unsigned>(element.bits) << 16);
}
NORMA_DEVICE float widened(float16 element) {
  return __half2float(__ushort_as_half(element.bits));
}
template <class S>
NORMA_DEVICE S narrowed(float number) {
  S element;
  if constexpr (std::is_same_v<S, bfloat16>) {
    unsigned short bits;
    asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(bits) : "f"(number));
    element.bits = bits;
  } else {
    element.bits = __half_as_ushort(__float2half_rn(number));
  }
  return element;
}

/// Two neighbours of 16 bits, which lie in one word, in float32, and back: fewer instructions than one by one.
NORMA_DEVICE void widened(const bfloat16 (&elements)[2], float (&numbers)[2]) {
  unsigned word;
  memcpy(&word, elements, sizeof word);
  // Straight to registers of float32: the compiler would move each number there wherever it is used.
  asm("shl.b32 %0, %1, 16;" : "=f"(numbers[0]) : "r"(word));
  asm("and.b32 %0, %1, 0xFFFF0000;" : "=f"(numbers[1]) : "r"(word));
}
NORMA_DEVICE void widened(const float16 (&elements)[2], float (&numbers)[2]) {
  numbers[0] = widened(elements[0]);
  numbers[1] = widened(elements[1]);
}
template <class S>
NORMA_DEVICE void narrowed(float first, float second, S (&elements)[2]) {
  unsigned word;
  if constexpr (std::is_same_v<S, bfloat16>) {
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(word) : "f"(second), "f"(first));
  } else {
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(word) : "f"(second), "f"(first));
  }
  memcpy(elements, &word, sizeof word);
}

/// A GPU itself ends the program where a vector does not begin at a multiple of its size.
template <class Vector>
NORMA_DEVICE void expect_aligned(const void*) {}

/// The word that one instruction stores.
template <size_t bytes>
using StoredWord =
    std::conditional_t<bytes == 16, uint4,
                       std::conditional_t<bytes == 8, uint2, std::conditional_t<bytes == 4, unsigned, unsigned short>>>;

/// Stores a vector of several elements to global memory by whole words: the compiler may split an assignment into its
/// elements.
template <class Vector>
NORMA_DEVICE void store_vector(void* to, const Vector& vector) {
  using Word = StoredWord<alignof(Vector)>;
  Word words[sizeof(Vector) / sizeof(Word)];
  memcpy(words, &vector, sizeof(Vector));
  NORMA_UNROLL
  for (size_t i = 0; i < sizeof(Vector) / sizeof(Word); ++i) {
    __stwb(static_cast<Word*>(to) + i, words[i]);
  }
}

}  // namespace norma::kernels::NORMA_BACKEND
