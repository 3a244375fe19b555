#pragma once

#include "core/op_profile.h"
#include "core/tensor.h"
#include "ops/conv/kernels.h"
#include "ops/matmul/kernels.h"

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <variant>
#include <vector>

namespace norma::lab::bench {

// The floor of a step: its convolutions and matrix products alone, on the CPU each in its fastest layout, with weights
// reordered for oneDNN; and the rate of a copy, for ops that only move memory.

/// A convolution or a matrix product in plain numbers.
using ProductCall = std::variant<kernels::Conv2dCall, kernels::MatmulCase>;

/// The products among the records of a profile, in order.
std::vector<ProductCall> product_calls(const std::vector<OpRecord>& records);

double flops(const ProductCall& call);
/// "conv2d 3x3/2 64→128 56x56 forward", "matmul 392x768x3072"
std::string to_string(const ProductCall& call);

/// Memory of a device that all products share, full of numbers around 1 in every floating dtype.
struct FloorMemory {
  void* a = nullptr;
  void* b = nullptr;
  void* c = nullptr;  ///< results
};

/// One way to compute a product, with reordered weights of its own.
struct FloorCandidate {
  std::string name;  ///< "nhwc", "blocked", "matmul", "convolution", or the name of one of Norma's implementations
  size_t bytes_a = 0, bytes_b = 0, bytes_c = 0;
  std::function<void(const FloorMemory& memory)> run;
};

/// oneDNN's ways to compute a product in memory of the host; none in a build without oneDNN.
std::vector<FloorCandidate> onednn_candidates(const ProductCall& call);

/// True iff the device's memory is the host's, behind the host's caches, as with cuda-emulated.
bool in_host_memory(Device device);

/// Bytes of x at which a copy of x misses the caches before the device's memory.
int64_t bytes_beyond_caches(Device device);

/// The cache of a device with memory of its own. In a network an op seldom finds its input in that cache.
class DeviceCache {
 public:
  explicit DeviceCache(Device device = default_device());
  /// Fills the cache with other data. This takes so long that the device does not wait for the host afterwards.
  void clear() const;

 private:
  Tensor other_;
};

/// Runs the convolutions and matrix products of a step alone, on the device of the step.
class ProductFloor {
 public:
  explicit ProductFloor(Device device = default_device()) : device_(device) {}

  /// Runs all calls once, in order, and returns the seconds of each. For a new call it first finds the fastest way. On
  /// a device with memory of its own it takes the least of some runs of each call, right after an untimed one, so that
  /// the device does not wait for the host.
  std::vector<double> run(const std::vector<ProductCall>& calls);

  [[nodiscard]] Device device() const { return device_; }
  /// The device's cache, for what else is timed beside the calls.
  const DeviceCache& cache();
  /// The fastest way to compute a call that run() has seen.
  [[nodiscard]] const std::string& way(const ProductCall& call) const { return best_.at(call).name; }

 private:
  const FloorCandidate& best(const ProductCall& call);
  FloorMemory memory_for(const FloorCandidate& candidate);
  double seconds_of(const FloorCandidate& candidate, const FloorMemory& memory);
  double least_seconds(const FloorCandidate& candidate, const FloorMemory& memory);

  Device device_;
  std::optional<DeviceCache> cache_;  // made for the first use
  std::map<ProductCall, FloorCandidate> best_;
  Tensor a_, b_, c_;
};

/// Times y = 1.5 · x for two blocks of memory, with the threads of parallel_for. On a device whose memory is not behind
/// the host's caches it times y = x.
class Copy {
 public:
  /// `bytes` is the size of x, and of y.
  explicit Copy(int64_t bytes, Device device = kCpu);
  /// Seconds of one pass.
  double run();
  /// Bytes that one pass reads and writes.
  [[nodiscard]] double bytes() const { return bytes_of(x_, y_); }

 private:
  bool of_host_;
  Tensor x_;
  Tensor y_;
};

}  // namespace norma::lab::bench
