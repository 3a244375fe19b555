#pragma once

#include "virtual_gpu/convolution.h"
#include "virtual_gpu/graph_cudnn.h"
#include "virtual_gpu/test_library.h"

#include <cudnn.h>

#include <array>
#include <memory>
#include <string>
#include <vector>

// A program that computes convolutions with cuDNN, for tests of its stand-in.

namespace virtual_gpu::test {

/// What cuDNN said last.
inline std::string cudnn_text() {
  std::array<char, 1024> text{};
  cudnnGetLastErrorString(text.data(), text.size());
  return text.data();
}

template <class T>
constexpr cudnnBackendAttributeType_t type_of_value();
template <>
constexpr cudnnBackendAttributeType_t type_of_value<int64_t>() {
  return CUDNN_TYPE_INT64;
}
template <>
constexpr cudnnBackendAttributeType_t type_of_value<double>() {
  return CUDNN_TYPE_DOUBLE;
}
template <>
constexpr cudnnBackendAttributeType_t type_of_value<float>() {
  return CUDNN_TYPE_FLOAT;
}
template <>
constexpr cudnnBackendAttributeType_t type_of_value<bool>() {
  return CUDNN_TYPE_BOOLEAN;
}
template <>
constexpr cudnnBackendAttributeType_t type_of_value<void*>() {  // also a descriptor: set() tells them apart
  return CUDNN_TYPE_VOID_PTR;
}
template <>
constexpr cudnnBackendAttributeType_t type_of_value<cudnnHandle_t>() {
  return CUDNN_TYPE_HANDLE;
}
template <>
constexpr cudnnBackendAttributeType_t type_of_value<cudnnDataType_t>() {
  return CUDNN_TYPE_DATA_TYPE;
}
template <>
constexpr cudnnBackendAttributeType_t type_of_value<cudnnConvolutionMode_t>() {
  return CUDNN_TYPE_CONVOLUTION_MODE;
}
template <>
constexpr cudnnBackendAttributeType_t type_of_value<cudnnPointwiseMode_t>() {
  return CUDNN_TYPE_POINTWISE_MODE;
}
template <>
constexpr cudnnBackendAttributeType_t type_of_value<cudnnBackendHeurMode_t>() {
  return CUDNN_TYPE_HEUR_MODE;
}

/// A descriptor. It keeps the first answer that was not a success, so that a test looks once.
class Made {
 public:
  explicit Made(cudnnBackendDescriptorType_t type) { keep(cudnnBackendCreateDescriptor(type, &descriptor_)); }
  ~Made() {
    if (descriptor_ != nullptr) {
      cudnnBackendDestroyDescriptor(descriptor_);
    }
  }
  Made(Made&& other) noexcept
      : descriptor_(std::exchange(other.descriptor_, nullptr)), status_(other.status_), text_(other.text_) {}
  Made& operator=(Made&& other) noexcept {
    std::swap(descriptor_, other.descriptor_);
    status_ = other.status_;
    text_ = other.text_;
    return *this;
  }

  template <class T>
  Made& set(cudnnBackendAttributeName_t name, const std::vector<T>& values) {
    return keep(cudnnBackendSetAttribute(descriptor_, name, type_of_value<T>(), static_cast<int64_t>(values.size()),
                                         values.data()));
  }
  template <class T>
  Made& set(cudnnBackendAttributeName_t name, const T& value) {
    return keep(cudnnBackendSetAttribute(descriptor_, name, type_of_value<T>(), 1, &value));
  }
  Made& refer(cudnnBackendAttributeName_t name, const std::vector<cudnnBackendDescriptor_t>& values) {
    return keep(cudnnBackendSetAttribute(descriptor_, name, CUDNN_TYPE_BACKEND_DESCRIPTOR,
                                         static_cast<int64_t>(values.size()), values.data()));
  }
  Made& refer(cudnnBackendAttributeName_t name, const Made& value) {
    return refer(name, std::vector<cudnnBackendDescriptor_t>{value.get()});
  }
  Made& finalize() { return keep(cudnnBackendFinalize(descriptor_)); }

  [[nodiscard]] cudnnBackendDescriptor_t get() const { return descriptor_; }
  [[nodiscard]] cudnnStatus_t status() const { return status_; }
  /// The text of status(), "" for a success.
  [[nodiscard]] const std::string& text() const { return text_; }

 private:
  Made& keep(cudnnStatus_t status) {
    if (status != CUDNN_STATUS_SUCCESS && status_ == CUDNN_STATUS_SUCCESS) {
      status_ = status;
      text_ = cudnn_text();
    }
    return *this;
  }

