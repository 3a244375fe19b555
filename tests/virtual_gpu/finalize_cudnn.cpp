#include "virtual_gpu/engines_cudnn.h"
#include "virtual_gpu/execute_cudnn.h"
#include "virtual_gpu/graph_cudnn.h"
#include "virtual_gpu/refusal.h"

#include <algorithm>
#include <set>

namespace virtual_gpu {

namespace {

constexpr cudnnStatus_t kBad = CUDNN_STATUS_BAD_PARAM;

void find_notes(Descriptor& descriptor) {
  const ConvolutionGraph graph = understand(descriptor.descriptor(CUDNN_ATTR_ENGINE_OPERATION_GRAPH));
  const Engine& engine = engine_of(descriptor.value<int64_t>(CUDNN_ATTR_ENGINE_GLOBAL_INDEX), graph);
  descriptor.put(CUDNN_ATTR_ENGINE_NUMERICAL_NOTE, CUDNN_TYPE_NUMERICAL_NOTE, engine.numerical);
  descriptor.put(CUDNN_ATTR_ENGINE_BEHAVIOR_NOTE, CUDNN_TYPE_BEHAVIOR_NOTE, engine.behaviour);
}

/// The descriptor of one offered engine, as the program would make it itself.
DescriptorCopy configuration_of(const DescriptorCopy& graph, const Engine& engine) {
  Descriptor made{.type = CUDNN_BACKEND_ENGINE_DESCRIPTOR, .finalized = false, .values = {}};
  made.put_descriptors(CUDNN_ATTR_ENGINE_OPERATION_GRAPH, {graph});
  made.put(CUDNN_ATTR_ENGINE_GLOBAL_INDEX, CUDNN_TYPE_INT64, std::vector<int64_t>{engine.index});
  finalize(made);
  Descriptor configuration{.type = CUDNN_BACKEND_ENGINECFG_DESCRIPTOR, .finalized = false, .values = {}};
  configuration.put_descriptors(CUDNN_ATTR_ENGINECFG_ENGINE, {std::make_shared<const Descriptor>(made)});
  finalize(configuration);
  return std::make_shared<const Descriptor>(configuration);
}

void find_plans(Descriptor& heuristic) {
  const auto mode = heuristic.value<cudnnBackendHeurMode_t>(CUDNN_ATTR_ENGINEHEUR_MODE);
  expect(mode == CUDNN_HEUR_MODE_A || mode == CUDNN_HEUR_MODE_FALLBACK, CUDNN_STATUS_NOT_SUPPORTED,
         "heuristic: mode: expected CUDNN_HEUR_MODE_A or CUDNN_HEUR_MODE_FALLBACK, got {}", static_cast<int>(mode));
  const DescriptorCopy graph = heuristic.values.at(CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH).descriptors.front();
  expect(graph->has(CUDNN_ATTR_OPERATIONGRAPH_HANDLE) || heuristic.has(CUDNN_ATTR_ENGINEHEUR_DEVICEPROP), kBad,
         "heuristic: expected a graph with CUDNN_ATTR_OPERATIONGRAPH_HANDLE, or CUDNN_ATTR_ENGINEHEUR_DEVICEPROP");
  std::vector<DescriptorCopy> found;
  for (const Engine* const engine : offered(understand(*graph), mode)) {
    found.push_back(configuration_of(graph, *engine));
  }
  heuristic.put_descriptors(CUDNN_ATTR_ENGINEHEUR_RESULTS, found);
}

void find_workspace(Descriptor& plan) {
  const bool on_device = plan.value<cudnnHandle_t>(CUDNN_ATTR_EXECUTION_PLAN_HANDLE, nullptr) != nullptr;
  expect(on_device || plan.has(CUDNN_ATTR_EXECUTION_PLAN_DEVICEPROP), kBad,
         "plan: expected CUDNN_ATTR_EXECUTION_PLAN_HANDLE or CUDNN_ATTR_EXECUTION_PLAN_DEVICEPROP");
  const Descriptor& engine =
      plan.descriptor(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG).descriptor(CUDNN_ATTR_ENGINECFG_ENGINE);
  const ConvolutionGraph graph = understand(engine.descriptor(CUDNN_ATTR_ENGINE_OPERATION_GRAPH));
  const Engine& way = engine_of(engine.value<int64_t>(CUDNN_ATTR_ENGINE_GLOBAL_INDEX), graph);
  expect(!way.refused_late, CUDNN_STATUS_NOT_SUPPORTED, "plan: engine {} ({}) refuses {}", way.index, way.text,
         graph.text());
  const auto compiled = std::find(way.behaviour.begin(), way.behaviour.end(),
                                  CUDNN_BEHAVIOR_NOTE_RUNTIME_COMPILATION) != way.behaviour.end();
  expect(on_device || !compiled, CUDNN_STATUS_NOT_SUPPORTED_RUNTIME_PREREQUISITE_MISSING,
         "plan: engine {} ({}) needs a device", way.index, way.text);
  plan.put(CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE, CUDNN_TYPE_INT64, std::vector<int64_t>{way.workspace(graph)});
}

void check_pack(const Descriptor& pack) {
  const auto ids = pack.list<int64_t>(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS);
  const auto pointers = pack.list<void*>(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS);
  expect(ids.size() == pointers.size(), kBad, "variant pack: data pointers: expected {}, one for each id, got {}",
         ids.size(), pointers.size());
  std::set<int64_t> seen;
  for (const int64_t id : ids) {
    expect(seen.insert(id).second, CUDNN_STATUS_BAD_PARAM_DUPLICATED_ENTRIES,
           "variant pack: unique ids: expected each once, got {} twice", id);
  }
}

void check_properties(const Descriptor& properties) {
  const auto json = properties.list<char>(CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION);
  expect(json.size() > 2 && json.front() == '{' && json.back() == '\0', kBad,
         "device properties: expected an object of JSON with its closing 0");
}

}  // namespace

void finalize(Descriptor& descriptor) {
  check_complete(descriptor);
  switch (descriptor.type) {
    case CUDNN_BACKEND_TENSOR_DESCRIPTOR: check_tensor(descriptor); break;
    case CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR: check_convolution(descriptor); break;
    case CUDNN_BACKEND_POINTWISE_DESCRIPTOR: check_pointwise(descriptor); break;
    case CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR: check_graph(descriptor); break;
    case CUDNN_BACKEND_ENGINE_DESCRIPTOR: find_notes(descriptor); break;
    case CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR: find_plans(descriptor); break;
    case CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR: find_workspace(descriptor); break;
    case CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR: check_pack(descriptor); break;
    case CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR: check_properties(descriptor); break;
    default:
      if (is_operation(descriptor.type)) {
        check_operation(descriptor);
      }
  }
  descriptor.finalized = true;
}

}  // namespace virtual_gpu
