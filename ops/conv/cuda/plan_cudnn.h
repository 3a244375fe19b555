#pragma once

#include "core/cuda/graph_cudnn.h"
#include "ops/conv/kernels.h"

#include <cstdint>
#include <vector>

namespace norma::kernels {

/// The key of a plan for one pass.
struct ConvPlanCase {
  Conv2dCall call;
  bool bias = false;  ///< forward: y = x * weight + bias

  friend auto operator<=>(const ConvPlanCase&, const ConvPlanCase&) = default;
};

/// The numbers of the tensors in a plan: the inputs of the pass, and `result`, its output.
enum ConvTensor : int64_t { kConvX = 1, kConvWeight = 2, kConvY = 3, kConvBias = 4 };

/// cuDNN's plans of one pass, as plan_graph() gives them. 16-bit dtypes are added up in float32. Throws Error if there
/// is none.
std::vector<cuda::GraphPlan> plan_convolution(const ConvPlanCase& wanted, const cuda::PlanRules& rules,
                                              const cuda::PlanTarget& target, const cuda::PlanChoice& choice = {});

}  // namespace norma::kernels
