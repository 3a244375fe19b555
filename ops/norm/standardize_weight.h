#pragma once

#include "ops/norm/spec.h"

#include "core/tensor.h"

#include <optional>

namespace norma {

struct StandardizeWeightOptions {
  double eps = 1e-6;  ///< timm's; BiT's code has 1e-10
  Statistics statistics = Statistics::stable;
  /// "Scaled weight standardisation" (Brock, De and Smith, 2021): also multiplies each output channel by gamma /
  /// sqrt(fan-in) * gain, which keeps the deviation of activations without a norm. gamma makes up for the nonlinearity
  /// in front: 1.7139588594436646 for relu.
  std::optional<double> gamma = {};
};
/// Weight standardization (Qiao et al., "Micro-batch training with batch-channel normalization and weight
/// standardization", 2019), as in timm: (weight - mean) / sqrt(var + eps) of each output channel, with the biased
/// variance over its fan-in. weight: (O, …) of rank 2 to 5, as of a linear layer or a convolution. gain: O numbers of
/// any shape, (O, 1, 1, 1) in timm, or undefined; it multiplies with or without gamma. The paper's code adds 1e-5 to
/// the unbiased deviation. The rules of every norm (norm.h) hold here. Throws Error for a fan-in of 1, whose weights
/// would all be 0.
Tensor standardize_weight(const Tensor& weight, const Tensor& gain = {}, const StandardizeWeightOptions& options = {});

}  // namespace norma
