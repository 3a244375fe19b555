#include "core/cuda/runtime.h"

#include "base/error.h"
#include "core/by_device.h"
#include "core/cuda/capability.h"
#include "core/cuda/recording.h"

#include <fmt/format.h>
#include <sched.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <map>
#include <mutex>
#include <string>
#include <thread>
#include <tuple>
#include <utility>

namespace norma::cuda {

void check(cudaError_t result, const char* call) {
  if (result == cudaSuccess) {
    return;
  }
  // CUDA keeps the error of a call: the next launch would seem to have failed.
  (void)cudaGetLastError();
  if (result == cudaErrorMemoryAllocation) {
    throw OutOfMemory(fmt::format("cuda: {}: {} ({})", call, cudaGetErrorString(result), cudaGetErrorName(result)));
  }
  fail("cuda", "{}: {} ({})", call, cudaGetErrorString(result), cudaGetErrorName(result));
}

namespace {

/// Ignores an error in a destructor: nobody can be told, and at the end of the process the driver may be gone already.
void ignore(cudaError_t) {}

bool waits_for_each_kernel() {
  static const bool waits = [] {
    const char* value = std::getenv("NORMA_CUDA_SYNC");
    return value != nullptr && *value == '1';
  }();
  return waits;
}

thread_local const Stream* scoped_stream = nullptr;
thread_local const WaitWatch* watch = nullptr;

/// True for success, false for "not ready yet".
bool is_done(cudaError_t result, const char* call) {
  if (result == cudaErrorNotReady) {
    (void)cudaGetLastError();
    return false;
  }
  check(result, call);
  return true;
}

template <class Done>
void wait_watched(Done&& done) {
  constexpr double kEagerSeconds = 2e-3;  // the answer is most likely near
  constexpr auto kNap = std::chrono::microseconds(50);
  const auto start = std::chrono::steady_clock::now();
  while (!done()) {
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    watch->look(seconds);
    if (seconds < kEagerSeconds) {
      ::sched_yield();
    } else {
      std::this_thread::sleep_for(kNap);
    }
  }
}

}  // namespace

void check_launch(cudaError_t result, cudaStream_t stream) {
  check(result, "kernel launch");
  if (waits_for_each_kernel() && Recording::running() == nullptr) {
    check(cudaStreamSynchronize(stream), "kernel");
  }
}

void check_capability(int index) {
  static std::mutex mutex;
  static std::map<int, std::string> complaints;
  const std::lock_guard lock(mutex);
  const auto [entry, is_new] = complaints.try_emplace(index);
  if (is_new) {
    cudaDeviceProp properties{};
    check(cudaGetDeviceProperties(&properties, index), "cudaGetDeviceProperties");
    entry->second = capability_complaint(properties.major, properties.minor, properties.name);
  }
  norma::check(entry->second.empty(), "cuda", "{}", entry->second);
}

Device current_device() {
  return {.type = DeviceType::cuda, .index = norma::detail::cuda_index};
}

void use_device(int index) {
  if (index != norma::detail::cuda_index) {
    check(cudaSetDevice(index), "cudaSetDevice");
    norma::detail::cuda_index = index;
  }
}

void release_cached_memory() {
  (void)cudaGetLastError();
  allocator(current_device()).empty_cache();
}

int processors() {
  static auto* const counts = new PerDevice<const int>;
  return counts->get([] {
    int value = 0;
    check(cudaDeviceGetAttribute(&value, cudaDevAttrMultiProcessorCount, current_device().index),
          "cudaDeviceGetAttribute");
    return new int(value);
  });
}

int blocks_of_processor(const void* kernel, int threads, size_t shared_bytes) {
  static std::mutex mutex;
  static std::map<std::tuple<int, const void*, int, size_t>, int> known;
  const std::lock_guard lock(mutex);
  const auto [entry, is_new] = known.try_emplace({current_device().index, kernel, threads, shared_bytes}, 0);
  if (is_new) {
    int blocks = 0;
    // The question loads the kernel, which takes memory.
    const cudaError_t result = with_memory(
        [&] { return cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, kernel, threads, shared_bytes); });
    if (result != cudaSuccess) {
      known.erase(entry);
      check(result, "cudaOccupancyMaxActiveBlocksPerMultiprocessor");
    }
    entry->second = std::max(1, blocks);
  }
  return entry->second;
}

Stream::Stream() {
  check(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "cudaStreamCreateWithFlags");
}
Stream::~Stream() {
  ignore(cudaStreamDestroy(stream_));
}
void Stream::synchronize() const {
  wait_for(stream_);
}

void wait_for(cudaStream_t stream) {
  if (watch == nullptr) {
    check(cudaStreamSynchronize(stream), "cudaStreamSynchronize");
  } else {
    wait_watched([stream] { return is_done(cudaStreamQuery(stream), "cudaStreamQuery"); });
  }
}

WaitWatch::WaitWatch(std::function<void(double)> look) : look_(std::move(look)) {
  watch = this;
}
WaitWatch::~WaitWatch() {
  watch = nullptr;
}

StreamScope::StreamScope(const Stream& stream) {
  scoped_stream = &stream;
}
StreamScope::~StreamScope() {
  scoped_stream = nullptr;
}

cudaStream_t current_stream() {
  if (scoped_stream != nullptr) {
    return scoped_stream->get();
  }
  static auto* const streams = new PerDevice<const Stream>;
  return streams->get([] { return new Stream; }).get();
}

Event::Event() {
  check(cudaEventCreate(&event_), "cudaEventCreate");
}
Event::~Event() {
  ignore(cudaEventDestroy(event_));
}
void Event::record(cudaStream_t stream) {
  check(cudaEventRecord(event_, stream), "cudaEventRecord");
}
void Event::hold(cudaStream_t stream) const {
  check(cudaStreamWaitEvent(stream, event_, 0), "cudaStreamWaitEvent");
}
void Event::synchronize() const {
  if (watch == nullptr) {
    check(cudaEventSynchronize(event_), "cudaEventSynchronize");
  } else {
    wait_watched([this] { return has_happened(); });
  }
}
bool Event::has_happened() const {
  return is_done(cudaEventQuery(event_), "cudaEventQuery");
}
double Event::seconds_since(const Event& start) const {
  synchronize();
  float milliseconds = 0;
  check(cudaEventElapsedTime(&milliseconds, start.event_, event_), "cudaEventElapsedTime");
  return static_cast<double>(milliseconds) / 1e3;
}

}  // namespace norma::cuda
