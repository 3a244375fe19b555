#include "core/cuda/device_graph_cudart.h"

#include "base/error.h"
#include "core/cuda/recording.h"
#include "core/cuda/runtime.h"

#include <vector>

namespace norma::cuda {

namespace {

/// Takes memory from a reserve while it lives.
class ReserveScope {
 public:
  ReserveScope(CachingAllocator& memory, CachingAllocator::Reserve& reserve) : memory_(memory) { memory.use(&reserve); }
  ~ReserveScope() { memory_.use(nullptr); }
  ReserveScope(const ReserveScope&) = delete;
  ReserveScope& operator=(const ReserveScope&) = delete;

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

}  // namespace

std::unique_ptr<DeviceGraph> make_graph(CachingAllocator& memory, int index) {
  return std::make_unique<Graph>(memory, index);
}

}  // namespace norma::cuda
