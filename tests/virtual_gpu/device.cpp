#include "virtual_gpu/device.h"

#include "virtual_gpu/runtime.h"

#include <fmt/format.h>
#include <unistd.h>
#include <nlohmann/json.hpp>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <sstream>

namespace virtual_gpu {
namespace {

constexpr int kExitAfterFault = 86;  // whatever the program made of the errors

std::atomic<Runtime*> used = nullptr;

std::string from_environment(const char* name, const char* otherwise) {
  const char* value = std::getenv(name);
  return value != nullptr && *value != '\0' ? value : otherwise;
}

/// A number from the environment; ends the program where it is none.
template <class T>
T number_from_environment(const char* name, const char* otherwise) {
  const std::string text = from_environment(name, otherwise);
  std::istringstream in(text);
  T value{};
  if (!(in >> value) || !in.eof() || value < T{}) {
    std::fprintf(stderr, "virtual GPU: %s: expected a number, got '%s'\n", name, text.c_str());
    std::_Exit(2);
  }
  return value;
}

Properties chosen_properties() {
  try {
    Properties result = properties_of(from_environment("NORMA_VIRTUAL_GPU", "h200"));
    const auto gib = number_from_environment<double>("NORMA_VIRTUAL_GPU_MEMORY", "0");
    if (gib > 0) {
      result.memory_bytes = static_cast<uint64_t>(gib * static_cast<double>(1 << 30));
    }
    return result;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "virtual GPU: %s\n", error.what());
    std::_Exit(2);
  }
}

cudaError_t error_of(Fault::Kind kind) {
  switch (kind) {
    case Fault::Kind::kIllegalAddress: return cudaErrorIllegalAddress;
    case Fault::Kind::kMisalignedAddress: return cudaErrorMisalignedAddress;
    case Fault::Kind::kResources: return cudaErrorLaunchOutOfResources;
    case Fault::Kind::kUnsupported: return cudaErrorIllegalInstruction;
    case Fault::Kind::kUninitialized:
    case Fault::Kind::kUndefined:
    case Fault::Kind::kRace:
    case Fault::Kind::kDivergence:
    case Fault::Kind::kHostMemory: return cudaErrorLaunchFailure;
  }
  return cudaErrorUnknown;
}

void write_counts(const std::string& path) {
  nlohmann::json kernels = nlohmann::json::array();
  for (const KernelCount& count : counts()) {
    const Counters& c = count.counters;
    kernels.push_back({{"kernel", count.kernel},
                       {"launches", c.launches},
                       {"warp_instructions", c.warp_instructions},
                       {"global_load_bytes", c.global_load_bytes},
                       {"global_store_bytes", c.global_store_bytes},
                       {"global_load_requests", c.global_load_requests},
                       {"global_store_requests", c.global_store_requests},
                       {"global_load_sectors", c.global_load_sectors},
                       {"global_store_sectors", c.global_store_sectors},
                       {"shared_requests", c.shared_requests},
                       {"shared_wavefronts", c.shared_wavefronts},
                       {"local_bytes", c.local_bytes}});
  }
  std::ofstream(path) << nlohmann::json{{"gpu", device_properties().name}, {"kernels", kernels}}.dump(1) << '\n';
}

/// Its clock says nothing about cuDNN's plans, and each would be run several times. Who sets the variable decides.
__attribute__((constructor)) void leave_plans_to_heuristics() {
  ::setenv("NORMA_CUDNN_PLANS", "heuristic", /* overwrite= */ 0);
}

/// Work that nobody waited for is done at the end, and the program fails if there was a fault that it swallowed.
__attribute__((destructor)) void finish_at_exit() {
  Runtime* runtime = Runtime::get_if_used();
  if (runtime == nullptr) {
    return;
  }
  runtime->stop_going_on();
  for (const auto& look : runtime->at_end) {
    look();
  }
  runtime->streams.finish_all();
  const std::string path = from_environment("NORMA_VIRTUAL_GPU_COUNTS", "");
  if (!path.empty()) {
    write_counts(path);
  }
  if (!runtime->fault().empty()) {
    std::fflush(nullptr);
    _exit(kExitAfterFault);
  }
}

}  // namespace

Runtime::Runtime()
    : properties(chosen_properties()),
      memory(properties.memory_bytes),
      streams(number_from_environment<uint64_t>("NORMA_VIRTUAL_GPU_SEED", "1"),
              [this](const std::string& what, const std::exception& error) { fail(what, error); }),
      devices(number_from_environment<int>("NORMA_VIRTUAL_GPU_COUNT", "1")),
      seed_(number_from_environment<uint64_t>("NORMA_VIRTUAL_GPU_SEED", "1")) {}

Runtime& Runtime::get() {
  static auto* const instance = [] {
    // A program asks for its GPU before it takes memory: each tensor has memory of its own unless it says otherwise.
    (void)::setenv("NORMA_CUDA_CACHING", "0", /* replace= */ 0);
    auto* made = new Runtime;
    used = made;
    return made;
  }();
  return *instance;
}

Runtime* Runtime::get_if_used() {
  return used;
}

