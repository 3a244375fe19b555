#pragma once

#include "virtual_gpu/fault.h"
#include "virtual_gpu/host_memory.h"
#include "virtual_gpu/launch.h"
#include "virtual_gpu/memory.h"
#include "virtual_gpu/properties.h"
#include "virtual_gpu/streams.h"

#include <cuda_runtime_api.h>

#include <functional>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <vector>

// The state behind CUDA's functions.

namespace virtual_gpu {

class Runtime {
 public:
  /// The runtime of this process, made at the first use and never destroyed.
  static Runtime& get();
  /// nullptr before the first use.
  static Runtime* get_if_used();

  std::recursive_mutex mutex;  ///< held by each call
  const Properties properties;
  Memory memory;
  HostMemory host;
  Streams streams;
  std::set<Event*> events;
  std::set<Graph*> graphs;  ///< cudaGraph_t and cudaGraphExec_t
  std::map<std::string, Counters> counters;

  const int devices;  ///< how many GPUs there are, all alike

  /// Called when the program ends, before the work that nobody waited for is done.
  std::vector<std::function<void()>> at_end;

  /// Between these two, which are counted, streams go on now and then while the program does not ask for it, since
  /// another process may wait for what their work sends.
  void go_on_alone();
  void go_on_alone_no_more();
  /// At the program's end.
  void stop_going_on();

  [[nodiscard]] uint64_t seed() const { return seed_; }
  /// What every call returns since a fault; cudaSuccess before.
  [[nodiscard]] cudaError_t error() const { return error_; }
  /// Prints the fault, and makes its error the answer to every call from here on.
  void fail(const std::string& what, const std::exception& error);
  /// Forgets the fault; for tests of faults.
  void forgive();
  /// The text of the fault, or "".
  [[nodiscard]] const std::string& fault() const { return fault_; }

  /// The stream behind a handle. Throws Refused where there is none.
  Stream& stream_of(cudaStream_t handle);
  /// The same to put work into: Refused also where a capture forbids it.
  Stream& stream_for_work(cudaStream_t handle);
  /// Throws Refused, and ends the capture, while a stream is captured.
  void forbid_in_capture(const char* call);
  /// The same for calls that allocate memory, unless this thread's capture mode is cudaStreamCaptureModeRelaxed.
  void forbid_allocation_in_capture(const char* call);

 private:
  Runtime();

  uint64_t seed_;
  cudaError_t error_ = cudaSuccess;
  std::string fault_;
  std::map<std::thread::id, Stream*> per_thread_;  ///< cudaStreamPerThread of each thread
  std::jthread alone_;
  bool is_going_on_ = false;  ///< the thread is not about to end
  int users_of_alone_ = 0;
};

/// What a call throws to return an error that later calls do not: it did nothing.
class Refused : public std::runtime_error {
 public:
  /// @param why  printed, as CUDA's own errors say little; "" for an error that programs ask for
  Refused(cudaError_t error, const std::string& why) : std::runtime_error(why), error_(error) {}
  [[nodiscard]] cudaError_t error() const { return error_; }

 private:
  cudaError_t error_;
};
/// Prints why, and gives the error.
cudaError_t explained(const char* call, const Refused& refused);

/// The GPU that this thread's calls are for (cudaSetDevice).
int& current_device();

/// Throws Refused for work that is given to a stream of another GPU than the current one.
void require_current(const Stream& stream, const std::string& what);

/// The mode of this thread for captures: cudaThreadExchangeStreamCaptureMode.
cudaStreamCaptureMode& capture_mode();

/// The error of this thread's latest call that failed.
cudaError_t& last_error();

/// The body of one of CUDA's functions: one thread at a time, a fault before this call answers it, and a Fault that it
/// throws is the device's from here on.
template <class F>
cudaError_t call(const char* name, F&& body) {
  Runtime& runtime = Runtime::get();
  const std::lock_guard lock(runtime.mutex);
  cudaError_t result = runtime.error();
  if (result == cudaSuccess) {
    try {
      result = body(runtime);
    } catch (const Refused& refused) {
      result = explained(name, refused);
    } catch (const std::exception& error) {
      runtime.fail(name, error);
    }
    if (runtime.error() != cudaSuccess) {
      result = runtime.error();
    }
  }
  if (result != cudaSuccess) {
    last_error() = result;
  }
  return result;
}

}  // namespace virtual_gpu
