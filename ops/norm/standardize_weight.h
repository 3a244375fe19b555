#pragma once

#include "ops/norm/spec.h"

#include "core/tensor.h"

#include <optional>

namespace norma {

struct StandardizeWeightOptions {
  double eps = 1e-6;  ///< timm's; BiT's code has 1e-10
  Statistics statistics = Statistics::stable;
  /// Brock, De and Smith, 2021 ("scaled weight standardisation"): each output channel is multiplied by
  /// gamma / sqrt(fan-in) * gain as well, which keeps the deviation of activations without a norm. gamma makes up for
  /// the nonlinearity in front: 1.7139588594436646 for relu.
  std::optional<double> gamma = {};
};
/// Qiao et al., "Micro-batch training with batch-channel normalization and weight standardization", 2019, as timm has
/// it: (weight - mean) / sqrt(var + eps) of each output channel, with the biased variance over its fan-in. weight:
/// (O, …) of rank 2 to 5, as of a linear layer or a convolution. gain: O numbers of any shape, (O, 1, 1, 1) in timm, or
/// undefined; it multiplies with or without gamma. The paper's code adds 1e-5 to the unbiased
/// deviation.
/// What holds for every norm (norm.h) holds here. Throws Error for a fan-in of 1, whose weights would all be 0.
Tensor standardize_weight(const Tensor& weight, const Tensor& gain = {}, const StandardizeWeightOptions& options = {});

}  // namespace norma
