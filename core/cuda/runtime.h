#pragma once

#include "base/not_copied.h"
#include "core/allocator.h"
#include "core/cuda/retry.h"
#include "core/device.h"

#include <cuda_runtime.h>

#include <cstddef>
#include <functional>
#include <map>
#include <mutex>

// The CUDA runtime as the rest of core/cuda uses it: every call is checked, every handle has an owner.

namespace norma::cuda {

/// Throws Error("cuda: cudaSetDevice: invalid device ordinal (cudaErrorInvalidDevice)") unless the call succeeded, and
/// OutOfMemory for cudaErrorMemoryAllocation. The error is cleared: it is no longer CUDA's last one.
void check(cudaError_t result, const char* call);

/// Throws Error("cuda: expected a GPU of compute capability 8.0 or above, got 7.5 (Tesla T4)") for an older GPU.
void check_capability(int index);

/// `result`: of cudaGetLastError() after a launch. Throws as check() if the launch did not happen. With
/// NORMA_CUDA_SYNC=1 in the environment it also waits for the kernel, so that a fault shows at the kernel that made it.
void check_launch(cudaError_t result, cudaStream_t stream);

/// The device that this thread's calls are for: cuda:0, until somebody uses another one.
Device current_device();
void use_device(int index);

/// Gives the memory that the current device's allocator keeps back to the device. Clears CUDA's last error, which would
/// seem to be that of the next launch, ours or another library's.
void release_cached_memory();

/// The result of start(), a call that CUDA needs device memory for. Where that lacked, starts once more without the
/// allocator's cache.
template <class Start>
cudaError_t with_memory(Start&& start) {
  return start_with_memory(
      start, [](cudaError_t result) { return result == cudaErrorMemoryAllocation; }, release_cached_memory);
}

/// A T for each device, made at its first use. None is destroyed: storages of static lifetime may outlive any static
/// object, and the driver may be gone before them.
template <class T>
class PerDevice {
 public:
  /// That of current_device(); `make` returns a new one.
  template <class Make>
  T& get(Make&& make) {
    const std::lock_guard lock(mutex_);
    T*& object = objects_[current_device().index];
    if (object == nullptr) {
      object = make();
    }
    return *object;
  }

 private:
  std::mutex mutex_;
  std::map<int, T*> objects_;
};

/// Multiprocessors of the device.
int processors();

/// Blocks of a kernel that a multiprocessor runs at the same time; at least 1. Asks CUDA once for each kernel and size.
int blocks_of_processor(const void* kernel, int threads, size_t shared_bytes);

/// A stream: the device does the work given to it in order.
class Stream : NotCopied {
 public:
  Stream();
  ~Stream();

  [[nodiscard]] cudaStream_t get() const { return stream_; }
  /// Waits until all its work is done.
  void synchronize() const;

 private:
  cudaStream_t stream_ = nullptr;
};

/// The stream that all kernels of the device run in, unless this thread has a StreamScope.
cudaStream_t current_stream();

/// While it lives, kernels that this thread launches run in another stream of the current device. They may take no
/// memory and copy nothing from or to the host: both belong to the stream of all kernels.
class StreamScope : NotCopied {
 public:
  explicit StreamScope(const Stream& stream);
  ~StreamScope();
};

/// While it lives, `look` is called again and again when this thread waits for a device, with the seconds that it has
/// waited: the device's work may need another process, which may be gone. What `look` throws ends the wait. It must not
/// wait for a device itself. One at a time.
class WaitWatch : NotCopied {
 public:
  explicit WaitWatch(std::function<void(double seconds)> look);
  ~WaitWatch();

  void look(double seconds) const { look_(seconds); }

 private:
  std::function<void(double)> look_;
};

/// Waits until all work of the stream is done.
void wait_for(cudaStream_t stream);

/// A point in a stream's work, with its time.
class Event : NotCopied {
 public:
  Event();
  ~Event();

  void record(cudaStream_t stream);
  /// Lets the work that the stream is given from now on wait for this event. The host does not wait.
  void hold(cudaStream_t stream) const;
  /// Waits until the stream's work has reached it.
  void synchronize() const;
  /// Seconds from `start` to this one; waits for both.
  [[nodiscard]] double seconds_since(const Event& start) const;
  /// True iff the stream's work has reached it, or it was never recorded.
  [[nodiscard]] bool has_happened() const;

 private:
  cudaEvent_t event_ = nullptr;
};

}  // namespace norma::cuda
