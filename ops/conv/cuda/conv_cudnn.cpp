#include "base/error.h"
#include "core/cuda/graph_cudnn.h"
#include "core/cuda/retry.h"
#include "core/cuda/runtime.h"
#include "core/cuda/workspace.h"
#include "core/device.h"
#include "core/tf32.h"
#include "ops/conv/conv.h"
#include "ops/conv/cuda/bias_gradient.h"
#include "ops/conv/cuda/plan_cudnn.h"
#include "ops/conv/kernels.h"

#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <tuple>
#include <utility>
#include <vector>

// Convolutions on CUDA: our own kernels for depthwise ones, and cuDNN's plans, made at the first use of each shape and
// kept.

namespace norma::kernels {

namespace {

/// A plan that wants less memory, if there is one.
std::optional<cuda::GraphPlan> smaller_plan(const ConvPlanCase& wanted, int64_t workspace_bytes) {
  try {
    return std::move(
        plan_convolution(wanted, {.tf32 = allow_tf32(), .workspace_bytes = workspace_bytes}, cuda::PlanTarget::device())
            .front());
  } catch (const Error&) {
    return std::nullopt;
  }
}

/// A pointer of a plan and the number of its tensor there.
struct Argument {
  int64_t number;
  const void* pointer;
};

int64_t bytes_of(const Conv2dCase& conv, int64_t number) {
  const auto element = static_cast<int64_t>(size_of(conv.dtype));
  switch (number) {
    case kConvX: return element * conv.n * conv.c * conv.h * conv.w;
    case kConvWeight: return element * conv.o * (conv.c / conv.groups) * conv.kh * conv.kw;
    case kConvY: return element * conv.n * conv.o * conv.oh * conv.ow;
    default: return element * conv.o;
  }
}

int64_t result_of(Conv2dPass pass) {
  switch (pass) {
    case Conv2dPass::input_gradient: return kConvX;
    case Conv2dPass::weight_gradient: return kConvWeight;
    default: return kConvY;
  }
}

void copy_on_device(void* to, const void* from, int64_t bytes) {
  cuda::check(cudaMemcpyAsync(to, from, static_cast<size_t>(bytes), cudaMemcpyDeviceToDevice, cuda::current_stream()),
              "cudaMemcpyAsync");
}

/// Arguments for a plan, which wants addresses aligned to 16 bytes. A view may begin anywhere, and a plan for tensors
/// of less alignment may load 16 bytes at once all the same: cuDNN 9.19 has one for float16, on an H100. So what is not
/// aligned is copied, and the result copied back.
class AlignedArguments {
 public:
  /// `result`: the number of the argument that the plan writes.
  AlignedArguments(const Conv2dCase& conv, std::vector<Argument> arguments, int64_t result)
      : result_(result), arguments_(std::move(arguments)) {
    for (Argument& argument : arguments_) {
      if (cuda::alignment_of({argument.pointer}) < 16) {
        const int64_t bytes = bytes_of(conv, argument.number);
        copies_.push_back({.of = argument,
                           .bytes = bytes,
                           .memory = std::make_unique<cuda::Workspace>(bytes, cuda::current_device())});
        if (argument.number != result_) {
          copy_on_device(copies_.back().memory->data(), argument.pointer, bytes);
        }
        argument.pointer = copies_.back().memory->data();
      }
    }
  }

  [[nodiscard]] const std::vector<Argument>& get() const { return arguments_; }
  void copy_back() const {
    for (const Copy& copy : copies_) {
      if (copy.of.number == result_) {
        copy_on_device(const_cast<void*>(copy.of.pointer), copy.memory->data(), copy.bytes);
      }
    }
  }

 private:
  struct Copy {
    Argument of;
    int64_t bytes;
    std::unique_ptr<cuda::Workspace> memory;
  };

