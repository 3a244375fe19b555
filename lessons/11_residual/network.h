#pragma once

#include "exercise.h"

#include <norma/norma.h>

#include <array>
#include <cmath>
#include <cstdint>
#include <string>

using namespace norma;  // NOLINT: a lesson reads better without prefixes

inline constexpr int64_t kWidth = 32;  // numbers in the stream
inline constexpr int64_t kBatch = 64;
inline constexpr int kDepth = 32;  // blocks
inline const TensorOptions kFloat64{.dtype = DType::float64};

struct Named {
  Placement placement;
  std::string name;
};
inline const std::array<Named, 4> kPlacements = {
    {{Placement::none, "none"}, {Placement::pre, "pre"}, {Placement::post, "post"}, {Placement::peri, "peri"}}};

/// The root of the mean square.
inline double rms(const Tensor& x) {
  return std::sqrt(mean(x * x).item<double>());
}

inline Tensor norm(const Tensor& x) {
  return rms_norm(x, {kWidth});
}

/// What a network does with the stream after its last block.
inline Tensor end(Placement placement, const Tensor& stream) {
  return placement == Placement::pre || placement == Placement::peri ? norm(stream) : stream;
}

/// Blocks with a branch of two linear layers and a relu between them. The weights keep the variance of what they read.
struct Network {
  Tensors weights;
  Placement placement;

  /// `factor` is on the result of each branch.
  Network(Placement where, uint64_t seed, int depth = kDepth, double factor = 1) : placement(where) {
    Generator generator(seed);
    for (int i = 0; i < 2 * depth; ++i) {
      const double spread = (i % 2 == 0 ? 1 : factor * std::sqrt(2.0)) / std::sqrt(static_cast<double>(kWidth));
      weights.push_back(randn({kWidth, kWidth}, kFloat64, generator) * spread);
      weights.back().set_requires_grad();
    }
  }

  /// The stream before the first block and after each.
  [[nodiscard]] Tensors streams(const Tensor& x) const {
    Tensors result = {x};
    for (size_t i = 0; i + 1 < weights.size(); i += 2) {
      const Layer branch = [&](const Tensor& in) { return matmul(relu(matmul(in, weights[i])), weights[i + 1]); };
      result.push_back(block(result.back(), placement, branch, norm, norm));
    }
    return result;
  }
};