  cudnnBackendDescriptor_t descriptor_ = nullptr;
  cudnnStatus_t status_ = CUDNN_STATUS_SUCCESS;
  std::string text_;
};

inline cudnnDataType_t cudnn_type(NumberType type) {
  switch (type) {
    case NumberType::kFloat64: return CUDNN_DATA_DOUBLE;
    case NumberType::kFloat32: return CUDNN_DATA_FLOAT;
    case NumberType::kFloat16: return CUDNN_DATA_HALF;
    default: return CUDNN_DATA_BFLOAT16;
  }
}

inline std::vector<int64_t> strides_of(const std::vector<int64_t>& sizes, bool channels_last) {
  const int64_t c = sizes[1], h = sizes[2], w = sizes[3];
  return channels_last ? std::vector<int64_t>{c * h * w, 1, w * c, c} : std::vector<int64_t>{c * h * w, h * w, w, 1};
}

/// A tensor before its finalize().
inline Made tensor(int64_t id, NumberType type, const std::vector<int64_t>& sizes, const std::vector<int64_t>& strides,
                   int64_t alignment = 16) {
  Made made(CUDNN_BACKEND_TENSOR_DESCRIPTOR);
  made.set(CUDNN_ATTR_TENSOR_DATA_TYPE, cudnn_type(type))
      .set(CUDNN_ATTR_TENSOR_DIMENSIONS, sizes)
      .set(CUDNN_ATTR_TENSOR_STRIDES, strides)
      .set(CUDNN_ATTR_TENSOR_UNIQUE_ID, id)
      .set(CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, alignment);
  return made;
}

/// A convolution of the tests.
struct ConvolutionCase {
  NumberType type = NumberType::kFloat32;
  ConvolutionPass pass = ConvolutionPass::kForward;
  Convolution shape = {
      .n = 2, .c = 8, .h = 7, .w = 6, .o = 16, .kh = 3, .kw = 3, .oh = 7, .ow = 6, .padding_h = 1, .padding_w = 1};
  bool channels_last = false;
  bool weight_channels_last = false;
  bool bias = false;
  double alpha = 1;
  double beta = 0;

