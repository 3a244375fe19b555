#pragma once

#include "ops/conv/cuda/plan_cudnn.h"

#include <functional>
#include <string>

namespace norma::kernels {

/// The plan of a case that was not met before in this process: the fastest of the first eight by cuDNN's heuristics.
///
/// `run` runs a plan once; the case's result is written again each time. The choice is kept in the user's cache folder,
/// in cudnn_plans.txt, by GPU, version of cuDNN, rules and case, so that a later process has the same plan, and with it
/// the same bits, without timing. NORMA_CUDNN_PLANS=heuristic takes cuDNN's first plan. Throws Error for another value
/// than that or "timed", and where there is no plan.
cuda::GraphPlan choose_plan(const ConvPlanCase& wanted, const cuda::PlanRules& rules,
                            const std::function<void(const cuda::GraphPlan&)>& run);

/// The text of a case, for the key of its plan: "forward bfloat16 64x3x224x224 …".
std::string text_of(const ConvPlanCase& wanted);

}  // namespace norma::kernels
