#pragma once

#include "core/cuda/graph_cudnn.h"
#include "ops/conv/kernels.h"

#include <cstdint>

namespace norma::kernels {

/// What a plan of one pass depends on.
struct ConvPlanCase {
  Conv2dCall call;
  bool bias = false;       ///< forward: y = x * weight + bias
  int64_t alignment = 16;  ///< of all pointers, in bytes

  friend auto operator<=>(const ConvPlanCase&, const ConvPlanCase&) = default;
};

/// Numbers of the tensors in a plan: what the pass reads, and `result` what it writes.
enum ConvTensor : int64_t { kConvX = 1, kConvWeight = 2, kConvY = 3, kConvBias = 4 };

/// cuDNN's plan of one pass. 16-bit dtypes are added up in float32. Throws Error where there is none.
cuda::GraphPlan plan_convolution(const ConvPlanCase& wanted, const cuda::PlanRules& rules,
                                 const cuda::PlanTarget& target);

}  // namespace norma::kernels