  [[nodiscard]] std::vector<int64_t> x_sizes() const { return {shape.n, shape.c, shape.h, shape.w}; }
  [[nodiscard]] std::vector<int64_t> w_sizes() const { return {shape.o, shape.c / shape.groups, shape.kh, shape.kw}; }
  [[nodiscard]] std::vector<int64_t> y_sizes() const { return {shape.n, shape.o, shape.oh, shape.ow}; }
  [[nodiscard]] NumberType sums() const {
    return type == NumberType::kFloat64 ? NumberType::kFloat64 : NumberType::kFloat32;
  }
};

constexpr int64_t kX = 1, kW = 2, kY = 3, kBias = 4, kSum = 5;

/// A convolution before its finalize().
inline Made convolution(const ConvolutionCase& of) {
  Made made(CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR);
  const std::vector<int64_t> padding = {of.shape.padding_h, of.shape.padding_w};
  made.set(CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, int64_t{2})
      .set(CUDNN_ATTR_CONVOLUTION_COMP_TYPE, cudnn_type(of.sums()))
      .set(CUDNN_ATTR_CONVOLUTION_CONV_MODE, CUDNN_CROSS_CORRELATION)
      .set(CUDNN_ATTR_CONVOLUTION_DILATIONS, std::vector<int64_t>{of.shape.dilation_h, of.shape.dilation_w})
      .set(CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, std::vector<int64_t>{of.shape.stride_h, of.shape.stride_w})
      .set(CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, padding)
      .set(CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, padding);
  return made;
}

/// An operation of a pass before its finalize().
inline Made operation(const ConvolutionCase& of, const Made& convolution, const Made& x, const Made& w, const Made& y) {
  constexpr std::array<cudnnBackendDescriptorType_t, 3> kTypes = {
      CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR,
      CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR,
      CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR};
  struct Names {
    cudnnBackendAttributeName_t convolution, x, w, y, alpha, beta;
  };
  constexpr std::array<Names, 3> kNames = {
      {{CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X,
        CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y,
        CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA},
       {CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX,
        CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY,
        CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_ALPHA, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_BETA},
       {CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_CONV_DESC, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_X,
        CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DY,
        CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_ALPHA, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_BETA}}};
  const auto which = static_cast<size_t>(of.pass);
  const Names& names = kNames[which];
  Made made(kTypes[which]);
  made.refer(names.convolution, convolution).refer(names.x, x).refer(names.w, w).refer(names.y, y);
  if (of.sums() == NumberType::kFloat64) {
    made.set(names.alpha, of.alpha).set(names.beta, of.beta);
  } else {
    made.set(names.alpha, static_cast<float>(of.alpha)).set(names.beta, static_cast<float>(of.beta));
  }
  return made;
}

/// An addition before its finalize().
inline Made addition(const ConvolutionCase& of, const Made& x, const Made& b, const Made& y) {
  Made function(CUDNN_BACKEND_POINTWISE_DESCRIPTOR);
  function.set(CUDNN_ATTR_POINTWISE_MODE, CUDNN_POINTWISE_ADD)
      .set(CUDNN_ATTR_POINTWISE_MATH_PREC, cudnn_type(of.sums()))
      .finalize();
  Made made(CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR);
  made.refer(CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, function)
      .refer(CUDNN_ATTR_OPERATION_POINTWISE_XDESC, x)
      .refer(CUDNN_ATTR_OPERATION_POINTWISE_BDESC, b)
      .refer(CUDNN_ATTR_OPERATION_POINTWISE_YDESC, y);
  return made;
}

/// The handle of all tests.
inline cudnnHandle_t handle() {
  static const cudnnHandle_t made = [] {
    cudnnHandle_t result = nullptr;
    REQUIRE(cudnnCreate(&result) == CUDNN_STATUS_SUCCESS);
    return result;
  }();
  return made;
}

/// A graph of these operations before its finalize().
inline Made graph_of(const std::vector<cudnnBackendDescriptor_t>& operations) {
  Made made(CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
  made.refer(CUDNN_ATTR_OPERATIONGRAPH_OPS, operations).set(CUDNN_ATTR_OPERATIONGRAPH_HANDLE, handle());
  return made;
}

/// The finalized graph of a case.
inline Made graph_of(const ConvolutionCase& of) {
  const auto layout = [](const std::vector<int64_t>& sizes, bool last) { return strides_of(sizes, last); };
  Made x = tensor(kX, of.type, of.x_sizes(), layout(of.x_sizes(), of.channels_last));
  Made w = tensor(kW, of.type, of.w_sizes(), layout(of.w_sizes(), of.weight_channels_last));
  Made y = tensor(kY, of.type, of.y_sizes(), layout(of.y_sizes(), of.channels_last));
  Made bias = tensor(kBias, of.type, {1, of.shape.o, 1, 1}, {of.shape.o, 1, 1, 1});
  Made sum = tensor(kSum, of.sums(), of.y_sizes(), layout(of.y_sizes(), of.channels_last));
  sum.set(CUDNN_ATTR_TENSOR_IS_VIRTUAL, true);
  for (Made* one : {&x, &w, &y, &bias, &sum}) {
    one->finalize();
    REQUIRE(one->text() == "");
  }
  Made shape = convolution(of);
  shape.finalize();
  Made made = operation(of, shape, x, w, of.bias ? sum : y);
  made.finalize();
  REQUIRE(made.text() == "");
  std::vector<cudnnBackendDescriptor_t> operations = {made.get()};
  Made plus = addition(of, sum, bias, y);
  if (of.bias) {
    plus.finalize();
    operations.push_back(plus.get());
  }
  Made graph = graph_of(operations);
  graph.finalize();
  REQUIRE(graph.text() == "");
  return graph;
}

/// The finalized plan of one engine; its text tells why there is none.
inline Made plan_of(const Made& graph, int64_t engine) {
  Made chosen(CUDNN_BACKEND_ENGINE_DESCRIPTOR);
  chosen.refer(CUDNN_ATTR_ENGINE_OPERATION_GRAPH, graph).set(CUDNN_ATTR_ENGINE_GLOBAL_INDEX, engine).finalize();
  REQUIRE(chosen.text() == "");
  Made configuration(CUDNN_BACKEND_ENGINECFG_DESCRIPTOR);
  configuration.refer(CUDNN_ATTR_ENGINECFG_ENGINE, chosen).finalize();
  Made plan(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR);
  plan.refer(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, configuration)
      .set(CUDNN_ATTR_EXECUTION_PLAN_HANDLE, handle())
      .finalize();
  return plan;
}

inline int64_t workspace_of(const Made& plan) {
  int64_t bytes = -1;
  int64_t count = 0;
  REQUIRE(cudnnBackendGetAttribute(plan.get(), CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE, CUDNN_TYPE_INT64, 1, &count,
                                   &bytes) == CUDNN_STATUS_SUCCESS);
  return bytes;
}

/// A variant pack before its finalize().
inline Made pack_of(const std::vector<int64_t>& ids, const std::vector<void*>& pointers, void* workspace) {
  Made pack(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR);
  pack.set(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, ids)
      .set(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, pointers)
      .set(CUDNN_ATTR_VARIANT_PACK_WORKSPACE, workspace);
  return pack;
}

constexpr int64_t kDirect = 28;  // an engine without notes and workspace

}  // namespace virtual_gpu::test
