#pragma once

#include "base/not_copied.h"

#include <cuda_runtime.h>

#include <cstddef>
#include <memory>
#include <vector>

namespace norma::cuda {

/// While it lives, the stream of all kernels is captured: what it is given becomes a graph and is not done. One at a
/// time.
class Recording : NotCopied {
 public:
  Recording();
  /// Drops what was recorded, unless finish() has been called.
  ~Recording();

  /// The one that runs; null: none.
  static Recording* running();
  /// Throws Error "cuda graph: expected …, got WHAT" while one runs.
  static void forbid(const char* what);

  /// Records a copy to the device of bytes that are kept with the graph.
  void copy_to_device(void* device, const void* host, size_t bytes);
  /// Ends it, and returns the graph.
  cudaGraph_t finish();

  /// Memory of the host that copies of a graph read at each launch.
  struct HostBytes : NotCopied {
    explicit HostBytes(size_t bytes);
    ~HostBytes();

    void* data = nullptr;
  };
  /// What the graph's copies read.
  [[nodiscard]] std::vector<std::unique_ptr<HostBytes>> take_copies() { return std::move(copies_); }

 private:
  bool ended_ = false;
  std::vector<std::unique_ptr<HostBytes>> copies_;
};

/// CUDA lets a thread that captures allocate memory only while one of these lives.
class AllocationScope : NotCopied {
 public:
  AllocationScope();
  ~AllocationScope();

 private:
  cudaStreamCaptureMode mode_ = cudaStreamCaptureModeRelaxed;  // while it lives, that of before
};

}  // namespace norma::cuda
