#include "ops/conv/cuda/choose_plan_cudnn.h"

#include "base/error.h"
#include "core/allocator.h"
#include "core/cuda/plan_store.h"
#include "core/cuda/runtime.h"
#include "core/event.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <limits>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

namespace norma::kernels {

namespace {

constexpr size_t kCandidates = 8;
constexpr int kTimedRuns = 3;

bool times_plans() {
  static const bool times = [] {
    const char* value = std::getenv("NORMA_CUDNN_PLANS");
    const std::string_view text = value == nullptr ? "" : value;
    check(text.empty() || text == "timed" || text == "heuristic", "NORMA_CUDNN_PLANS",
          "expected timed or heuristic, got '{}'", text);
    return text != "heuristic";
  }();
  return times;
}

/// Seconds of a run; the first, in which the device may load code, does not count.
double seconds_of(const cuda::GraphPlan& plan, const std::function<void(const cuda::GraphPlan&)>& run) {
  double least = std::numeric_limits<double>::infinity();
  run(plan);
  Event start(cuda::current_device());
  Event end(cuda::current_device());
  for (int i = 0; i < kTimedRuns; ++i) {
    start.record();
    run(plan);
    end.record();
    least = std::min(least, end.seconds_since(start));
  }
  return least;
}

struct Choice {
  size_t plan = 0;  ///< the fastest of those that ran; the first where none did
  bool lacked_memory = false;
};

Choice fastest_of(const std::vector<cuda::GraphPlan>& plans, const std::function<void(const cuda::GraphPlan&)>& run) {
  Choice choice;
  double least = std::numeric_limits<double>::infinity();
  for (size_t i = 0; i < plans.size(); ++i) {
    try {
      if (const double seconds = seconds_of(plans[i], run); seconds < least) {
        least = seconds;
        choice.plan = i;
      }
    } catch (const OutOfMemory&) {
      choice.lacked_memory = true;
    } catch (const Error&) {  // cuDNN proposed a plan that it cannot run; another will do
    }
  }
  return choice;
}

std::string key_of(const ConvPlanCase& wanted, const cuda::PlanRules& rules) {
  static auto* const devices = new cuda::PerDevice<const std::string>;
  const std::string& device = devices->get([] {
    cudaDeviceProp properties{};
    cuda::check(cudaGetDeviceProperties(&properties, cuda::current_device().index), "cudaGetDeviceProperties");
    return new std::string(fmt::format("{}, cuDNN {}", properties.name, cudnnGetVersion()));
  });
  return fmt::format("{}, tf32 {}, workspace {}, {}", device, rules.tf32 ? 1 : 0, rules.workspace_bytes,
                     text_of(wanted));
}

}  // namespace

std::string text_of(const ConvPlanCase& wanted) {
  const Conv2dCase& conv = wanted.call.conv;
  constexpr std::string_view kPasses[] = {"forward", "input gradient", "weight gradient"};
  return fmt::format("{} {} {}x{}x{}x{} {} filters {}x{}x{} {} stride {}x{} padding {}x{} dilation {}x{} groups {}{}",
                     kPasses[static_cast<size_t>(wanted.call.pass)], to_string(conv.dtype), conv.n, conv.c, conv.h,
                     conv.w, conv.channels_last ? "NHWC" : "NCHW", conv.o, conv.kh, conv.kw,
                     conv.weight_channels_last ? "OHWI" : "OIHW", conv.stride_h, conv.stride_w, conv.padding_h,
                     conv.padding_w, conv.dilation_h, conv.dilation_w, conv.groups, wanted.bias ? " bias" : "");
}

cuda::GraphPlan choose_plan(const ConvPlanCase& wanted, const cuda::PlanRules& rules,
                            const std::function<void(const cuda::GraphPlan&)>& run) {
  const cuda::PlanTarget& device = cuda::PlanTarget::device();
  if (!times_plans()) {
    return std::move(plan_convolution(wanted, rules, device).front());
  }
  static cuda::PlanStore store(cuda::PlanStore::file_in_cache("cudnn_plans.txt"));
  const std::string key = key_of(wanted, rules);
  if (const std::optional<std::string> name = store.find(key)) {
    try {
      return std::move(plan_convolution(wanted, rules, device, {.name = *name}).front());
    } catch (const Error&) {  // a file that somebody wrote by hand: choose again
    }
  }
  std::vector<cuda::GraphPlan> plans = plan_convolution(wanted, rules, device, {.most = kCandidates});
  const Choice choice = plans.size() > 1 ? fastest_of(plans, run) : Choice();
  // Another process, with more memory, shall choose for itself; and where one was first, its choice counts.
  const std::string name = choice.lacked_memory ? plans[choice.plan].name : store.add(key, plans[choice.plan].name);
  const auto chosen = std::ranges::find(plans, name, &cuda::GraphPlan::name);
  return std::move(chosen == plans.end() ? plans[choice.plan] : *chosen);
}

}  // namespace norma::kernels
