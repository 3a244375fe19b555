#include "virtual_gpu/graph_cudnn.h"

#include "virtual_gpu/operand.h"
#include "virtual_gpu/refusal.h"

#include <algorithm>
#include <map>
#include <tuple>
#include <utility>

namespace virtual_gpu {

namespace {

constexpr cudnnStatus_t kBad = CUDNN_STATUS_BAD_PARAM;
constexpr cudnnStatus_t kShape = CUDNN_STATUS_BAD_PARAM_SHAPE_MISMATCH;

NumberType number_type(const std::string& owner, cudnnDataType_t type) {
  switch (type) {
    case CUDNN_DATA_DOUBLE: return NumberType::kFloat64;
    case CUDNN_DATA_FLOAT: return NumberType::kFloat32;
    case CUDNN_DATA_HALF: return NumberType::kFloat16;
    case CUDNN_DATA_BFLOAT16: return NumberType::kBfloat16;
    default:
      refuse(CUDNN_STATUS_NOT_SUPPORTED_DATA_TYPE,
             "{}: data type: expected double, float, half or bfloat16, got cudnnDataType_t {}", owner,
             static_cast<int>(type));
  }
}

GraphTensor tensor_of(const Descriptor& tensor, std::string role) {
  return {.role = std::move(role),
          .id = tensor.value<int64_t>(CUDNN_ATTR_TENSOR_UNIQUE_ID),
          .type = number_type("tensor", tensor.value<cudnnDataType_t>(CUDNN_ATTR_TENSOR_DATA_TYPE)),
          .sizes = tensor.list<int64_t>(CUDNN_ATTR_TENSOR_DIMENSIONS),
          .strides = tensor.list<int64_t>(CUDNN_ATTR_TENSOR_STRIDES),
          .alignment = tensor.value<int64_t>(CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT),
          .is_virtual = tensor.value<bool>(CUDNN_ATTR_TENSOR_IS_VIRTUAL, false)};
}

/// cuDNN's names of the attributes of a pass.
struct PassNames {
  cudnnBackendDescriptorType_t operation;
  ConvolutionPass pass;
  const char* text;
  cudnnBackendAttributeName_t convolution, x, w, y, alpha, beta;
};

constexpr PassNames kPasses[] = {
    {.operation = CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR,
     .pass = ConvolutionPass::kForward,
     .text = "convolution forward",
     .convolution = CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC,
     .x = CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X,
     .w = CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W,
     .y = CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y,
     .alpha = CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA,
     .beta = CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA},
    {.operation = CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR,
     .pass = ConvolutionPass::kDataGradient,
     .text = "convolution data gradient",
     .convolution = CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC,
     .x = CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX,
     .w = CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W,
     .y = CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY,
     .alpha = CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_ALPHA,
     .beta = CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_BETA},
    {.operation = CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR,
     .pass = ConvolutionPass::kFilterGradient,
     .text = "convolution filter gradient",
     .convolution = CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_CONV_DESC,
     .x = CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_X,
     .w = CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW,
     .y = CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DY,
     .alpha = CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_ALPHA,
     .beta = CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_BETA},
};

/// nullptr for an operation that is no convolution.
const PassNames* names_of(cudnnBackendDescriptorType_t operation) {
  const auto* const found =
      std::find_if(std::begin(kPasses), std::end(kPasses), [&](const auto& one) { return one.operation == operation; });
  return found == std::end(kPasses) ? nullptr : found;
}

/// alpha or beta for tensors of type `numbers`. cuDNN takes either type; but cuDNN 9.19 on an H100 has engines for
/// float32 that read the first four bytes of a double, which are 0 for 1.0.
double factor(const Descriptor& operation, cudnnBackendAttributeName_t name, const char* text, NumberType numbers) {
  const cudnnBackendAttributeType_t wanted = numbers == NumberType::kFloat64 ? CUDNN_TYPE_DOUBLE : CUDNN_TYPE_FLOAT;
  const cudnnBackendAttributeType_t type = operation.values.at(name).type;
  expect(type == wanted, CUDNN_STATUS_BAD_PARAM_ATTRIBUTE_TYPE, "{}: alpha and beta: expected {} for {}, got {}", text,
         text_of(wanted), name_of(numbers), text_of(type));
  return type == CUDNN_TYPE_FLOAT ? static_cast<double>(operation.value<float>(name)) : operation.value<double>(name);
}

/// One convolution of a graph, without what follows it.
ConvolutionGraph convolution_of(const Descriptor& operation, const PassNames& names) {
  const Descriptor& convolution = operation.descriptor(names.convolution);
  ConvolutionGraph graph;
  graph.pass = names.pass;
  graph.x = tensor_of(operation.descriptor(names.x), "x");
  graph.w = tensor_of(operation.descriptor(names.w), "w");
  graph.y = tensor_of(operation.descriptor(names.y), "y");
  graph.compute = number_type(names.text, convolution.value<cudnnDataType_t>(CUDNN_ATTR_CONVOLUTION_COMP_TYPE));
  graph.alpha = factor(operation, names.alpha, names.text, graph.x.type);
  graph.beta = factor(operation, names.beta, names.text, graph.x.type);
  const auto strides = convolution.list<int64_t>(CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES);
  const auto padding = convolution.list<int64_t>(CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS);
  const auto dilations = convolution.list<int64_t>(CUDNN_ATTR_CONVOLUTION_DILATIONS);
  const auto& [x, w, y] = std::tie(graph.x.sizes, graph.w.sizes, graph.y.sizes);
  expect(strides.size() == 2 && x.size() == 4 && w.size() == 4 && y.size() == 4, CUDNN_STATUS_NOT_SUPPORTED_SHAPE,
         "{}: expected 2 spatial axes, got {}", names.text, strides.size());
  graph.shape = {.n = x[0],
                 .c = x[1],
                 .h = x[2],
                 .w = x[3],
                 .o = w[0],
                 .kh = w[2],
                 .kw = w[3],
                 .oh = y[2],
                 .ow = y[3],
                 .stride_h = strides[0],
                 .stride_w = strides[1],
                 .padding_h = padding[0],
                 .padding_w = padding[1],
                 .dilation_h = dilations[0],
                 .dilation_w = dilations[1],
                 .groups = x[1] / w[1]};
  return graph;
}

void check_convolution_operation(const Descriptor& operation, const PassNames& names) {
  const Descriptor& convolution = operation.descriptor(names.convolution);
  const ConvolutionGraph graph = convolution_of(operation, names);
  const auto& [x, w, y] = std::tie(graph.x.sizes, graph.w.sizes, graph.y.sizes);
  expect(x[1] % w[1] == 0, kShape, "{}: x: expected a multiple of w's {} channels, got {}", names.text, w[1], x[1]);
  expect(w[0] % graph.shape.groups == 0, kShape, "{}: w: expected a multiple of {} groups, got {} outputs", names.text,
         graph.shape.groups, w[0]);
  std::vector<int64_t> wanted = {x[0], w[0]};
  const auto after = convolution.list<int64_t>(CUDNN_ATTR_CONVOLUTION_POST_PADDINGS);
  const auto before = convolution.list<int64_t>(CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS);
  const auto strides = convolution.list<int64_t>(CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES);
  const auto dilations = convolution.list<int64_t>(CUDNN_ATTR_CONVOLUTION_DILATIONS);
  for (size_t axis = 0; axis < 2; ++axis) {
    const int64_t window = dilations[axis] * (w[axis + 2] - 1) + 1;
    const int64_t room = x[axis + 2] + before[axis] + after[axis] - window;
    expect(room >= 0, kShape, "{}: w: expected a window inside x's padded {} pixels, got {}", names.text, room + window,
           window);
    wanted.push_back(room / strides[axis] + 1);
  }
  expect(y == wanted, kShape, "{}: y: expected shape {}, got {}", names.text, text_of(wanted), text_of(y));
  const GraphTensor& result = graph.result();
  const Operand written{
      .name = {}, .address = 0, .type = result.type, .sizes = result.sizes, .strides = result.strides};
  expect(!written.overlaps_itself(), kBad, "{}: {}: expected strides of separate elements, got {} for shape {}",
         names.text, result.role, text_of(result.strides), text_of(result.sizes));
}

void check_addition(const Descriptor& operation) {
  const GraphTensor x = tensor_of(operation.descriptor(CUDNN_ATTR_OPERATION_POINTWISE_XDESC), "x");
  const GraphTensor b = tensor_of(operation.descriptor(CUDNN_ATTR_OPERATION_POINTWISE_BDESC), "b");
  const GraphTensor y = tensor_of(operation.descriptor(CUDNN_ATTR_OPERATION_POINTWISE_YDESC), "y");
  expect(x.sizes == y.sizes, kShape, "pointwise: y: expected shape {}, got {}", text_of(x.sizes), text_of(y.sizes));
  bool fits = b.sizes.size() == y.sizes.size();
  for (size_t axis = 0; fits && axis < y.sizes.size(); ++axis) {
    fits = b.sizes[axis] == 1 || b.sizes[axis] == y.sizes[axis];
  }
  expect(fits, kShape, "pointwise: b: expected the sizes of {}, or 1, got {}", text_of(y.sizes), text_of(b.sizes));
  const Operand written{.name = {}, .address = 0, .type = y.type, .sizes = y.sizes, .strides = y.strides};
  expect(!written.overlaps_itself(), kBad, "pointwise: y: expected strides of separate elements, got {} for shape {}",
         text_of(y.strides), text_of(y.sizes));
}

/// The tensors that an operation reads, and the one that it writes, last.
std::vector<GraphTensor> tensors_of(const Descriptor& operation) {
  if (const PassNames* const names = names_of(operation.type)) {
    const ConvolutionGraph graph = convolution_of(operation, *names);
    switch (graph.pass) {
      case ConvolutionPass::kForward: return {graph.x, graph.w, graph.y};
      case ConvolutionPass::kDataGradient: return {graph.y, graph.w, graph.x};
      case ConvolutionPass::kFilterGradient: return {graph.x, graph.y, graph.w};
    }
  }
  return {tensor_of(operation.descriptor(CUDNN_ATTR_OPERATION_POINTWISE_XDESC), "x"),
          tensor_of(operation.descriptor(CUDNN_ATTR_OPERATION_POINTWISE_BDESC), "b"),
          tensor_of(operation.descriptor(CUDNN_ATTR_OPERATION_POINTWISE_YDESC), "y")};
}

const std::vector<DescriptorCopy>& operations_of(const Descriptor& graph) {
  return graph.values.at(CUDNN_ATTR_OPERATIONGRAPH_OPS).descriptors;
}

void check_types(const ConvolutionGraph& graph, const char* pass) {
  constexpr cudnnStatus_t kTypes = CUDNN_STATUS_NOT_SUPPORTED_DATA_TYPE;
  const NumberType type = graph.x.type;
  const NumberType sums = type == NumberType::kFloat64 ? NumberType::kFloat64 : NumberType::kFloat32;
  expect(graph.w.type == type && graph.y.type == type, kTypes,
         "{}: expected one type for x, w and y, got {}, {} and {}", pass, name_of(type), name_of(graph.w.type),
         name_of(graph.y.type));
  expect(graph.compute == sums, kTypes, "{}: compute type: expected {} for {}, got {}", pass, name_of(sums),
         name_of(type), name_of(graph.compute));
}

/// `graph` with the addition behind it.
void add_bias(ConvolutionGraph& graph, const Descriptor& addition) {
  constexpr cudnnStatus_t kPattern = CUDNN_STATUS_NOT_SUPPORTED_GRAPH_PATTERN;
  const GraphTensor sum = graph.y;
  GraphTensor x = tensor_of(addition.descriptor(CUDNN_ATTR_OPERATION_POINTWISE_XDESC), "x");
  expect(graph.pass == ConvolutionPass::kForward && sum.is_virtual && x == sum, kPattern,
         "graph: expected the pointwise operation to read the virtual result of a forward convolution");
  expect(graph.beta == 0, kPattern, "graph: expected beta 0 before a pointwise operation, got {}", graph.beta);
  graph.bias = tensor_of(addition.descriptor(CUDNN_ATTR_OPERATION_POINTWISE_BDESC), "bias");
  graph.y = tensor_of(addition.descriptor(CUDNN_ATTR_OPERATION_POINTWISE_YDESC), "y");
  const std::vector<int64_t> wanted = {1, graph.shape.o, 1, 1};
  expect(graph.bias->sizes == wanted, CUDNN_STATUS_NOT_SUPPORTED_SHAPE, "graph: bias: expected shape {}, got {}",
         text_of(wanted), text_of(graph.bias->sizes));
  expect(sum.type == graph.compute, CUDNN_STATUS_NOT_SUPPORTED_DATA_TYPE,
         "graph: virtual tensor {}: expected the compute type {}, got {}", sum.id, name_of(graph.compute),
         name_of(sum.type));
  expect(graph.bias->type == graph.y.type, CUDNN_STATUS_NOT_SUPPORTED_DATA_TYPE,
         "graph: bias: expected y's type {}, got {}", name_of(graph.y.type), name_of(graph.bias->type));
  const Descriptor& function = addition.descriptor(CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR);
  const NumberType precision =
      number_type("pointwise", function.value<cudnnDataType_t>(CUDNN_ATTR_POINTWISE_MATH_PREC));
  expect(precision == graph.compute, CUDNN_STATUS_NOT_SUPPORTED_DATA_TYPE,
         "pointwise: math precision: expected the compute type {}, got {}", name_of(graph.compute), name_of(precision));
}

}  // namespace

const GraphTensor& ConvolutionGraph::result() const {
  switch (pass) {
    case ConvolutionPass::kDataGradient: return x;
    case ConvolutionPass::kFilterGradient: return w;
    default: return y;
  }
}

std::vector<GraphTensor> ConvolutionGraph::tensors() const {
  std::vector<GraphTensor> all = {x, w, y};
  if (bias) {
    all.push_back(*bias);
  }
  return all;
}

std::string ConvolutionGraph::text() const {
  return fmt::format("{}{}: {} * {} -> {}, {}", kPasses[static_cast<size_t>(pass)].text, bias ? " with bias" : "",
                     text_of(x.sizes), text_of(w.sizes), text_of(y.sizes), name_of(x.type));
}

void check_tensor(const Descriptor& tensor) {
  const GraphTensor read = tensor_of(tensor, "tensor");
  const std::string owner = fmt::format("tensor {}", read.id);
  expect(read.sizes.size() == read.strides.size(), kBad, "{}: strides: expected {}, one for each dimension, got {}",
         owner, read.sizes.size(), read.strides.size());
  const auto at_least = [](int64_t least) { return [least](int64_t value) { return value >= least; }; };
  expect(std::all_of(read.sizes.begin(), read.sizes.end(), at_least(1)), kBad,
         "{}: dimensions: expected at least 1 each, got {}", owner, text_of(read.sizes));
  expect(std::all_of(read.strides.begin(), read.strides.end(), at_least(0)), kBad,
         "{}: strides: expected at least 0 each, got {}", owner, text_of(read.strides));
  // cuDNN takes less; but cuDNN 9.19 on an H100 has a kernel for float16 that loads 16 bytes at once all the same.
  expect(read.alignment > 0 && read.alignment % 16 == 0, kBad, "{}: byte alignment: expected a multiple of 16, got {}",
         owner, read.alignment);
}

void check_convolution(const Descriptor& convolution) {
  const auto axes = convolution.value<int64_t>(CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS);
  const auto check = [&](cudnnBackendAttributeName_t name, const char* text, int64_t least) {
    const auto values = convolution.list<int64_t>(name);
    expect(static_cast<int64_t>(values.size()) == axes, kBad,
           "convolution: {}: expected {} values, one for each spatial axis, got {}", text, axes, values.size());
    expect(std::all_of(values.begin(), values.end(), [least](int64_t value) { return value >= least; }), kBad,
           "convolution: {}: expected at least {} each, got {}", text, least, text_of(values));
  };
  check(CUDNN_ATTR_CONVOLUTION_DILATIONS, "dilations", 1);
  check(CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, "filter strides", 1);
  check(CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, "paddings before", 0);
  check(CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, "paddings behind", 0);
  number_type("convolution", convolution.value<cudnnDataType_t>(CUDNN_ATTR_CONVOLUTION_COMP_TYPE));
  const auto mode = convolution.value<cudnnConvolutionMode_t>(CUDNN_ATTR_CONVOLUTION_CONV_MODE);
  expect(mode == CUDNN_CROSS_CORRELATION, CUDNN_STATUS_NOT_SUPPORTED,
         "convolution: mode: expected CUDNN_CROSS_CORRELATION, got {}", static_cast<int>(mode));
}

void check_pointwise(const Descriptor& pointwise) {
  const auto mode = pointwise.value<cudnnPointwiseMode_t>(CUDNN_ATTR_POINTWISE_MODE);
  expect(mode == CUDNN_POINTWISE_ADD, CUDNN_STATUS_NOT_SUPPORTED,
         "pointwise: mode: expected CUDNN_POINTWISE_ADD, got {}", static_cast<int>(mode));
  number_type("pointwise", pointwise.value<cudnnDataType_t>(CUDNN_ATTR_POINTWISE_MATH_PREC));
}

void check_operation(const Descriptor& operation) {
  if (const PassNames* const names = names_of(operation.type)) {
    check_convolution_operation(operation, *names);
  } else {
    check_addition(operation);
  }
}

void check_graph(const Descriptor& graph) {
  std::map<int64_t, GraphTensor> known;
  std::map<int64_t, std::pair<int, int>> uses;  // of virtual tensors: reads and writes
  for (const DescriptorCopy& operation : operations_of(graph)) {
    const std::vector<GraphTensor> tensors = tensors_of(*operation);
    for (const GraphTensor& tensor : tensors) {
      const auto [place, is_new] = known.emplace(tensor.id, tensor);
      expect(is_new || place->second == tensor, CUDNN_STATUS_BAD_PARAM_DUPLICATED_ENTRIES,
             "graph: unique id {}: expected one tensor, got {} and {}", tensor.id, text_of(place->second.sizes),
             text_of(tensor.sizes));
      if (tensor.is_virtual) {
        auto& [reads, writes] = uses[tensor.id];
        (&tensor == &tensors.back() ? writes : reads) += 1;
      }
    }
    const GraphTensor& written = tensors.back();
    const bool in_place = std::any_of(tensors.begin(), tensors.end() - 1,
                                      [&](const GraphTensor& tensor) { return tensor.id == written.id; });
    expect(!in_place, kBad, "graph: unique id {}: expected an output of its own, got an input's id", written.id);
  }
  for (const auto& [id, use] : uses) {
    expect(use.first == 1 && use.second == 1, kBad,
           "graph: virtual tensor {}: expected 1 operation to write it and 1 to read it, got {} and {}", id, use.second,
           use.first);
  }
}

ConvolutionGraph understand(const Descriptor& graph) {
  constexpr cudnnStatus_t kPattern = CUDNN_STATUS_NOT_SUPPORTED_GRAPH_PATTERN;
  const Descriptor* convolution = nullptr;
  const Descriptor* addition = nullptr;
  for (const DescriptorCopy& operation : operations_of(graph)) {
    const Descriptor*& place = names_of(operation->type) != nullptr ? convolution : addition;
    expect(place == nullptr, kPattern, "graph: expected one convolution and at most one addition, got {} operations",
           operations_of(graph).size());
    place = operation.get();
  }
  expect(convolution != nullptr, kPattern, "graph: expected a convolution, got none");
  const PassNames& names = *names_of(convolution->type);
  ConvolutionGraph understood = convolution_of(*convolution, names);
  if (addition != nullptr) {
    add_bias(understood, *addition);
  }
  check_types(understood, names.text);
  return understood;
}

}  // namespace virtual_gpu
