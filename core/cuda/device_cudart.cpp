#include "core/cuda/caching_allocator.h"
#include "core/cuda/device.h"
#include "core/cuda/device_graph_cudart.h"
#include "core/cuda/graph_cudnn.h"
#include "core/cuda/recording.h"
#include "core/cuda/runtime.h"
#include "core/cuda/staging.h"
#include "core/cuda/version_cublaslt.h"
#include "core/error.h"
#include "core/event.h"

#include <fmt/format.h>

#include <memory>

namespace norma::cuda {
namespace {

/// cudaMalloc and cudaFree.
class GpuMemory final : public DeviceMemory {
 public:
  void* take(size_t bytes) override {
    const AllocationScope scope;
    void* pointer = nullptr;
    const cudaError_t result = cudaMalloc(&pointer, bytes);
    if (result == cudaErrorMemoryAllocation) {
      (void)cudaGetLastError();  // clears the error for the next check
      return nullptr;
    }
    check(result, "cudaMalloc");
    return pointer;
  }
  void give_back(void* pointer) override { check(cudaFree(pointer), "cudaFree"); }
  [[nodiscard]] std::string text() const override {
    size_t available = 0;
    size_t total = 0;
    check(cudaMemGetInfo(&available, &total), "cudaMemGetInfo");
    return fmt::format("the device has {:.1f} GiB, {:.1f} GiB of it free",
                       static_cast<double>(total) / static_cast<double>(1 << 30),
                       static_cast<double>(available) / static_cast<double>(1 << 30));
  }
};

CachingAllocator& memory_of_device(int index) {
  check_there("allocator", index);
  // Never destroyed: storages of static lifetime may outlive any static object.
  static auto* const memory = new GpuMemory;
  static auto* const instance = new CachingAllocator(*memory);
  return *instance;
}

Allocator& allocator_of_device(int index) {
  return memory_of_device(index);
}

std::unique_ptr<DeviceGraph> make_graph_of_device(int index) {
  return make_graph(memory_of_device(index));
}

/// Memory of the host that the device reads and writes by itself, which is faster than through the driver's.
class PinnedBuffer final : public StagingBuffer {
 public:
  explicit PinnedBuffer(size_t bytes) { check(cudaMallocHost(&memory_, bytes), "cudaMallocHost"); }

  std::byte* data() override { return static_cast<std::byte*>(memory_); }
  void copy_to_device(void* device, size_t bytes) override { copy(device, memory_, bytes, cudaMemcpyHostToDevice); }
  void copy_from_device(const void* device, size_t bytes) override {
    copy(memory_, device, bytes, cudaMemcpyDeviceToHost);
  }
  [[nodiscard]] bool is_done() const override { return done_.has_happened(); }
  void wait() override { done_.synchronize(); }

 private:
  void copy(void* to, const void* from, size_t bytes, cudaMemcpyKind kind) {
    check(cudaMemcpyAsync(to, from, bytes, kind, current_stream()), "cudaMemcpyAsync");
    done_.record(current_stream());
  }

