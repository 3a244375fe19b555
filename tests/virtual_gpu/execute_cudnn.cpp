#include "virtual_gpu/execute_cudnn.h"

#include "virtual_gpu/device.h"
#include "virtual_gpu/engines_cudnn.h"
#include "virtual_gpu/graph_cudnn.h"
#include "virtual_gpu/operand.h"
#include "virtual_gpu/refusal.h"

#include <algorithm>
#include <atomic>
#include <map>
#include <optional>
#include <utility>

namespace virtual_gpu {

namespace {

constexpr cudnnStatus_t kBad = CUDNN_STATUS_BAD_PARAM;
constexpr const char* kCall = "cudnnBackendExecute";
/// The alignment that cuDNN's kernels may rely on in their workspace.
constexpr uint64_t kWorkspaceAlignment = 16;

/// A plan with the memory of one call.
struct Execution {
  ConvolutionGraph graph;
  const Engine* engine = nullptr;
  std::map<int64_t, Operand> operands;  ///< by unique id
  uint64_t workspace = 0;
  uint64_t workspace_bytes = 0;
  uint64_t call = 0;

  [[nodiscard]] std::vector<double> input(const GraphTensor& tensor) const {
    std::vector<double> values = read(operands.at(tensor.id));
    round_inputs(engine->rounding, values);
    return values;
  }
  /// The sums of products, with the engine's own errors.
  [[nodiscard]] std::vector<double> products() const {
    std::vector<double> values;
    switch (graph.pass) {
      case ConvolutionPass::kForward: values = graph.shape.forward(input(graph.x), input(graph.w)); break;
      case ConvolutionPass::kDataGradient: values = graph.shape.data_gradient(input(graph.y), input(graph.w)); break;
      case ConvolutionPass::kFilterGradient:
        values = graph.shape.filter_gradient(input(graph.x), input(graph.y));
        break;
    }
    if (engine->noise != 0) {
      perturb(values, engine->noise, epsilon_of(graph.x.type), engine->varies ? call : 0);
    }
    return values;
  }

