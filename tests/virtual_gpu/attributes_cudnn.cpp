#include "virtual_gpu/attributes_cudnn.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

namespace virtual_gpu {

namespace {

using Use = AttributeRule::Use;

// The header's names are needed as text, which only the preprocessor makes.
#define NAMED(name) name, #name

struct TypeOfValue {
  cudnnBackendAttributeType_t type;
  const char* text;
  int64_t bytes;
};

constexpr TypeOfValue kTypes[] = {
    {NAMED(CUDNN_TYPE_HANDLE), sizeof(cudnnHandle_t)},
    {NAMED(CUDNN_TYPE_DATA_TYPE), sizeof(cudnnDataType_t)},
    {NAMED(CUDNN_TYPE_BOOLEAN), sizeof(bool)},
    {NAMED(CUDNN_TYPE_INT64), sizeof(int64_t)},
    {NAMED(CUDNN_TYPE_FLOAT), sizeof(float)},
    {NAMED(CUDNN_TYPE_DOUBLE), sizeof(double)},
    {NAMED(CUDNN_TYPE_VOID_PTR), sizeof(void*)},
    {NAMED(CUDNN_TYPE_CONVOLUTION_MODE), sizeof(cudnnConvolutionMode_t)},
    {NAMED(CUDNN_TYPE_HEUR_MODE), sizeof(cudnnBackendHeurMode_t)},
    {NAMED(CUDNN_TYPE_NUMERICAL_NOTE), sizeof(cudnnBackendNumericalNote_t)},
    {NAMED(CUDNN_TYPE_POINTWISE_MODE), sizeof(cudnnPointwiseMode_t)},
    {NAMED(CUDNN_TYPE_BACKEND_DESCRIPTOR), sizeof(cudnnBackendDescriptor_t)},
    {NAMED(CUDNN_TYPE_BEHAVIOR_NOTE), sizeof(cudnnBackendBehaviorNote_t)},
    {NAMED(CUDNN_TYPE_INT32), sizeof(int32_t)},
    {NAMED(CUDNN_TYPE_CHAR), sizeof(char)},
};

struct TypeOfDescriptor {
  cudnnBackendDescriptorType_t type;
  const char* text;
};

constexpr TypeOfDescriptor kDescriptors[] = {
    {NAMED(CUDNN_BACKEND_POINTWISE_DESCRIPTOR)},
    {NAMED(CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR)},
    {NAMED(CUDNN_BACKEND_ENGINE_DESCRIPTOR)},
    {NAMED(CUDNN_BACKEND_ENGINECFG_DESCRIPTOR)},
    {NAMED(CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR)},
    {NAMED(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR)},
    {NAMED(CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR)},
    {NAMED(CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR)},
    {NAMED(CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR)},
    {NAMED(CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR)},
    {NAMED(CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR)},
    {NAMED(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR)},
    {NAMED(CUDNN_BACKEND_TENSOR_DESCRIPTOR)},
    {NAMED(CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR)},
};

constexpr int64_t kMostAxes = 8;
constexpr int64_t kMany = int64_t{1} << 20;
constexpr auto kTensor = CUDNN_BACKEND_TENSOR_DESCRIPTOR;
constexpr auto kConvolution = CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR;
constexpr auto kPointwise = CUDNN_BACKEND_POINTWISE_DESCRIPTOR;
constexpr auto kForward = CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR;
constexpr auto kBackwardData = CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR;
constexpr auto kBackwardFilter = CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR;
constexpr auto kAdd = CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR;
constexpr auto kGraph = CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR;
constexpr auto kHeuristic = CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR;
constexpr auto kEngine = CUDNN_BACKEND_ENGINE_DESCRIPTOR;
constexpr auto kConfiguration = CUDNN_BACKEND_ENGINECFG_DESCRIPTOR;
constexpr auto kKnob = CUDNN_BACKEND_KNOB_CHOICE_DESCRIPTOR;
constexpr auto kPlan = CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR;
constexpr auto kPack = CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR;
constexpr auto kProperties = CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR;
constexpr auto kRefers = CUDNN_TYPE_BACKEND_DESCRIPTOR;

/// The rules of one kind of descriptor stand together: rules_of() relies on it.
constexpr AttributeRule kRules[] = {
    {kTensor, NAMED(CUDNN_ATTR_TENSOR_DATA_TYPE), CUDNN_TYPE_DATA_TYPE, Use::kRequired},
    {kTensor, NAMED(CUDNN_ATTR_TENSOR_DIMENSIONS), CUDNN_TYPE_INT64, Use::kRequired, kMostAxes},
    {kTensor, NAMED(CUDNN_ATTR_TENSOR_STRIDES), CUDNN_TYPE_INT64, Use::kRequired, kMostAxes},
    {kTensor, NAMED(CUDNN_ATTR_TENSOR_UNIQUE_ID), CUDNN_TYPE_INT64, Use::kRequired},
    {kTensor, NAMED(CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT), CUDNN_TYPE_INT64, Use::kRequired},
    {kTensor, NAMED(CUDNN_ATTR_TENSOR_IS_VIRTUAL), CUDNN_TYPE_BOOLEAN, Use::kOptional},

    {kConvolution, NAMED(CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS), CUDNN_TYPE_INT64, Use::kRequired},
    {kConvolution, NAMED(CUDNN_ATTR_CONVOLUTION_COMP_TYPE), CUDNN_TYPE_DATA_TYPE, Use::kRequired},
    {kConvolution, NAMED(CUDNN_ATTR_CONVOLUTION_CONV_MODE), CUDNN_TYPE_CONVOLUTION_MODE, Use::kRequired},
    {kConvolution, NAMED(CUDNN_ATTR_CONVOLUTION_DILATIONS), CUDNN_TYPE_INT64, Use::kRequired, kMostAxes},
    {kConvolution, NAMED(CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES), CUDNN_TYPE_INT64, Use::kRequired, kMostAxes},
    {kConvolution, NAMED(CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS), CUDNN_TYPE_INT64, Use::kRequired, kMostAxes},
    {kConvolution, NAMED(CUDNN_ATTR_CONVOLUTION_POST_PADDINGS), CUDNN_TYPE_INT64, Use::kRequired, kMostAxes},

    {kPointwise, NAMED(CUDNN_ATTR_POINTWISE_MODE), CUDNN_TYPE_POINTWISE_MODE, Use::kRequired},
    {kPointwise, NAMED(CUDNN_ATTR_POINTWISE_MATH_PREC), CUDNN_TYPE_DATA_TYPE, Use::kRequired},

    {kForward, NAMED(CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC), kRefers, Use::kRequired, 1, kConvolution},
    {kForward, NAMED(CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X), kRefers, Use::kRequired, 1, kTensor},
    {kForward, NAMED(CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W), kRefers, Use::kRequired, 1, kTensor},
    {kForward, NAMED(CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y), kRefers, Use::kRequired, 1, kTensor},
    {kForward, NAMED(CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA), CUDNN_TYPE_DOUBLE, Use::kRequired, 1,
     std::nullopt, true},
    {kForward, NAMED(CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA), CUDNN_TYPE_DOUBLE, Use::kRequired, 1, std::nullopt,
     true},

    {kBackwardData, NAMED(CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC), kRefers, Use::kRequired, 1,
     kConvolution},
    {kBackwardData, NAMED(CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX), kRefers, Use::kRequired, 1, kTensor},
    {kBackwardData, NAMED(CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W), kRefers, Use::kRequired, 1, kTensor},
    {kBackwardData, NAMED(CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY), kRefers, Use::kRequired, 1, kTensor},
    {kBackwardData, NAMED(CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_ALPHA), CUDNN_TYPE_DOUBLE, Use::kRequired, 1,
     std::nullopt, true},
    {kBackwardData, NAMED(CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_BETA), CUDNN_TYPE_DOUBLE, Use::kRequired, 1,
     std::nullopt, true},

    {kBackwardFilter, NAMED(CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_CONV_DESC), kRefers, Use::kRequired, 1,
     kConvolution},
    {kBackwardFilter, NAMED(CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_X), kRefers, Use::kRequired, 1, kTensor},
    {kBackwardFilter, NAMED(CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW), kRefers, Use::kRequired, 1, kTensor},
    {kBackwardFilter, NAMED(CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DY), kRefers, Use::kRequired, 1, kTensor},
    {kBackwardFilter, NAMED(CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_ALPHA), CUDNN_TYPE_DOUBLE, Use::kRequired, 1,
     std::nullopt, true},
    {kBackwardFilter, NAMED(CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_BETA), CUDNN_TYPE_DOUBLE, Use::kRequired, 1,
     std::nullopt, true},

    {kAdd, NAMED(CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR), kRefers, Use::kRequired, 1, kPointwise},
    {kAdd, NAMED(CUDNN_ATTR_OPERATION_POINTWISE_XDESC), kRefers, Use::kRequired, 1, kTensor},
    {kAdd, NAMED(CUDNN_ATTR_OPERATION_POINTWISE_BDESC), kRefers, Use::kRequired, 1, kTensor},
    {kAdd, NAMED(CUDNN_ATTR_OPERATION_POINTWISE_YDESC), kRefers, Use::kRequired, 1, kTensor},

    {kGraph, NAMED(CUDNN_ATTR_OPERATIONGRAPH_OPS), kRefers, Use::kRequired, kMany},
    {kGraph, NAMED(CUDNN_ATTR_OPERATIONGRAPH_HANDLE), CUDNN_TYPE_HANDLE, Use::kOptional},

    {kHeuristic, NAMED(CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH), kRefers, Use::kRequired, 1, kGraph},
    {kHeuristic, NAMED(CUDNN_ATTR_ENGINEHEUR_MODE), CUDNN_TYPE_HEUR_MODE, Use::kRequired},
    {kHeuristic, NAMED(CUDNN_ATTR_ENGINEHEUR_DEVICEPROP), kRefers, Use::kOptional, 1, kProperties},
    {kHeuristic, NAMED(CUDNN_ATTR_ENGINEHEUR_RESULTS), kRefers, Use::kRead, kMany, kConfiguration},

    {kEngine, NAMED(CUDNN_ATTR_ENGINE_OPERATION_GRAPH), kRefers, Use::kRequired, 1, kGraph},
    {kEngine, NAMED(CUDNN_ATTR_ENGINE_GLOBAL_INDEX), CUDNN_TYPE_INT64, Use::kRequired},
    {kEngine, NAMED(CUDNN_ATTR_ENGINE_NUMERICAL_NOTE), CUDNN_TYPE_NUMERICAL_NOTE, Use::kRead, kMany},
    {kEngine, NAMED(CUDNN_ATTR_ENGINE_BEHAVIOR_NOTE), CUDNN_TYPE_BEHAVIOR_NOTE, Use::kRead, kMany},

    {kConfiguration, NAMED(CUDNN_ATTR_ENGINECFG_ENGINE), kRefers, Use::kRequired, 1, kEngine},
    {kConfiguration, NAMED(CUDNN_ATTR_ENGINECFG_KNOB_CHOICES), kRefers, Use::kRead, kMany, kKnob},

    {kKnob, NAMED(CUDNN_ATTR_KNOB_CHOICE_KNOB_TYPE), CUDNN_TYPE_KNOB_TYPE, Use::kRequired},
    {kKnob, NAMED(CUDNN_ATTR_KNOB_CHOICE_KNOB_VALUE), CUDNN_TYPE_INT64, Use::kRequired},

    {kPlan, NAMED(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG), kRefers, Use::kRequired, 1, kConfiguration},
    {kPlan, NAMED(CUDNN_ATTR_EXECUTION_PLAN_HANDLE), CUDNN_TYPE_HANDLE, Use::kOptional},
    {kPlan, NAMED(CUDNN_ATTR_EXECUTION_PLAN_DEVICEPROP), kRefers, Use::kOptional, 1, kProperties},
    {kPlan, NAMED(CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE), CUDNN_TYPE_INT64, Use::kRead},

    {kPack, NAMED(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS), CUDNN_TYPE_INT64, Use::kRequired, kMany},
    {kPack, NAMED(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS), CUDNN_TYPE_VOID_PTR, Use::kRequired, kMany},
    {kPack, NAMED(CUDNN_ATTR_VARIANT_PACK_WORKSPACE), CUDNN_TYPE_VOID_PTR, Use::kOptional},

    {kProperties, NAMED(CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION), CUDNN_TYPE_CHAR, Use::kRequired, kMany},
};

#undef NAMED

template <class Table, class Type>
const auto* find_type(const Table& table, Type type) {
  const auto* const found =
      std::find_if(std::begin(table), std::end(table), [&](const auto& one) { return one.type == type; });
  return found == std::end(table) ? nullptr : found;
}

}  // namespace

const AttributeRule* find_rule(cudnnBackendDescriptorType_t owner, cudnnBackendAttributeName_t name) {
  const auto* const found = std::find_if(std::begin(kRules), std::end(kRules), [&](const AttributeRule& rule) {
    return rule.owner == owner && rule.name == name;
  });
  return found == std::end(kRules) ? nullptr : found;
}

std::span<const AttributeRule> rules_of(cudnnBackendDescriptorType_t owner) {
  const auto owned = [&](const AttributeRule& rule) { return rule.owner == owner; };
  const auto* const first = std::find_if(std::begin(kRules), std::end(kRules), owned);
  return {first, std::find_if_not(first, std::end(kRules), owned)};
}

std::string text_of(cudnnBackendDescriptorType_t type) {
  const auto* const found = find_type(kDescriptors, type);
  return found != nullptr ? found->text : fmt::format("descriptor type {}", static_cast<int>(type));
}

std::string text_of(cudnnBackendAttributeType_t type) {
  const auto* const found = find_type(kTypes, type);
  return found != nullptr ? found->text : fmt::format("attribute type {}", static_cast<int>(type));
}

int64_t bytes_of(cudnnBackendAttributeType_t type) {
  const auto* const found = find_type(kTypes, type);
  return found != nullptr ? found->bytes : 0;
}

bool is_operation(cudnnBackendDescriptorType_t type) {
  return type == kForward || type == kBackwardData || type == kBackwardFilter || type == kAdd;
}

}  // namespace virtual_gpu
