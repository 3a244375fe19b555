#pragma once

#include "virtual_gpu/convolution.h"
#include "virtual_gpu/descriptor_cudnn.h"
#include "virtual_gpu/numbers.h"

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace virtual_gpu {

/// A tensor of a graph.
struct GraphTensor {
  std::string role;  ///< for errors: "x", "w", "y", "bias"
  int64_t id = 0;
  NumberType type = NumberType::kFloat32;
  std::vector<int64_t> sizes;
  std::vector<int64_t> strides;
  int64_t alignment = 0;
  bool is_virtual = false;

  friend bool operator==(const GraphTensor& a, const GraphTensor& b) {
    return a.id == b.id && a.type == b.type && a.sizes == b.sizes && a.strides == b.strides &&
           a.alignment == b.alignment && a.is_virtual == b.is_virtual;
  }
};

enum class ConvolutionPass : uint8_t { kForward, kDataGradient, kFilterGradient };

/// The graphs that the virtual GPU computes: y = alpha conv(x, w) + beta y, with y + bias behind a forward pass, and
/// the two gradients.
struct ConvolutionGraph {
  ConvolutionPass pass = ConvolutionPass::kForward;
  GraphTensor x, w, y;  ///< y is the graph's result where there is a bias
  std::optional<GraphTensor> bias;
  Convolution shape;
  NumberType compute = NumberType::kFloat32;
  double alpha = 1;
  double beta = 0;

  /// The tensor that the pass writes.
  [[nodiscard]] const GraphTensor& result() const;
  /// The tensors that a variant pack holds, the result among them.
  [[nodiscard]] std::vector<GraphTensor> tensors() const;
  /// "convolution forward: (2, 16, 8, 8) * (32, 16, 3, 3) -> (2, 32, 8, 8), float32"
  [[nodiscard]] std::string text() const;
};

/// What holds for a tensor, a convolution, a pointwise function and an operation alone, when it is finalized. Throws
/// Refusal.
void check_tensor(const Descriptor& tensor);
void check_convolution(const Descriptor& convolution);
void check_pointwise(const Descriptor& pointwise);
void check_operation(const Descriptor& operation);
/// What holds for a graph when it is finalized: one description for each unique id, and virtual tensors that are
/// written by one operation and read by another. Throws Refusal.
void check_graph(const Descriptor& graph);

/// The convolution of a finalized graph. Throws Refusal (NOT_SUPPORTED) for other graphs.
ConvolutionGraph understand(const Descriptor& graph);

}  // namespace virtual_gpu
