#include "base/error.h"
#include "base/not_copied.h"
#include "core/cuda/caching_allocator.h"
#include "core/cuda/graph_cudnn.h"
#include "core/cuda/recording.h"
#include "core/cuda/runtime.h"
#include "core/cuda/separate_blocks.h"
#include "core/cuda/staging.h"
#include "core/device_functions.h"
#include "core/device_graph.h"
#include "core/event.h"
#include "core/upload.h"

#include <cublasLt.h>
#include <fmt/format.h>

#include <cstdlib>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace norma::cuda {
namespace {

/// Calls of CUDA are for another device while it lives.
class DeviceScope : NotCopied {
 public:
  explicit DeviceScope(int index) : before_(current_device().index) { use_device(index); }
  ~DeviceScope() { use_device(before_); }

 private:
  int before_;
};

/// cudaMalloc and cudaFree.
class GpuMemory final : public DeviceMemory {
 public:
  explicit GpuMemory(int index) : index_(index) {}

  void* take(size_t bytes) override {
    const DeviceScope scope(index_);
    const AllocationScope allocation;
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
    const DeviceScope scope(index_);
    size_t available = 0;
    size_t total = 0;
    check(cudaMemGetInfo(&available, &total), "cudaMemGetInfo");
    return fmt::format("the device has {:.1f} GiB, {:.1f} GiB of it free",
                       static_cast<double>(total) / static_cast<double>(1 << 30),
                       static_cast<double>(available) / static_cast<double>(1 << 30));
  }

 private:
  int index_;
};

/// cudaMallocAsync and cudaFreeAsync in the stream of all kernels: memory is given back when the stream comes to that.
class StreamMemory final : public DeviceMemory {
 public:
  explicit StreamMemory(int index) : of_device_(index) {}

  void* take(size_t bytes) override {
    void* pointer = nullptr;
    cudaError_t result = cudaMallocAsync(&pointer, bytes, stream_);
    if (result == cudaErrorMemoryAllocation) {
      wait_for(stream_);  // what was freed is free then
      result = cudaMallocAsync(&pointer, bytes, stream_);
    }
    if (result == cudaErrorMemoryAllocation) {
      (void)cudaGetLastError();
      return nullptr;
    }
    check(result, "cudaMallocAsync");
    return pointer;
  }
  void give_back(void* pointer) override { check(cudaFreeAsync(pointer, stream_), "cudaFreeAsync"); }
  [[nodiscard]] std::string text() const override { return of_device_.text(); }

