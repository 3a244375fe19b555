#pragma once

#include "core/op_profile.h"
#include "core/tensor.h"
#include "ops/conv/kernels.h"
#include "ops/matmul/kernels.h"

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <variant>
#include <vector>

namespace norma::lab::bench {

// The floor of a step: its convolutions and matrix products alone, each in its fastest layout, with weights reordered
// for oneDNN; and the rate of a copy, for ops that only move memory.

/// A convolution or a matrix product in plain numbers.
using ProductCall = std::variant<kernels::Conv2dCall, kernels::MatmulCase>;

/// The products among the records of a profile, in order.
std::vector<ProductCall> product_calls(const std::vector<OpRecord>& records);

double flops(const ProductCall& call);
/// "conv2d 3x3/2 64→128 56x56 forward", "matmul 392x768x3072"
std::string to_string(const ProductCall& call);

/// Memory that all products share, full of numbers around 1 in every floating dtype.
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

/// oneDNN's ways to compute a product; none in a build without oneDNN.
std::vector<FloorCandidate> onednn_candidates(const ProductCall& call);

/// Runs the convolutions and matrix products of a step alone.
class ProductFloor {
 public:
  /// Runs all calls once, in order, and returns the seconds of each. For a new call it first finds the fastest way.
  std::vector<double> run(const std::vector<ProductCall>& calls);

  /// The fastest way to compute a call that run() has seen.
  [[nodiscard]] const std::string& way(const ProductCall& call) const { return best_.at(call).name; }

 private:
  const FloorCandidate& best(const ProductCall& call);
  FloorMemory memory_for(const FloorCandidate& candidate);

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

/// True iff the device's memory is the host's, behind the host's caches, as with cuda-emulated.
bool in_host_memory(Device device);

/// Bytes of x at which a copy misses the caches of common machines.
inline constexpr int64_t kBeyondCaches = int64_t{128} << 20;

}  // namespace norma::lab::bench