  void* memory_ = nullptr;  // kept to the end of the process, as all buffers are
  Event done_;
};

class PinnedMemory final : public StagingMemory {
 public:
  std::unique_ptr<StagingBuffer> make(size_t bytes) override { return std::make_unique<PinnedBuffer>(bytes); }
};

Staging& staging() {
  constexpr size_t kBytes = size_t{8} << 20;
  constexpr size_t kMost = 32;  // 256 float32 images of 224 x 224 take 19, and a small tensor takes one
  static auto* const memory = new PinnedMemory;
  static auto* const instance = new Staging(*memory, kBytes, kMost);
  return *instance;
}

void copy_from_host(void* device, const void* host, size_t bytes) {
  if (Recording* recording = Recording::running(); recording != nullptr) {
    return recording->copy_to_device(device, host, bytes);
  }
  staging().from_host(device, host, bytes);
}
void copy_to_host(void* host, const void* device, size_t bytes) {
  Recording::forbid("a copy to it");
  staging().to_host(host, device, bytes);
}

/// "13.0" of 13000.
std::string version_text(int version) {
  return fmt::format("{}.{}", version / 1000, version % 1000 / 10);
}

/// The number of devices, or the reason why there is none.
struct Count {
  int devices = 0;
  std::string reason;
};
const Count& count() {
  static const Count counted = [] {
    Count result;
    int driver = 0;
    if (cudaDriverGetVersion(&driver) == cudaSuccess && driver == 0) {
      result.reason = "there is no NVIDIA driver";
      return result;
    }
    const cudaError_t error = cudaGetDeviceCount(&result.devices);
    if (error != cudaSuccess) {
      result.devices = 0;
      result.reason = cudaGetErrorString(error);
      (void)cudaGetLastError();
    }
    return result;
  }();
  return counted;
}

/// An event of the current stream.
class StreamEvent final : public DeviceEvent {
 public:
  void record() override { event_.record(current_stream()); }
  [[nodiscard]] double seconds_since(const DeviceEvent& start) const override {
    return event_.seconds_since(dynamic_cast<const StreamEvent&>(start).event_);
  }

 private:
  Event event_;
};

std::unique_ptr<DeviceEvent> make_event() {
  return std::make_unique<StreamEvent>();
}

size_t cache_bytes() {
  int bytes = 0;
  check(cudaDeviceGetAttribute(&bytes, cudaDevAttrL2CacheSize, /* device= */ 0), "cudaDeviceGetAttribute");
  return static_cast<size_t>(bytes);
}

void synchronize() {
  Recording::forbid("a wait");
  check(cudaStreamSynchronize(current_stream()), "cudaStreamSynchronize");
}

Facts facts() {
  Facts result;
  int driver = 0;
  int runtime = 0;
  check(cudaDriverGetVersion(&driver), "cudaDriverGetVersion");
  check(cudaRuntimeGetVersion(&runtime), "cudaRuntimeGetVersion");
  for (int i = 0; i < count().devices; ++i) {
    cudaDeviceProp properties{};
    check(cudaGetDeviceProperties(&properties, i), "cudaGetDeviceProperties");
    result.emplace_back(
        fmt::format("cuda:{}", i),
        fmt::format("{}, compute capability {}.{}, {} multiprocessors, {:.1f} GiB, {:.0f} MiB of L2 cache",
                    properties.name, properties.major, properties.minor, properties.multiProcessorCount,
                    static_cast<double>(properties.totalGlobalMem) / static_cast<double>(1 << 30),
                    static_cast<double>(properties.l2CacheSize) / static_cast<double>(1 << 20)));
  }
  if (count().devices == 0) {
    result.emplace_back("cuda", fmt::format("no GPU: {}", count().reason));
  }
  result.emplace_back("CUDA", fmt::format("{}, built with {}", version_text(runtime), version_text(CUDART_VERSION)));
  result.emplace_back("cuDNN", cudnn_text());
  result.emplace_back("cuBLASLt", cublaslt_text());
  result.emplace_back("CUDA driver", driver == 0 ? "none" : fmt::format("for CUDA {}", version_text(driver)));
  return result;
}

}  // namespace

void check_there(std::string_view op, int index) {
  norma::check(count().devices > 0, op, "expected a GPU, got none: {}", count().reason);
  norma::check(index == 0, op, "expected device cuda:0, the only one that Norma uses so far, got cuda:{}", index);
  check_capability(index);
}

}  // namespace norma::cuda

namespace norma {
constinit const DeviceFunctions cuda_functions{.allocator = cuda::allocator_of_device,
                                               .from_host = cuda::copy_from_host,
                                               .to_host = cuda::copy_to_host,
                                               .check_there = cuda::check_there,
                                               .synchronize = cuda::synchronize,
                                               .facts = cuda::facts,
                                               .make_event = cuda::make_event,
                                               .cache_bytes = cuda::cache_bytes,
                                               .has_tensor_cores = true};
constinit const DeviceGraphs cuda_graphs{.make = cuda::make_graph_of_device};
}  // namespace norma