 private:
  GpuMemory of_device_;
  cudaStream_t stream_ = current_stream();
};

/// What NORMA_CUDA_CACHING asks for.
Allocator* make_allocator(int index) {
  const char* caching = std::getenv("NORMA_CUDA_CACHING");
  if (caching != nullptr && *caching == '0') {
    return new SeparateBlocks(*new StreamMemory(index));
  }
  return new CachingAllocator(*new GpuMemory(index));
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

/// Throws Error("op: expected a GPU, got none: …") without a GPU, and an Error for a number that no GPU has.
void check_there(std::string_view op, int index) {
  norma::check(count().devices > 0, op, "expected a GPU, got none: {}", count().reason);
  norma::check(index < count().devices, op, "expected a device from cuda:0 to cuda:{}, got cuda:{}",
               count().devices - 1, index);
  check_capability(index);
}

Allocator& allocator_of_device(int index) {
  check_there("allocator", index);
  const DeviceScope scope(index);
  static auto* const instances = new PerDevice<Allocator>;
  return instances->get([index] { return make_allocator(index); });
}

/// Takes memory from a reserve while it lives.
class ReserveScope : NotCopied {
 public:
  ReserveScope(CachingAllocator& memory, CachingAllocator::Reserve& reserve) : memory_(memory) { memory.use(&reserve); }
  ~ReserveScope() { memory_.use(nullptr); }

 private:
  CachingAllocator& memory_;
};

class Graph final : public DeviceGraph {
 public:
  Graph(CachingAllocator& memory, int index) : memory_(memory), index_(index) {}
  ~Graph() override {
    forget();
    memory_.dissolve(reserve_);
  }

  void record(const std::function<void()>& work) override {
    forget();
    use_device(index_);
    memory_.empty_cache();  // the graph's memory comes from the device, and nobody else gets it
    cudaGraph_t graph = nullptr;
    {
      const ReserveScope scope(memory_, reserve_);
      Recording recording;
      work();
      graph = recording.finish();
      copies_ = recording.take_copies();
    }
    size_t nodes = 0;
    const cudaError_t counted = cudaGraphGetNodes(graph, nullptr, &nodes);
    // CUDA's own part of a graph takes memory as well. Recorded work may have freed some that the allocator keeps.
    const cudaError_t made = with_memory([&] { return cudaGraphInstantiate(&executable_, graph, 0); });
    (void)cudaGraphDestroy(graph);
    check(counted, "cudaGraphGetNodes");
    check(made, "cudaGraphInstantiate");
    // Now, so that a launch lacks no memory.
    if (const auto sent = with_memory([&] { return cudaGraphUpload(executable_, current_stream()); });
        sent != cudaSuccess) {
      forget();
      check(sent, "cudaGraphUpload");
    }
    size_ = static_cast<int64_t>(nodes);
  }

  void launch() override {
    norma::check(executable_ != nullptr, "cuda graph", "expected recorded work, got none");
    use_device(index_);
    check(cudaGraphLaunch(executable_, current_stream()), "cudaGraphLaunch");
  }

  [[nodiscard]] int64_t size() const override { return size_; }

 private:
  void forget() {
    if (executable_ != nullptr) {
      use_device(index_);
      (void)cudaStreamSynchronize(current_stream());  // its copies may be under way
      (void)cudaGraphExecDestroy(executable_);
    }
    executable_ = nullptr;
    copies_.clear();
    size_ = 0;
  }

  CachingAllocator& memory_;
  int index_;
  CachingAllocator::Reserve reserve_;
  cudaGraphExec_t executable_ = nullptr;
  std::vector<std::unique_ptr<Recording::HostBytes>> copies_;
  int64_t size_ = 0;
};

/// Graphs keep their memory in a CachingAllocator.
std::unique_ptr<DeviceGraph> make_graph_of_device(int index) {
  auto* const memory = dynamic_cast<CachingAllocator*>(&allocator_of_device(index));
  return memory == nullptr ? nullptr : std::make_unique<Graph>(*memory, index);
}

/// Memory of the host that the device reads and writes by itself, which is faster than through the driver's.
class PinnedBuffer final : public StagingBuffer, NotCopied {
 public:
  PinnedBuffer(size_t bytes, cudaStream_t stream) : stream_(stream) {
    check(cudaMallocHost(&memory_, bytes), "cudaMallocHost");
  }
  ~PinnedBuffer() override { (void)cudaFreeHost(memory_); }

  std::byte* data() override { return static_cast<std::byte*>(memory_); }
  void copy_to_device(void* device, size_t bytes) override { copy(device, memory_, bytes, cudaMemcpyHostToDevice); }
  void copy_from_device(const void* device, size_t bytes) override {
    copy(memory_, device, bytes, cudaMemcpyDeviceToHost);
  }
  [[nodiscard]] bool is_done() const override { return done_.has_happened(); }
  void wait() override { done_.synchronize(); }

 private:
  void copy(void* to, const void* from, size_t bytes, cudaMemcpyKind kind) {
    check(cudaMemcpyAsync(to, from, bytes, kind, stream_), "cudaMemcpyAsync");
    done_.record(stream_);
  }

  void* memory_ = nullptr;
  cudaStream_t stream_;
  Event done_;
};

class PinnedMemory final : public StagingMemory {
 public:
  explicit PinnedMemory(cudaStream_t stream) : stream_(stream) {}
  std::unique_ptr<StagingBuffer> make(size_t bytes) override { return std::make_unique<PinnedBuffer>(bytes, stream_); }

 private:
  cudaStream_t stream_;
};

constexpr size_t kStagingBytes = size_t{8} << 20;
constexpr size_t kMostBuffers = 32;  // 256 float32 images of 224 x 224 take 19, and a small tensor takes one

Staging& staging() {
  static auto* const instances = new PerDevice<Staging>;
  return instances->get([] { return new Staging(*new PinnedMemory(current_stream()), kStagingBytes, kMostBuffers); });
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

/// An event of the stream that is the current one when it is made.
class StreamEvent final : public DeviceEvent {
 public:
  void record() override { event_.record(stream_); }
  [[nodiscard]] const Event& event() const { return event_; }
  [[nodiscard]] double seconds_since(const DeviceEvent& start) const override {
    return event_.seconds_since(dynamic_cast<const StreamEvent&>(start).event_);
  }

 private:
  cudaStream_t stream_ = current_stream();
  Event event_;
};

std::unique_ptr<DeviceEvent> make_event() {
  return std::make_unique<StreamEvent>();
}

/// A stream for copies beside the one that kernels run in.
class CopyStream final : public UploadStream {
 public:
  ~CopyStream() override {
    try {
      stream_.synchronize();  // pinned memory must outlive its copies
    } catch (const Error&) {
      // A fault of the device: whoever uses it next is told.
    }
  }
  void copy(void* device, const void* host, size_t bytes, const DeviceEvent& after) override {
    dynamic_cast<const StreamEvent&>(after).event().hold(stream_.get());
    staging_.from_host(device, host, bytes);
    copied_.record(stream_.get());
    copied_.hold(kernels_);
  }

 private:
  cudaStream_t kernels_ = current_stream();
  Stream stream_;
  PinnedMemory memory_{stream_.get()};
  Staging staging_{memory_, kStagingBytes, kMostBuffers};
  Event copied_;
};

std::unique_ptr<UploadStream> make_upload_stream() {
  return std::make_unique<CopyStream>();
}

size_t cache_bytes() {
  int bytes = 0;
  check(cudaDeviceGetAttribute(&bytes, cudaDevAttrL2CacheSize, current_device().index), "cudaDeviceGetAttribute");
  return static_cast<size_t>(bytes);
}

/// Waits for Norma's work, and for that of other libraries in the default stream and in streams that it waits for.
void synchronize() {
  Recording::forbid("a wait");
  wait_for(current_stream());
  wait_for(cudaStreamLegacy);
}

/// "13.1.0, built with 13.1.0"
std::string cublaslt_text() {
  const auto text = [](size_t version) {
    return fmt::format("{}.{}.{}", version / 10000, version / 100 % 100, version % 100);
  };
  return fmt::format("{}, built with {}", text(cublasLtGetVersion()), text(CUBLAS_VERSION));
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

}  // namespace norma::cuda

namespace norma {
constinit const DeviceFunctions cuda_functions{.allocator = cuda::allocator_of_device,
                                               .from_host = cuda::copy_from_host,
                                               .to_host = cuda::copy_to_host,
                                               .check_there = cuda::check_there,
                                               .use = cuda::use_device,
                                               .synchronize = cuda::synchronize,
                                               .facts = cuda::facts,
                                               .make_event = cuda::make_event,
                                               .make_upload_stream = cuda::make_upload_stream,
                                               .make_graph = cuda::make_graph_of_device,
                                               .cache_bytes = cuda::cache_bytes,
                                               .is_far = true,
                                               .has_tensor_cores = true};
}  // namespace norma
