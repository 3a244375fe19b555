#pragma once

#include "core/cuda/graph_cudnn.h"
#include "ops/conv/kernels.h"

#include <cstdint>
#include <functional>
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

/// The plan of a case that was not met before in this process: the fastest of the first eight by cuDNN's heuristics.
///
/// `run` runs a plan once; the case's result is written again each time. The choice is kept in the user's cache folder,
/// in cudnn_plans.txt, by GPU, version of cuDNN, rules and case, so that a later process has the same plan, and with it
/// the same bits, without timing. NORMA_CUDNN_PLANS=heuristic takes cuDNN's first plan. Throws Error for another value
/// than that or "timed", and where there is no plan.
cuda::GraphPlan choose_plan(const ConvPlanCase& wanted, const cuda::PlanRules& rules,
                            const std::function<void(const cuda::GraphPlan&)>& run);

}  // namespace norma::kernels