void Runtime::fail(const std::string& what, const std::exception& error) {
  if (error_ != cudaSuccess) {
    return;
  }
  const auto* fault = dynamic_cast<const Fault*>(&error);
  error_ = fault != nullptr ? error_of(fault->kind()) : cudaErrorUnknown;
  fault_ = fmt::format("{}: {}", what, error.what());
  std::fprintf(stderr, "virtual GPU: fault: %s (NORMA_VIRTUAL_GPU_SEED=%llu)\n", fault_.c_str(),
               static_cast<unsigned long long>(seed_));
}

void Runtime::forgive() {
  error_ = cudaSuccess;
  fault_.clear();
  last_error() = cudaSuccess;
  streams.resume();
}

void Runtime::go_on_alone() {
  const std::lock_guard lock(mutex);
  ++users_of_alone_;
  if (!is_going_on_) {
    is_going_on_ = true;
    alone_ = std::jthread([this](const std::stop_token& stop) {
      while (!stop.stop_requested()) {
        {
          const std::lock_guard turn(mutex);
          if (users_of_alone_ == 0) {
            is_going_on_ = false;
            return;
          }
          streams.pass_time();
        }
        std::this_thread::sleep_for(std::chrono::microseconds(100));
      }
    });
  }
}

void Runtime::go_on_alone_no_more() {
  const std::lock_guard lock(mutex);
  --users_of_alone_;
}

void Runtime::stop_going_on() {
  if (alone_.joinable()) {
    alone_.request_stop();
    alone_.join();
  }
}

Stream& Runtime::stream_of(cudaStream_t handle) {
  if (handle == nullptr || handle == cudaStreamLegacy) {
    return streams.default_stream();
  }
  if (handle == cudaStreamPerThread) {
    Stream*& stream = per_thread_[std::this_thread::get_id()];
    if (stream == nullptr) {
      stream = streams.create(/*blocking=*/true);
    }
    return *stream;
  }
  auto* stream = reinterpret_cast<Stream*>(handle);
  if (!streams.is_stream(stream)) {
    throw Refused(cudaErrorInvalidResourceHandle, "expected a stream, got one that was destroyed, or another handle");
  }
  return *stream;
}

Stream& Runtime::stream_for_work(cudaStream_t handle) {
  Stream& stream = stream_of(handle);
  if (&stream == &streams.default_stream() && streams.captures_blocking()) {
    streams.break_captures();
    throw Refused(cudaErrorStreamCaptureImplicit,
                  "work for the default stream, which a stream that is captured waits for");
  }
  if (stream.capture != nullptr && stream.capture->broken) {
    throw Refused(cudaErrorStreamCaptureInvalidated, "work for a stream whose capture a forbidden call has ended");
  }
  return stream;
}

void Runtime::forbid_in_capture(const char* call) {
  if (streams.captures()) {
    streams.break_captures();
    throw Refused(cudaErrorStreamCaptureUnsupported, std::string(call) + " while a stream is captured");
  }
}

void Runtime::forbid_allocation_in_capture(const char* call) {
  if (capture_mode() != cudaStreamCaptureModeRelaxed) {
    forbid_in_capture(call);
  }
}

cudaStreamCaptureMode& capture_mode() {
  static thread_local cudaStreamCaptureMode mode = cudaStreamCaptureModeGlobal;
  return mode;
}

cudaError_t explained(const char* call, const Refused& refused) {
  if (*refused.what() != '\0') {
    std::fprintf(stderr, "virtual GPU: %s: %s\n", call, refused.what());
  }
  return refused.error();
}

int& current_device() {
  thread_local int device = 0;
  return device;
}

void require_current(const Stream& stream, const std::string& what) {
  // The default stream stands for those of all devices.
  if (stream.device != current_device() && &stream != &Runtime::get().streams.default_stream()) {
    throw Refused(cudaErrorInvalidResourceHandle,
                  fmt::format("{}: expected a stream of device {}, the current one, got one of device {}", what,
                              current_device(), stream.device));
  }
}

cudaError_t& last_error() {
  thread_local cudaError_t error = cudaSuccess;
  return error;
}

Memory& device_memory() {
  return Runtime::get().memory;
}

const Properties& device_properties() {
  return Runtime::get().properties;
}

void enqueue(void* stream, std::string what, std::function<void()> work) {
  Runtime& runtime = Runtime::get();
  const std::lock_guard lock(runtime.mutex);
  Stream& found = runtime.stream_for_work(static_cast<cudaStream_t>(stream));
  require_current(found, what);
  const Action action = [work = std::move(work)] {
    work();
    return 1e-5;
  };
  runtime.streams.put(found, virtual_gpu::later(std::move(what), action));
}

std::vector<KernelCount> counts() {
  Runtime& runtime = Runtime::get();
  const std::lock_guard lock(runtime.mutex);
  runtime.streams.finish_all();
  std::vector<KernelCount> result;
  for (const auto& [kernel, counters] : runtime.counters) {
    result.push_back({kernel, counters});
  }
  return result;
}

}  // namespace virtual_gpu
