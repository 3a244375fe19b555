#include "ops/conv/cuda/plan_cudnn.h"

#include "base/error.h"
#include "core/allocator.h"
#include "core/cuda/plan_store.h"
#include "core/cuda/runtime.h"
#include "core/event.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <limits>
#include <memory>
#include <optional>
#include <string_view>
#include <utility>

// The graphs of convolutions for cuDNN, and the choice among its plans of them.

namespace norma::kernels {

namespace {

using cuda::CudnnDescriptor;

/// A tensor of four axes in the order (n, c, h, w), whatever its memory format.
CudnnDescriptor tensor(int64_t number, DType dtype, const std::array<int64_t, 4>& sizes, bool channels_last,
                       bool is_virtual = false) {
  const auto [n, c, h, w] = sizes;
  const std::vector<int64_t> strides =
      channels_last ? std::vector<int64_t>{c * h * w, 1, w * c, c} : std::vector<int64_t>{c * h * w, h * w, w, 1};
  CudnnDescriptor made(CUDNN_BACKEND_TENSOR_DESCRIPTOR);
  made.set(CUDNN_ATTR_TENSOR_DATA_TYPE, cuda::cudnn_type(dtype))
      .set(CUDNN_ATTR_TENSOR_DIMENSIONS, std::vector<int64_t>(sizes.begin(), sizes.end()))
      .set(CUDNN_ATTR_TENSOR_STRIDES, strides)
      .set(CUDNN_ATTR_TENSOR_UNIQUE_ID, number)
      .set(CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, int64_t{16});
  if (is_virtual) {
    made.set(CUDNN_ATTR_TENSOR_IS_VIRTUAL, true);
  }
  made.finalize();
  return made;
}

/// The dtype in which 16-bit numbers, and float32, are added up.
DType sum_dtype(DType dtype) {
  return dtype == DType::float64 ? DType::float64 : DType::float32;
}

CudnnDescriptor convolution(const Conv2dCase& conv) {
  const std::vector<int64_t> padding = {conv.padding_h, conv.padding_w};
  // One as long as the filter has places means the same as a longer one, which may be too long for cuDNN: one output.
  const int64_t places_h = conv.h + 2 * conv.padding_h - conv.dilation_h * (conv.kh - 1);
  const int64_t places_w = conv.w + 2 * conv.padding_w - conv.dilation_w * (conv.kw - 1);
  const std::vector<int64_t> strides = {std::min(conv.stride_h, places_h), std::min(conv.stride_w, places_w)};
  const int64_t largest = std::max({strides[0], strides[1], padding[0], padding[1], conv.dilation_h, conv.dilation_w});
  check(largest <= INT32_MAX, "conv2d", "expected strides, paddings and dilations of at most {} for cuDNN, got {}",
        INT32_MAX, largest);
  CudnnDescriptor made(CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR);
  made.set(CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, int64_t{2})
      .set(CUDNN_ATTR_CONVOLUTION_COMP_TYPE, cuda::cudnn_type(sum_dtype(conv.dtype)))
      .set(CUDNN_ATTR_CONVOLUTION_CONV_MODE, CUDNN_CROSS_CORRELATION)
      .set(CUDNN_ATTR_CONVOLUTION_DILATIONS, std::vector<int64_t>{conv.dilation_h, conv.dilation_w})
      .set(CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, strides)
      .set(CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, padding)
      .set(CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, padding)
      .finalize();
  return made;
}

/// cuDNN's names of a pass's operation and of its attributes.
struct PassNames {
  cudnnBackendDescriptorType_t operation;
  cudnnBackendAttributeName_t convolution, x, weight, y, alpha, beta;
};

PassNames names_of(Conv2dPass pass) {
  switch (pass) {
    case Conv2dPass::forward: break;
    case Conv2dPass::input_gradient:
      return {.operation = CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR,
              .convolution = CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC,
              .x = CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX,
              .weight = CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W,
              .y = CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY,
              .alpha = CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_ALPHA,
              .beta = CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_BETA};
    case Conv2dPass::weight_gradient:
      return {.operation = CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR,
              .convolution = CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_CONV_DESC,
              .x = CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_X,
              .weight = CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW,
              .y = CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DY,
              .alpha = CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_ALPHA,
              .beta = CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_BETA};
  }
  return {.operation = CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR,
          .convolution = CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC,
          .x = CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X,
          .weight = CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W,
          .y = CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y,
          .alpha = CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA,
          .beta = CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA};
}

/// Sets alpha = 1 and beta = 0 on an operation, in the dtype of its sums: where that is float32, some engines read the
/// first four bytes of a double, which are 0.
void set_factors(CudnnDescriptor& operation, const PassNames& names, DType dtype) {
  if (sum_dtype(dtype) == DType::float64) {
    operation.set(names.alpha, 1.0).set(names.beta, 0.0);
  } else {
    operation.set(names.alpha, 1.0F).set(names.beta, 0.0F);
  }
}

/// y = sum + bias, both in the dtype of the sums.
CudnnDescriptor addition(const CudnnDescriptor& sum, const CudnnDescriptor& bias, const CudnnDescriptor& y,
                         DType dtype) {
  CudnnDescriptor function(CUDNN_BACKEND_POINTWISE_DESCRIPTOR);
  function.set(CUDNN_ATTR_POINTWISE_MODE, CUDNN_POINTWISE_ADD)
      .set(CUDNN_ATTR_POINTWISE_MATH_PREC, cuda::cudnn_type(sum_dtype(dtype)))
      .finalize();
  CudnnDescriptor made(CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR);
  made.set(CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, function)
      .set(CUDNN_ATTR_OPERATION_POINTWISE_XDESC, sum)
      .set(CUDNN_ATTR_OPERATION_POINTWISE_BDESC, bias)
      .set(CUDNN_ATTR_OPERATION_POINTWISE_YDESC, y)
      .finalize();
  return made;
}

}  // namespace

std::vector<cuda::GraphPlan> plan_convolution(const ConvPlanCase& wanted, const cuda::PlanRules& rules,
                                              const cuda::PlanTarget& target, const cuda::PlanChoice& choice) {
  const Conv2dCase& conv = wanted.call.conv;
  const PassNames names = names_of(wanted.call.pass);
  constexpr int64_t kSum = 5;  // a number for the tensor without memory
  const std::array<int64_t, 4> y_sizes = {conv.n, conv.o, conv.oh, conv.ow};
  CudnnDescriptor x = tensor(kConvX, conv.dtype, {conv.n, conv.c, conv.h, conv.w}, conv.channels_last);
  CudnnDescriptor weight =
      tensor(kConvWeight, conv.dtype, {conv.o, conv.c / conv.groups, conv.kh, conv.kw}, conv.weight_channels_last);
  CudnnDescriptor y = tensor(kConvY, conv.dtype, y_sizes, conv.channels_last);
  CudnnDescriptor bias = tensor(kConvBias, conv.dtype, {1, conv.o, 1, 1}, /* channels_last= */ true);
  CudnnDescriptor sum = tensor(kSum, sum_dtype(conv.dtype), y_sizes, conv.channels_last, /* is_virtual= */ true);

  CudnnDescriptor shape = convolution(conv);
  CudnnDescriptor operation(names.operation);
  operation.set(names.convolution, shape).set(names.x, x).set(names.weight, weight).set(names.y, wanted.bias ? sum : y);
  set_factors(operation, names, conv.dtype);
  operation.finalize();
  std::vector<cudnnBackendDescriptor_t> operations = {operation.get()};
  std::vector<CudnnDescriptor> more;
  if (wanted.bias) {
    more.push_back(addition(sum, bias, y, conv.dtype));
    operations.push_back(more.back().get());
  }
  CudnnDescriptor graph(CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
  graph.set(CUDNN_ATTR_OPERATIONGRAPH_OPS, operations);
  if (target.handle() != nullptr) {
    graph.set(CUDNN_ATTR_OPERATIONGRAPH_HANDLE, target.handle());
  }
  graph.finalize();
  std::vector<cuda::GraphPlan> plans = cuda::plan_graph("conv2d", graph, conv.dtype, rules, target, choice);
  for (CudnnDescriptor* part : {&x, &weight, &y, &bias, &sum, &shape, &operation, &graph}) {
    more.push_back(std::move(*part));
  }
  for (CudnnDescriptor& part : more) {
    const auto shared = std::make_shared<const CudnnDescriptor>(std::move(part));
    for (cuda::GraphPlan& plan : plans) {
      plan.kept.push_back(shared);
    }
  }
  return plans;
}

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

/// "forward bfloat16 64x3x224x224 …"
std::string text_of(const ConvPlanCase& wanted) {
  const Conv2dCase& conv = wanted.call.conv;
  constexpr std::string_view kPasses[] = {"forward", "input gradient", "weight gradient"};
  return fmt::format("{} {} {}x{}x{}x{} {} filters {}x{}x{} {} stride {}x{} padding {}x{} dilation {}x{} groups {}{}",
                     kPasses[static_cast<size_t>(wanted.call.pass)], to_string(conv.dtype), conv.n, conv.c, conv.h,
                     conv.w, conv.channels_last ? "NHWC" : "NCHW", conv.o, conv.kh, conv.kw,
                     conv.weight_channels_last ? "OHWI" : "OIHW", conv.stride_h, conv.stride_w, conv.padding_h,
                     conv.padding_w, conv.dilation_h, conv.dilation_w, conv.groups, wanted.bias ? " bias" : "");
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
