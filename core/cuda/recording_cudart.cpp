#include "core/cuda/recording.h"

#include "base/error.h"
#include "core/cuda/runtime.h"

#include <cstring>

namespace norma::cuda {

namespace {

thread_local Recording* running_one = nullptr;

}  // namespace

Recording* Recording::running() {
  return running_one;
}

void Recording::forbid(const char* what) {
  norma::check(running_one == nullptr, "cuda graph", "expected work that asks nothing of the host, got {}", what);
}

Recording::Recording() {
  forbid("another graph");
  // Other threads go on calling CUDA as they like.
  check(cudaStreamBeginCapture(current_stream(), cudaStreamCaptureModeThreadLocal), "cudaStreamBeginCapture");
  running_one = this;
}

Recording::~Recording() {
  if (!ended_) {
    running_one = nullptr;
    cudaGraph_t graph = nullptr;
    if (cudaStreamEndCapture(current_stream(), &graph) == cudaSuccess) {
      (void)cudaGraphDestroy(graph);
    }
    (void)cudaGetLastError();  // of the call that ended the capture
  }
}

cudaGraph_t Recording::finish() {
  ended_ = true;
  running_one = nullptr;
  cudaGraph_t graph = nullptr;
  check(cudaStreamEndCapture(current_stream(), &graph), "cudaStreamEndCapture");
  return graph;
}

void Recording::copy_to_device(void* device, const void* host, size_t bytes) {
  copies_.push_back(std::make_unique<HostBytes>(bytes));
  std::memcpy(copies_.back()->data, host, bytes);
  check(cudaMemcpyAsync(device, copies_.back()->data, bytes, cudaMemcpyHostToDevice, current_stream()),
        "cudaMemcpyAsync");
}

Recording::HostBytes::HostBytes(size_t bytes) {
  const AllocationScope scope;
  check(cudaMallocHost(&data, bytes), "cudaMallocHost");
}
Recording::HostBytes::~HostBytes() {
  const AllocationScope scope;
  (void)cudaFreeHost(data);  // nobody can be told
}

AllocationScope::AllocationScope() {
  if (Recording::running() != nullptr) {
    check(cudaThreadExchangeStreamCaptureMode(&mode_), "cudaThreadExchangeStreamCaptureMode");
  }
}
AllocationScope::~AllocationScope() {
  if (Recording::running() != nullptr) {
    (void)cudaThreadExchangeStreamCaptureMode(&mode_);
  }
}

}  // namespace norma::cuda