  int64_t result_;
  std::vector<Argument> arguments_;
  std::vector<Copy> copies_;
};

void execute(const cuda::GraphPlan& plan, const cuda::Workspace& workspace, const std::vector<Argument>& arguments) {
  std::vector<int64_t> numbers;
  std::vector<void*> pointers;
  for (const Argument& argument : arguments) {
    numbers.push_back(argument.number);
    pointers.push_back(const_cast<void*>(argument.pointer));
  }
  cuda::CudnnDescriptor pack(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR);
  pack.set(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, numbers)
      .set_pointers(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, pointers)
      .set_pointers(CUDNN_ATTR_VARIANT_PACK_WORKSPACE, {workspace.data()})
      .finalize();
  // cuDNN does not say for certain that memory was what it lacked.
  const cudnnStatus_t status = cuda::start_with_memory(
      [&] { return cudnnBackendExecute(cuda::PlanTarget::device().handle(), plan.plan.get(), pack.get()); },
      [](cudnnStatus_t result) { return result != CUDNN_STATUS_SUCCESS; }, cuda::release_cached_memory);
  cuda::check(status, "cudnnBackendExecute");
}

/// The plan of a case; lives as long as the program. The caller holds the lock of run().
cuda::GraphPlan& plan_of(const ConvPlanCase& wanted, const std::vector<Argument>& arguments) {
  using Key = std::tuple<int, ConvPlanCase, cuda::PlanRules>;
  // Never destroyed: the driver may be gone before it.
  static auto* const plans = new std::map<Key, cuda::GraphPlan>;
  const cuda::PlanRules rules{.tf32 = allow_tf32()};
  const Key key{cuda::current_device().index, wanted, rules};
  const auto found = plans->find(key);
  if (found != plans->end()) {
    return found->second;
  }
  const auto run_once = [&](const cuda::GraphPlan& plan) {
    execute(plan, cuda::Workspace(plan.workspace_bytes, cuda::current_device()), arguments);
  };
  return plans->emplace(key, choose_plan(wanted, rules, run_once)).first->second;
}

void run(const Conv2dCase& conv, Conv2dPass pass, std::vector<Argument> given) {
  static std::mutex mutex;  // a cuDNN handle is one thread's at a time
  const std::lock_guard lock(mutex);
  const AlignedArguments aligned(conv, std::move(given), result_of(pass));
  const std::vector<Argument>& arguments = aligned.get();
  const ConvPlanCase wanted{.call = {.conv = conv, .pass = pass}, .bias = arguments.size() > 3};
  // A smaller plan that fits memory is kept: to try the larger one each time would empty the allocator's cache.
  cuda::GraphPlan& plan = plan_of(wanted, arguments);
  const cuda::Workspace workspace = cuda::allocate_workspace(
      plan, [&](int64_t bytes) { return smaller_plan(wanted, bytes); },
      [](int64_t bytes) { return cuda::Workspace(bytes, cuda::current_device()); });
  execute(plan, workspace, arguments);
  aligned.copy_back();
}

bool supports(const Conv2dCase& /* conv */, Conv2dPass /* pass */) {
  return true;
}

void forward(const Conv2dCase& conv, const void* x, const void* weight, const void* bias, void* y,
             Storage* /* keep */) {
  std::vector<Argument> arguments = {{kConvX, x}, {kConvWeight, weight}, {kConvY, y}};
  if (bias != nullptr) {
    arguments.push_back({kConvBias, bias});
  }
  run(conv, Conv2dPass::forward, std::move(arguments));
}

void input_gradient(const Conv2dCase& conv, const void* dy, const void* weight, void* dx) {
  run(conv, Conv2dPass::input_gradient, {{kConvX, dx}, {kConvWeight, weight}, {kConvY, dy}});
}

void weight_gradient(const Conv2dCase& conv, const void* x, const void* dy, void* dweight) {
  run(conv, Conv2dPass::weight_gradient, {{kConvX, x}, {kConvWeight, dweight}, {kConvY, dy}});
}

void bias_gradient(const Conv2dCase& conv, const void* dy, void* db) {
  bias_gradient_on(cuda::current_device(), conv, dy, db);
}

Implementations<Conv2dImplementation>& implementations() {
  static Implementations<Conv2dImplementation> list("conv2d", "NORMA_CONV", {&conv2d_depthwise_cuda, &conv2d_cudnn},
                                                    conv2d_cudnn, conv2d_modes());
  return list;
}

const Conv2dImplementation& choose(const Conv2dCase& conv, Conv2dPass pass) {
  return implementations().choose(conv, pass);
}

}  // namespace

constinit const Conv2dImplementation conv2d_cudnn{.name = "cudnn",
                                                  .supports = supports,
                                                  .forward = forward,
                                                  .input_gradient = input_gradient,
                                                  .weight_gradient = weight_gradient};

constinit const ConvKernels conv_cuda{.choose = choose,
                                      .bias_gradient = bias_gradient,
                                      .implementations = implementations,
                                      .transposes_contiguous = true};

}  // namespace norma::kernels
