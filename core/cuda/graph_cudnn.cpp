#include "core/cuda/graph_cudnn.h"

#include "base/error.h"
#include "core/cuda/runtime.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <initializer_list>
#include <optional>
#include <utility>

namespace norma::cuda {

void check(cudnnStatus_t status, const char* call) {
  if (status != CUDNN_STATUS_SUCCESS) {
    std::array<char, 512> message{};
    cudnnGetLastErrorString(message.data(), message.size());
    fail("cuda", "{}: {}: {}", call, cudnnGetErrorString(status), message.data());
  }
}

std::string cudnn_text() {
  const auto text = [](size_t version) {
    return fmt::format("{}.{}.{}", version / 10000, version / 100 % 100, version % 100);
  };
  return fmt::format("{}, built with {}", text(cudnnGetVersion()), text(CUDNN_VERSION));
}

cudnnDataType_t cudnn_type(DType dtype) {
  switch (dtype) {
    case DType::float64: return CUDNN_DATA_DOUBLE;
    case DType::float32: return CUDNN_DATA_FLOAT;
    case DType::float16: return CUDNN_DATA_HALF;
    case DType::bfloat16: return CUDNN_DATA_BFLOAT16;
    default: fail("cuda", "dtype: expected a floating one for cuDNN, got {}", to_string(dtype));
  }
}

// --- CudnnDescriptor ---------------------------------------------------------------------------------------------

CudnnDescriptor::CudnnDescriptor(cudnnBackendDescriptorType_t type) {
  check(cudnnBackendCreateDescriptor(type, &descriptor_), "cudnnBackendCreateDescriptor");
}
CudnnDescriptor::~CudnnDescriptor() {
  if (descriptor_ != nullptr) {
    cudnnBackendDestroyDescriptor(descriptor_);
  }
}
CudnnDescriptor::CudnnDescriptor(CudnnDescriptor&& other) noexcept
    : descriptor_(std::exchange(other.descriptor_, nullptr)) {}
CudnnDescriptor& CudnnDescriptor::operator=(CudnnDescriptor&& other) noexcept {
  std::swap(descriptor_, other.descriptor_);
  return *this;
}

void CudnnDescriptor::set_values(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, int64_t count,
                                 const void* values) {
  check(cudnnBackendSetAttribute(descriptor_, name, type, count, values), "cudnnBackendSetAttribute");
}

CudnnDescriptor& CudnnDescriptor::finalize() {
  check(cudnnBackendFinalize(descriptor_), "cudnnBackendFinalize");
  return *this;
}

bool CudnnDescriptor::try_finalize() {
  return cudnnBackendFinalize(descriptor_) == CUDNN_STATUS_SUCCESS;
}

int64_t CudnnDescriptor::get_integer(cudnnBackendAttributeName_t name) const {
  int64_t value = 0;
  read_values(name, CUDNN_TYPE_INT64, 1, &value);
  return value;
}

int64_t CudnnDescriptor::count_of(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type) const {
  int64_t count = 0;
  check(cudnnBackendGetAttribute(descriptor_, name, type, 0, &count, nullptr), "cudnnBackendGetAttribute");
  return count;
}

size_t CudnnDescriptor::read_values(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, size_t count,
                                    void* values) const {
  int64_t found = 0;
  if (count > 0) {
    check(cudnnBackendGetAttribute(descriptor_, name, type, static_cast<int64_t>(count), &found, values),
          "cudnnBackendGetAttribute");
  }
  return static_cast<size_t>(found);
}

void CudnnDescriptor::get_descriptors(cudnnBackendAttributeName_t name, std::vector<CudnnDescriptor>& into) const {
  check(read_descriptors(name, into), "cudnnBackendGetAttribute");
}

bool CudnnDescriptor::try_get_descriptors(cudnnBackendAttributeName_t name, std::vector<CudnnDescriptor>& into) const {
  return read_descriptors(name, into) == CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t CudnnDescriptor::read_descriptors(cudnnBackendAttributeName_t name,
                                                std::vector<CudnnDescriptor>& into) const {
  std::vector<cudnnBackendDescriptor_t> all;
  for (const CudnnDescriptor& one : into) {
    all.push_back(one.get());
  }
  int64_t found = 0;
  const cudnnStatus_t status = cudnnBackendGetAttribute(descriptor_, name, CUDNN_TYPE_BACKEND_DESCRIPTOR,
                                                        static_cast<int64_t>(all.size()), &found, all.data());
  into.erase(into.begin() + std::min<std::ptrdiff_t>(found, static_cast<std::ptrdiff_t>(into.size())), into.end());
  return status;
}

void CudnnDescriptor::get_descriptor(cudnnBackendAttributeName_t name, CudnnDescriptor& into) const {
  int64_t found = 0;
  cudnnBackendDescriptor_t one = into.get();
  check(cudnnBackendGetAttribute(descriptor_, name, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &found, &one),
        "cudnnBackendGetAttribute");
}

// --- PlanTarget --------------------------------------------------------------------------------------------------

const PlanTarget& PlanTarget::device() {
  static auto* const targets = new PerDevice<const PlanTarget>;
  return targets->get([] {
    cudnnHandle_t handle = nullptr;
    check(cudnnCreate(&handle), "cudnnCreate");
    check(cudnnSetStream(handle, current_stream()), "cudnnSetStream");
    return new PlanTarget(handle);
  });
}

PlanTarget::PlanTarget(CudnnDescriptor properties) {
  properties_.push_back(std::move(properties));
}

PlanTarget PlanTarget::from_properties(const std::string& json) {
  CudnnDescriptor properties(CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR);
  properties.set(CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION,
                 std::vector<char>(json.c_str(), json.c_str() + json.size() + 1));
  properties.finalize();
  return PlanTarget(std::move(properties));
}

void PlanTarget::put(CudnnDescriptor& on, cudnnBackendAttributeName_t handle,
                     cudnnBackendAttributeName_t properties) const {
  if (handle_ != nullptr) {
    on.set(handle, handle_);
  } else {
    on.set(properties, properties_.front());
  }
}

// --- plans -------------------------------------------------------------------------------------------------------

namespace {

std::vector<CudnnDescriptor> configurations(const CudnnDescriptor& graph, cudnnBackendHeurMode_t mode,
                                            const PlanTarget& target) {
  CudnnDescriptor heuristic(CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR);
  heuristic.set(CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, graph).set(CUDNN_ATTR_ENGINEHEUR_MODE, mode);
  if (target.handle() == nullptr) {  // else the graph has the handle
    target.put(heuristic, CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CUDNN_ATTR_ENGINEHEUR_DEVICEPROP);
  }
  if (!heuristic.try_finalize()) {
    return {};
  }
  const int64_t count = heuristic.count_of(CUDNN_ATTR_ENGINEHEUR_RESULTS, CUDNN_TYPE_BACKEND_DESCRIPTOR);
  std::vector<CudnnDescriptor> found;
  for (int64_t i = 0; i < count; ++i) {
    found.emplace_back(CUDNN_BACKEND_ENGINECFG_DESCRIPTOR);
  }
  if (count > 0) {
    heuristic.get_descriptors(CUDNN_ATTR_ENGINEHEUR_RESULTS, found);
  }
  return found;
}

/// cuDNN's notes on an engine: what it does to the numbers, and when it is compiled.
struct Notes {
  std::vector<cudnnBackendNumericalNote_t> numerical;
  bool compiled_at_use = false;
};

Notes notes_of(const CudnnDescriptor& configuration) {
  CudnnDescriptor engine(CUDNN_BACKEND_ENGINE_DESCRIPTOR);
  configuration.get_descriptor(CUDNN_ATTR_ENGINECFG_ENGINE, engine);
  Notes notes;
  notes.numerical = engine.get_list<cudnnBackendNumericalNote_t>(CUDNN_ATTR_ENGINE_NUMERICAL_NOTE);
  const auto behaviour = engine.get_list<cudnnBackendBehaviorNote_t>(CUDNN_ATTR_ENGINE_BEHAVIOR_NOTE);
  notes.compiled_at_use =
      std::find(behaviour.begin(), behaviour.end(), CUDNN_BEHAVIOR_NOTE_RUNTIME_COMPILATION) != behaviour.end();
  return notes;
}

/// GraphPlan::name of a configuration.
std::string name_of(const CudnnDescriptor& configuration) {
  CudnnDescriptor engine(CUDNN_BACKEND_ENGINE_DESCRIPTOR);
  configuration.get_descriptor(CUDNN_ATTR_ENGINECFG_ENGINE, engine);
  std::string name = std::to_string(engine.get_integer(CUDNN_ATTR_ENGINE_GLOBAL_INDEX));
  std::vector<CudnnDescriptor> choices;  // cuDNN does not say how many there are
  for (int i = 0; i < CUDNN_KNOB_TYPE_COUNTS; ++i) {
    choices.emplace_back(CUDNN_BACKEND_KNOB_CHOICE_DESCRIPTOR);
  }
  if (!configuration.try_get_descriptors(CUDNN_ATTR_ENGINECFG_KNOB_CHOICES, choices)) {
    return name;  // an engine without settings
  }
  for (const CudnnDescriptor& choice : choices) {
    name += fmt::format(
        " {}={}", static_cast<int>(choice.get_list<cudnnBackendKnobType_t>(CUDNN_ATTR_KNOB_CHOICE_KNOB_TYPE).at(0)),
        choice.get_integer(CUDNN_ATTR_KNOB_CHOICE_KNOB_VALUE));
  }
  return name;
}

/// The finished plan; none where cuDNN refuses it after all, or it wants too much memory.
std::optional<GraphPlan> finished(CudnnDescriptor& configuration, const PlanRules& rules, const PlanTarget& target) {
  CudnnDescriptor plan(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR);
  plan.set(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, configuration);
  target.put(plan, CUDNN_ATTR_EXECUTION_PLAN_HANDLE, CUDNN_ATTR_EXECUTION_PLAN_DEVICEPROP);
  if (!plan.try_finalize()) {
    return std::nullopt;
  }
  const int64_t workspace = plan.get_integer(CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE);
  if (workspace > rules.workspace_bytes) {
    return std::nullopt;
  }
  const auto notes = notes_of(configuration).numerical;
  GraphPlan made{.plan = std::move(plan),
                 .workspace_bytes = workspace,
                 .name = name_of(configuration),
                 .tensor_cores = std::ranges::find(notes, CUDNN_NUMERICAL_NOTE_TENSOR_CORE) != notes.end(),
                 .kept = {}};
  made.kept.push_back(std::make_shared<const CudnnDescriptor>(std::move(configuration)));
  return made;
}

}  // namespace

bool keeps_rules(const std::vector<cudnnBackendNumericalNote_t>& notes, DType dtype, const PlanRules& rules) {
  const auto has_any = [&](std::initializer_list<cudnnBackendNumericalNote_t> unwanted) {
    return std::find_first_of(notes.begin(), notes.end(), unwanted.begin(), unwanted.end()) != notes.end();
  };
  const bool strict_float32 = dtype == DType::float32 && !rules.tf32;
  return !has_any({CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC, CUDNN_NUMERICAL_NOTE_REDUCED_PRECISION_REDUCTION,
                   CUDNN_NUMERICAL_NOTE_FFT, CUDNN_NUMERICAL_NOTE_WINOGRAD, CUDNN_NUMERICAL_NOTE_WINOGRAD_TILE_4x4,
                   CUDNN_NUMERICAL_NOTE_WINOGRAD_TILE_6x6, CUDNN_NUMERICAL_NOTE_WINOGRAD_TILE_13x13}) &&
         !(strict_float32 && has_any({CUDNN_NUMERICAL_NOTE_TENSOR_CORE, CUDNN_NUMERICAL_NOTE_DOWN_CONVERT_INPUTS}));
}

std::vector<GraphPlan> plan_graph(const char* op, const CudnnDescriptor& graph, DType dtype, const PlanRules& rules,
                                  const PlanTarget& target, const PlanChoice& choice) {
  std::vector<GraphPlan> plans;
  size_t offered = 0;
  for (const cudnnBackendHeurMode_t mode : {CUDNN_HEUR_MODE_A, CUDNN_HEUR_MODE_FALLBACK}) {
    std::vector<CudnnDescriptor> all = configurations(graph, mode, target);
    offered += all.size();
    for (const bool compiled_at_use : {false, true}) {
      for (CudnnDescriptor& configuration : all) {
        if (configuration.get() == nullptr) {  // taken already
          continue;
        }
        const Notes notes = notes_of(configuration);
        if (notes.compiled_at_use != compiled_at_use || !keeps_rules(notes.numerical, dtype, rules) ||
            !(choice.name.empty() || name_of(configuration) == choice.name)) {
          continue;
        }
        if (std::optional<GraphPlan> plan = finished(configuration, rules, target)) {
          plans.push_back(std::move(*plan));
          if (plans.size() == choice.most) {
            return plans;
          }
        }
      }
    }
    if (!plans.empty()) {
      return plans;
    }
  }
  fail(op, "cuDNN {} has no deterministic way to compute this in {} with {} bytes of workspace ({} ways refused)",
       cudnnGetVersion(), to_string(dtype), rules.workspace_bytes, offered);
}

}  // namespace norma::cuda
