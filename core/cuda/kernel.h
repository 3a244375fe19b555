#pragma once

// All that a kernel may use of CUDA: where its thread stands, shared memory, shuffles, barriers, and how it is
// launched. Files with kernels include this and are compiled twice: in a .cu file by nvcc for the device cuda, in a
// file named …_emulated.cpp by the host's compiler for the device cuda-emulated, where fibers stand for threads.
// Kernels and what launches them lie in the namespace NORMA_BACKEND, which is another one each time.
//
//   namespace norma::kernels::NORMA_BACKEND {
//   template <class T>
//   NORMA_KERNEL void scale(int64_t count, T by, T* x) {
//     for (int64_t i = global_thread(); i < count; i += global_threads()) {
//       x[i] *= by;
//     }
//   }
//   … launch(blocks_for(count, 256), 256, /* shared_bytes= */ 0, current_stream(), scale<float>, count, by, x);
//   }

#include "core/allocator.h"
#include "core/device_functions.h"

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

#ifdef __CUDACC__
#include "core/cuda/runtime.h"

#define NORMA_BACKEND cuda
#define NORMA_KERNEL __global__
#define NORMA_DEVICE __device__ __forceinline__
#define NORMA_LAUNCH_BOUNDS(threads) __launch_bounds__(threads)
#define NORMA_UNROLL _Pragma("unroll")
#else
#include "core/emulated/launch.h"

#define NORMA_BACKEND emulated
#define NORMA_KERNEL inline
#define NORMA_DEVICE inline
#define NORMA_LAUNCH_BOUNDS(threads)
#define NORMA_UNROLL
#endif

namespace norma::kernels::NORMA_BACKEND {

/// Threads that run in step. Every shuffle is one of all of them.
inline constexpr int kWarp = 32;

/// Two numbers that go through a shuffle together.
struct TwoNumbers {
  double first;
  double second;
};

#ifdef __CUDACC__

using Stream = cudaStream_t;
inline Stream current_stream() {
  return norma::cuda::current_stream();
}
/// Multiprocessors of the device.
inline int processors() {
  return norma::cuda::processors();
}
inline constexpr Device kThisDevice = kCuda;

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
/// True iff `value` is, in any lane of this warp.
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

/// Runs `kernel` on blocks · threads threads, in the order of the stream.
template <class... Parameters, class... Arguments>
void launch(int64_t blocks, int threads, size_t shared_bytes, Stream stream, void (*kernel)(Parameters...),
            const Arguments&... arguments) {
  constexpr size_t kAlwaysAllowed = size_t{48} << 10;
  if (shared_bytes > kAlwaysAllowed) {
    norma::cuda::check(
        cudaFuncSetAttribute(reinterpret_cast<const void*>(kernel), cudaFuncAttributeMaxDynamicSharedMemorySize,
                             static_cast<int>(shared_bytes)),
        "cudaFuncSetAttribute");
  }
  kernel<<<static_cast<unsigned>(blocks), static_cast<unsigned>(threads), shared_bytes, stream>>>(
      static_cast<Parameters>(arguments)...);
  norma::cuda::check_launch(stream);
}

#else

struct Stream {};
inline Stream current_stream() {
  return {};
}
inline int processors() {
  return 2;
}
inline constexpr Device kThisDevice = kCudaEmulated;

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

#endif

NORMA_DEVICE int64_t global_thread() {
  return block() * threads() + thread();
}
NORMA_DEVICE int64_t global_threads() {
  return blocks() * threads();
}
NORMA_DEVICE int lane() {
  return thread() % kWarp;
}

/// a / b, rounded up.
constexpr int64_t ceil_div(int64_t a, int64_t b) {
  return (a + b - 1) / b;
}

/// a / b for numbers that are not negative; 32 bits divide in a fraction of the time.
NORMA_DEVICE int64_t quotient(int64_t a, int64_t b) {
  return ((a | b) >> 32) == 0 ? static_cast<int64_t>(static_cast<uint32_t>(a) / static_cast<uint32_t>(b)) : a / b;
}

/// Blocks for a loop over `count` that goes on in steps of global_threads(): enough to fill the device.
inline int64_t blocks_for(int64_t count, int threads_of_block) {
  const int64_t most = int64_t{processors()} * (2048 / threads_of_block) * 4;
  const int64_t wanted = ceil_div(count, threads_of_block);
  return wanted < 1 ? 1 : wanted < most ? wanted : most;
}

/// Copies to the host what kernels have written, and waits for them.
inline void copy_to_host(void* host, const void* device, size_t bytes) {
  device_functions.table("launch", kThisDevice).to_host(host, device, bytes);
}

/// Threads of each of these blocks: no more than there is work for.
inline int threads_for(int64_t count, int most) {
  const int64_t wanted = ceil_div(count, kWarp) * kWarp;
  return wanted < kWarp ? kWarp : wanted < most ? static_cast<int>(wanted) : most;
}

/// Memory of the device for what kernels hand to each other, from its allocator. The next kernels of the stream may get
/// it from the end of the scope on, and run after those that were launched before.
template <class T>
class DeviceBuffer {
 public:
  explicit DeviceBuffer(int64_t count)
      : data_(static_cast<T*>(allocator(kThisDevice).allocate(static_cast<size_t>(count) * sizeof(T)))) {}
  ~DeviceBuffer() { allocator(kThisDevice).deallocate(data_); }
  DeviceBuffer(const DeviceBuffer&) = delete;
  DeviceBuffer& operator=(const DeviceBuffer&) = delete;

  /// For kernels.
  [[nodiscard]] T* data() const { return data_; }

 private:
  T* data_;
};

}  // namespace norma::kernels::NORMA_BACKEND
