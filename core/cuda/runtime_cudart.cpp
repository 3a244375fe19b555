#include "core/cuda/runtime.h"

#include "core/by_device.h"
#include "core/cuda/capability.h"
#include "core/cuda/recording.h"
#include "core/cuda/retry.h"
#include "core/error.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <map>
#include <mutex>
#include <string>
#include <tuple>

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
    const cudaError_t result = start_with_memory(
        [&] { return cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, kernel, threads, shared_bytes); },
        [](cudaError_t status) { return status == cudaErrorMemoryAllocation; },
        [] { allocator(current_device()).empty_cache(); });
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
  check(cudaStreamSynchronize(stream_), "cudaStreamSynchronize");
}

cudaStream_t current_stream() {
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
  check(cudaEventSynchronize(event_), "cudaEventSynchronize");
}
bool Event::has_happened() const {
  const cudaError_t result = cudaEventQuery(event_);
  if (result == cudaErrorNotReady) {
    (void)cudaGetLastError();
    return false;
  }
  check(result, "cudaEventQuery");
  return true;
}
double Event::seconds_since(const Event& start) const {
  synchronize();
  float milliseconds = 0;
  check(cudaEventElapsedTime(&milliseconds, start.event_, event_), "cudaEventElapsedTime");
  return static_cast<double>(milliseconds) / 1e3;
}

}  // namespace norma::cuda
