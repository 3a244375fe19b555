#pragma once

// All that a kernel may use of CUDA: where its thread stands, shared memory, shuffles, barriers, and how it is
// launched. Files with kernels include this. CMake has each of them compiled twice: by nvcc for the device cuda, and by
// the host's compiler for the device cuda-emulated, where fibers stand for threads. Kernels and their launchers lie in
// the namespace NORMA_BACKEND, which is another one each time. kernel_nvcc.h and kernel_emulated.h define what differs,
// under the same names.
//
//   namespace norma::kernels::NORMA_BACKEND {
//   template <class T>
//   NORMA_KERNEL void scale(int64_t count, T by, T* x) {
//     for (int64_t i = global_thread(); i < count; i += global_threads()) {
//       x[i] *= by;
//     }
//   }
//   … launch_over(count, /* most= */ 256, scale<float>, count, by, x);
//   }

#include "base/not_copied.h"
#include "core/allocator.h"
#include "core/cuda/warp.h"
#include "core/device_functions.h"
#include "core/sizes.h"

#include <cstddef>
#include <cstdint>

#ifdef __CUDACC__
#include "core/cuda/kernel_nvcc.h"
#else
#include "core/cuda/kernel_emulated.h"
#endif

namespace norma::kernels::NORMA_BACKEND {

NORMA_DEVICE int64_t global_thread() {
  return block() * threads() + thread();
}
NORMA_DEVICE int64_t global_threads() {
  return blocks() * threads();
}
NORMA_DEVICE int lane() {
  return thread() % kWarp;
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

/// Blocks of a kernel that the device runs at the same time.
template <class... Parameters>
int64_t resident_blocks(void (*kernel)(Parameters...), int threads_of_block, size_t shared_bytes) {
  return int64_t{processors()} * blocks_of_processor(kernel, threads_of_block, shared_bytes);
}

/// Copies to the host what kernels have written, and waits for them.
inline void copy_to_host(void* host, const void* device, size_t bytes) {
  device_functions.table("launch", this_device()).to_host(host, device, bytes);
}

/// Threads of each block of such a loop: no more than there is work for.
inline int threads_for(int64_t count, int most) {
  const int64_t wanted = ceil_div(count, kWarp) * kWarp;
  return wanted < kWarp ? kWarp : wanted < most ? static_cast<int>(wanted) : most;
}

/// Runs `kernel`, which goes through `work` in steps of global_threads(), in blocks of up to `most` threads.
template <class... Parameters, class... Arguments>
void launch_over(int64_t work, int most, void (*kernel)(Parameters...), const Arguments&... arguments) {
  launch(blocks_for(work, most), threads_for(work, most), 0, current_stream(), kernel, arguments...);
}

/// Memory of the device for what kernels hand to each other, from its allocator. The next kernels of the stream may get
/// it from the end of the scope on, and run after those that were launched before.
template <class T>
class DeviceBuffer : NotCopied {
 public:
  explicit DeviceBuffer(int64_t count)
      : data_(static_cast<T*>(allocator(this_device()).allocate(static_cast<size_t>(count) * sizeof(T)))) {}
  ~DeviceBuffer() { allocator(this_device()).deallocate(data_); }

  /// The address, for kernels.
  [[nodiscard]] T* data() const { return data_; }

 private:
  T* data_;
};

}  // namespace norma::kernels::NORMA_BACKEND