  void run() const {
    poison(fmt::format("{}: workspace", kCall), workspace, workspace_bytes);
    std::vector<double> values = products();
    const Operand& result = operands.at(graph.result().id);
    if (graph.alpha != 1) {
      for (double& value : values) {
        value *= graph.alpha;
      }
    }
    if (graph.beta != 0) {
      const std::vector<double> before = read(result);
      for (size_t i = 0; i < values.size(); ++i) {
        values[i] += graph.beta * before[i];
      }
    }
    if (graph.bias) {
      const std::vector<double> bias = read(operands.at(graph.bias->id));
      const auto pixels = static_cast<size_t>(graph.shape.oh * graph.shape.ow);
      for (size_t i = 0; i < values.size(); ++i) {
        values[i] += bias[i / pixels % bias.size()];
      }
    }
    write(result, values);
    poison(fmt::format("{}: workspace", kCall), workspace, workspace_bytes);
  }
};

/// The memory of each tensor of the graph.
std::map<int64_t, Operand> operands_of(const ConvolutionGraph& graph, const Descriptor& pack) {
  const auto ids = pack.list<int64_t>(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS);
  const auto pointers = pack.list<void*>(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS);
  std::map<int64_t, Operand> operands;
  for (const GraphTensor& tensor : graph.tensors()) {
    const auto place = std::find(ids.begin(), ids.end(), tensor.id);
    expect(place != ids.end(), kBad, "{}: {}: expected a data pointer for unique id {}, got none", kCall, tensor.role,
           tensor.id);
    const void* const pointer = pointers[static_cast<size_t>(place - ids.begin())];
    expect(pointer != nullptr, CUDNN_STATUS_BAD_PARAM_NULL_POINTER, "{}: {}: expected the device's memory, got null",
           kCall, tensor.role);
    expect(address_of(pointer) % static_cast<uint64_t>(tensor.alignment) == 0,
           CUDNN_STATUS_BAD_PARAM_MISALIGNED_POINTER,
           "{}: {}: expected an address aligned to CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT {}, got 0x{:x}", kCall, tensor.role,
           tensor.alignment, address_of(pointer));
    operands[tensor.id] = {.name = fmt::format("{}: {}", kCall, tensor.role),
                           .address = address_of(pointer),
                           .type = tensor.type,
                           .sizes = tensor.sizes,
                           .strides = tensor.strides};
  }
  for (const int64_t id : ids) {
    expect(operands.count(id) != 0, kBad, "{}: expected unique ids of the plan's tensors with memory, got {}", kCall,
           id);
  }
  return operands;
}

void check_workspace(Execution& execution, const Descriptor& plan, const Descriptor& pack) {
  execution.workspace_bytes = static_cast<uint64_t>(plan.value<int64_t>(CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE));
  if (execution.workspace_bytes == 0) {
    return;
  }
  const void* const pointer = pack.value<void*>(CUDNN_ATTR_VARIANT_PACK_WORKSPACE, nullptr);
  expect(pointer != nullptr, CUDNN_STATUS_BAD_PARAM_NULL_POINTER, "{}: workspace: expected {} bytes, got null", kCall,
         execution.workspace_bytes);
  execution.workspace = address_of(pointer);
  expect(execution.workspace % kWorkspaceAlignment == 0, CUDNN_STATUS_BAD_PARAM_MISALIGNED_POINTER,
         "{}: workspace: expected an address aligned to {} bytes, got 0x{:x}", kCall, kWorkspaceAlignment,
         execution.workspace);
}

void check_aliasing(const Execution& execution) {
  const GraphTensor& written = execution.graph.result();
  const Operand& result = execution.operands.at(written.id);
  for (const GraphTensor& tensor : execution.graph.tensors()) {
    const Operand& operand = execution.operands.at(tensor.id);
    expect(tensor.id == written.id || !overlap(result, operand), kBad,
           "{}: {}: expected memory of its own for the output, got bytes of {}", kCall, written.role, tensor.role);
    const bool apart = execution.workspace_bytes == 0 ||
                       operand.address + operand.span_bytes() <= execution.workspace ||
                       execution.workspace + execution.workspace_bytes <= operand.address;
    expect(apart, kBad, "{}: workspace: expected memory of its own, got bytes of {}", kCall, tensor.role);
  }
}

}  // namespace

void execute(cudnnHandle_t handle, const Descriptor& plan, const Descriptor& pack) {
  const auto check_type = [](const Descriptor& one, cudnnBackendDescriptorType_t wanted) {
    expect(one.type == wanted, CUDNN_STATUS_BAD_PARAM_DESCRIPTOR_TYPE, "{}: expected {}, got {}", kCall,
           text_of(wanted), text_of(one.type));
    expect(one.finalized, CUDNN_STATUS_BAD_PARAM_NOT_FINALIZED, "{}: expected a finalized {}", kCall, text_of(wanted));
  };
  check_type(plan, CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR);
  check_type(pack, CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR);
  const auto planned_for = plan.value<cudnnHandle_t>(CUDNN_ATTR_EXECUTION_PLAN_HANDLE, nullptr);
  expect(planned_for != nullptr, CUDNN_STATUS_NOT_SUPPORTED,
         "{}: expected a plan with a handle, got one for properties", kCall);
  expect(planned_for == handle, kBad, "{}: handle: expected the plan's own, got another one", kCall);
  const Descriptor& engine =
      plan.descriptor(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG).descriptor(CUDNN_ATTR_ENGINECFG_ENGINE);
  static std::atomic<uint64_t> calls = 0;
  Execution execution;
  execution.graph = understand(engine.descriptor(CUDNN_ATTR_ENGINE_OPERATION_GRAPH));
  execution.engine = &engine_of(engine.value<int64_t>(CUDNN_ATTR_ENGINE_GLOBAL_INDEX), execution.graph);
  execution.call = ++calls;
  execution.operands = operands_of(execution.graph, pack);
  check_workspace(execution, plan, pack);
  check_aliasing(execution);
  const std::string what = fmt::format("{}: {}, engine {} ({})", kCall, execution.graph.text(), execution.engine->index,
                                       execution.engine->text);
  enqueue(handle->stream, what, [execution] { execution.run(); });
}

}  // namespace virtual_gpu
