#include "base/error.h"
#include "base/lists.h"
#include "core/factory.h"
#include "export/graph_onnx.h"
#include "ops/norm/spec.h"

#include <cctype>
#include <cmath>
#include <limits>

// What each op but a norm becomes in ONNX.

namespace norma::exporter {

namespace {

std::vector<int64_t> both_sides(const std::vector<int64_t>& padding) {
  return {padding[0], padding[1], padding[0], padding[1]};
}

std::string conv2d(const Op& op) {
  const Tensor& weight = op.traced.inputs.at(1);
  return op.graph.add("Conv", {op.in(0), op.graph.value(weight), op.in(2)},
                      {{"kernel_shape", std::vector<int64_t>{weight.size(2), weight.size(3)}},
                       {"strides", op.list("stride")},
                       {"pads", both_sides(op.list("padding"))},
                       {"dilations", op.list("dilation")},
                       {"group", op.integer("groups")}});
}

std::string linear(const Op& op) {
  const Tensor& weight = op.traced.inputs.at(1);
  const Tensor& bias = op.traced.inputs.at(2);
  if (op.x().rank() == 2) {
    return op.graph.add("Gemm", {op.in(0), op.graph.value(weight), op.graph.value(bias)}, {{"transB", int64_t{1}}});
  }
  const std::string transposed =
      op.graph.add("Transpose", {op.graph.value(weight)}, {{"perm", std::vector<int64_t>{1, 0}}});
  const std::string product = op.graph.add("MatMul", {op.in(0), transposed});
  return bias.defined() ? op.graph.add("Add", {product, op.graph.value(bias)}) : product;
}

std::string max_pool2d(const Op& op) {
  return op.graph.add("MaxPool", {op.in(0)},
                      {{"kernel_shape", op.list("kernel")},
                       {"strides", op.list("stride")},
                       {"pads", both_sides(op.list("padding"))},
                       {"dilations", op.list("dilation")},
                       {"ceil_mode", op.integer("ceil_mode")}});
}

std::string avg_pool2d(const Op& op) {
  const std::vector<int64_t>& kernel = op.list("kernel");
  const int64_t divisor = op.integer("divisor_override");
  check(divisor == 0 || op.integer("ceil_mode") == 0, "export_onnx",
        "avg_pool2d: expected no divisor_override together with ceil_mode, which ONNX cannot say");
  const std::string y =
      op.graph.add("AveragePool", {op.in(0)},
                   {{"kernel_shape", kernel},
                    {"strides", op.list("stride")},
                    {"pads", both_sides(op.list("padding"))},
                    {"ceil_mode", op.integer("ceil_mode")},
                    {"count_include_pad", divisor != 0 ? int64_t{1} : op.integer("count_include_pad")}});
  if (divisor == 0) {
    return y;
  }
  const double factor = static_cast<double>(kernel[0] * kernel[1]) / static_cast<double>(divisor);
  return op.graph.add("Mul", {y, op.graph.number(factor, op.x().dtype())}, {},
                      "divisor_override: the mean over the whole kernel, times its size, by another number");
}

std::string adaptive_avg_pool2d(const Op& op) {
  const std::vector<int64_t>& output = op.list("output");
  const std::string x = op.in(0);
  if (output == std::vector<int64_t>{1, 1}) {
    return op.graph.add("GlobalAveragePool", {x});
  }
  const int64_t h = op.x().size(2);
  const int64_t w = op.x().size(3);
  check(h % output[0] == 0 && w % output[1] == 0, "export_onnx",
        "adaptive_avg_pool2d: expected windows of one size, since ONNX has no others, got {} x {} from {} x {}",
        output[0], output[1], h, w);
  const std::vector<int64_t> window{h / output[0], w / output[1]};
  return op.graph.add("AveragePool", {x}, {{"kernel_shape", window}, {"strides", window}});
}

std::string softmax(const Op& op) {
  return op.graph.add(op.name() == "softmax" ? "Softmax" : "LogSoftmax", {op.in(0)}, {{"axis", op.integer("axis")}});
}

/// softmax(scale · q kᵀ + mask) v
std::string attention(const Op& op) {
  const Tensor& q = op.x();
  const Tensor& k = op.traced.inputs.at(1);
  const Tensor& mask = op.traced.inputs.at(3);
  // ONNX's op takes the root of the scale, and may make NaN of a row without any key; onnxruntime has it in float32.
  if (op.graph.opset() >= 23 && !mask.defined() && op.real("scale") > 0 && q.dtype() == DType::float32) {
    return op.graph.add("Attention", {op.graph.value(q), op.graph.value(k), op.in(2)},
                        {{"scale", op.real("scale")}, {"is_causal", op.integer("causal")}});
  }
  const auto number = [&](double value) { return op.graph.number(value, q.dtype()); };
  const double infinity = std::numeric_limits<double>::infinity();
  const std::string turned =
      op.graph.add("Transpose", {op.graph.value(k)}, {{"perm", std::vector<int64_t>{0, 1, 3, 2}}});
  std::string scores =
      op.graph.add("MatMul", {op.graph.add("Mul", {op.graph.value(q), number(op.real("scale"))}), turned}, {},
                   "scaled_dot_product_attention, of which opset 23 has an op");
  if (op.integer("causal") != 0) {
    std::vector<double> added;
    for (int64_t i = 0; i < q.size(2); ++i) {
      for (int64_t j = 0; j < k.size(2); ++j) {
        added.push_back(j <= i ? 0 : -infinity);
      }
    }
    scores = op.graph.add("Add", {scores, op.graph.value(from_vector<double>(added, {q.size(2), k.size(2)},
                                                                             {.dtype = q.dtype(), .device = kCpu}))});
  }
  if (!mask.defined()) {
    return op.graph.add("MatMul", {op.graph.add("Softmax", {scores}, {{"axis", int64_t{-1}}}), op.in(2)});
  }
  scores = mask.dtype() == DType::boolean ? op.graph.add("Where", {op.graph.value(mask), scores, number(-infinity)})
                                          : op.graph.add("Add", {scores, op.graph.value(mask)});
  // Softmax makes NaN of a row without any key, which is to become zeros.
  const std::string hidden = op.graph.add("Equal", {scores, number(-infinity)});
  const double lowest = static_cast<double>(std::numeric_limits<float>::lowest());
  const std::string p =
      op.graph.add("Softmax", {op.graph.add("Where", {hidden, number(lowest), scores})}, {{"axis", int64_t{-1}}});
  return op.graph.add("MatMul", {op.graph.add("Where", {hidden, number(0), p}), op.in(2)});
}

using Names = std::vector<std::string>;

/// gelu(x) = x/2 (1 + erf(x / sqrt(2))); tanh: x/2 (1 + tanh(sqrt(2 / pi) (x + 0.044715 x³)))
std::string gelu(Graph& graph, const std::string& x, const std::string& approximate, DType dtype) {
  if (graph.opset() >= 20) {
    return graph.add("Gelu", {x}, {{"approximate", approximate}});
  }
  const auto number = [&](double value) { return graph.number(value, dtype); };
  std::string gate;
  if (approximate == "tanh") {
    const std::string cube = graph.add("Mul", {graph.add("Mul", {x, x}), x}, {}, "gelu, of which opset 20 has an op");
    const std::string inner = graph.add("Add", {x, graph.add("Mul", {cube, number(0.044715)})});
    gate = graph.add("Tanh", {graph.add("Mul", {inner, number(std::sqrt(2 / M_PI))})});
  } else {
    gate = graph.add("Erf", {graph.add("Mul", {x, number(M_SQRT1_2)}, {}, "gelu, of which opset 20 has an op")});
  }
  return graph.add("Mul", {graph.add("Mul", {x, number(0.5)}), graph.add("Add", {gate, number(1)})});
}

Lowering unary(const std::string& type) {
  return [type](const Op& op) { return op.graph.add(type, {op.in(0)}); };
}

/// With another tensor, or with a number.
Lowering binary(const std::string& type) {
  return [type](const Op& op) {
    const std::string b = op.has("number") ? op.graph.number(op.real("number"), op.x().dtype()) : op.in(1);
    return op.graph.add(type, {op.in(0), b});
  };
}

Lowering reduction(const std::string& type) {
  return [type](const Op& op) {
    return op.graph.add(type, {op.in(0), op.graph.integers(op.list("axes"))}, {{"keepdims", op.integer("keepdim")}});
  };
}

std::string mean(Graph& graph, const std::string& x, const std::string& axes, int64_t keepdims = 1) {
  return graph.add("ReduceMean", {x, axes}, {{"keepdims", keepdims}});
}

/// mean((x - mean(x))²)
std::string variance(Graph& graph, const std::string& x, const std::string& axes, int64_t keepdims) {
  const std::string difference = graph.add("Sub", {x, mean(graph, x, axes)});
  return mean(graph, graph.add("Mul", {difference, difference}), axes, keepdims);
}

std::string var(const Op& op) {
  const std::string biased = variance(op.graph, op.in(0), op.graph.integers(op.list("axes")), op.integer("keepdim"));
  const auto count = static_cast<double>(op.x().numel()) / static_cast<double>(op.y().numel());
  const double factor = count / (count - static_cast<double>(op.integer("correction")));
  return factor == 1 ? biased : op.graph.add("Mul", {biased, op.graph.number(factor, op.x().dtype())});
}

/// sqrt(var(x) + eps), or of the mean square
std::string deviation(const Op& op) {
  const std::string x = op.in(0);
  const std::string axes = op.graph.integers(op.list("reduce"));
  const std::string square = static_cast<Centring>(op.integer("centring")) == Centring::none
                                 ? mean(op.graph, op.graph.add("Mul", {x, x}), axes)
                                 : variance(op.graph, x, axes, 1);
  return op.graph.add("Sqrt", {op.graph.add("Add", {square, op.graph.number(op.real("eps"), op.x().dtype())})});
}

/// Copies change the layout in memory and perhaps the dtype; ONNX knows only the latter.
std::string cast(const Op& op) {
  const std::string x = op.in(0);
  return op.x().dtype() == op.y().dtype() ? x
                                          : op.graph.add("Cast", {x}, {{"to", int64_t{onnx_dtype(op.y().dtype())}}});
}

std::string expand(const Op& op) {
  const Sizes& from = op.x().sizes();
  std::vector<int64_t> sizes = attribute(op.y().sizes());
  const auto added = static_cast<int64_t>(sizes.size()) - from.size();
  for (int64_t axis = 0; axis < from.size(); ++axis) {
    int64_t& size = sizes[static_cast<size_t>(axis + added)];
    size = from[axis] == size ? 1 : size;  // 1 keeps that of x
  }
  return op.graph.add("Expand", {op.in(0), op.graph.integers(sizes)});
}

std::string slice(const Op& op) {
  const int64_t start = op.integer("start");
  const int64_t step = op.integer("step");
  const int64_t length = op.integer("length");
  const int64_t end = length == 0 ? start : start + (length - 1) * step + 1;  // below 0 it would count from the back
  return op.graph.add("Slice", {op.in(0), op.graph.integers({start}), op.graph.integers({end}),
                                op.graph.integers({op.integer("axis")}), op.graph.integers({step})});
}

std::string select(const Op& op) {
  const int64_t index = op.integer("index");
  const std::string axis = op.graph.integers({op.integer("axis")});
  return op.graph.add(
      "Squeeze",
      {op.graph.add("Slice", {op.in(0), op.graph.integers({index}), op.graph.integers({index + 1}), axis}), axis});
}

std::string pad(const Op& op) {
  std::vector<int64_t> pads = op.list("before");
  pads.insert(pads.end(), op.list("after").begin(), op.list("after").end());
  return op.graph.add("Pad", {op.in(0), op.graph.integers(pads), op.graph.number(op.real("value"), op.x().dtype())});
}

std::string cat(const Op& op) {
  const auto inputs = mapped(op.traced.inputs, [&](const Tensor& x) { return op.graph.value(x); });
  return op.graph.add("Concat", inputs, {{"axis", op.integer("axis")}});
}

Lowering with_axis(const std::string& type) {
  return [type](const Op& op) { return op.graph.add(type, {op.in(0), op.graph.integers({op.integer("axis")})}); };
}

}  // namespace

std::string lower_activation(Graph& graph, const std::string& activation, const std::string& x, DType dtype) {
  if (activation == "relu") {
    return graph.add("Relu", {x});
  }
  if (activation == "gelu") {
    return gelu(graph, x, "none", dtype);
  }
  if (activation == "silu") {
    return graph.add("Mul", {x, graph.add("Sigmoid", {x})});
  }
  check(activation == "identity", "export_onnx", "expected an activation that ONNX has, got {}", activation);
  return x;
}

std::string reshape(Graph& graph, const std::string& x, const Sizes& from, const Sizes& to) {
  if (from == to) {
    return x;
  }
  std::vector<int64_t> sizes = attribute(to);
  if (!sizes.empty() && !from.empty() && from[0] == sizes[0]) {
    sizes[0] = 0;  // that of x
  }
  return graph.add("Reshape", {x, graph.integers(sizes)});
}

const Lowering* find_lowering(const std::string& name) {
  static const std::map<std::string, Lowering> all = [] {
    std::map<std::string, Lowering> result = {
        {"conv2d", conv2d},
        {"linear", linear},
        {"matmul", binary("MatMul")},
        {"max_pool2d", max_pool2d},
        {"avg_pool2d", avg_pool2d},
        {"adaptive_avg_pool2d", adaptive_avg_pool2d},
        {"scaled_dot_product_attention", attention},
        {"softmax", softmax},
        {"log_softmax", softmax},
        {"accumulate", binary("Add")},
        {"maximum", binary("Max")},
        {"where",
         [](const Op& op) {
           return op.graph.add("Where", {op.graph.value(op.get<Tensor>("condition")), op.in(0), op.in(1)});
         }},
        {"rsqrt", [](const Op& op) { return op.graph.add("Reciprocal", {op.graph.add("Sqrt", {op.in(0)})}); }},
        {"silu", [](const Op& op) { return lower_activation(op.graph, "silu", op.in(0), op.x().dtype()); }},
        {"gelu", [](const Op& op) { return gelu(op.graph, op.in(0), op.text("approximate"), op.x().dtype()); }},
        {"clamp",
         [](const Op& op) {
           const DType dtype = op.x().dtype();
           return op.graph.add(
               "Clip", {op.in(0), op.graph.number(op.real("low"), dtype), op.graph.number(op.real("high"), dtype)});
         }},
        {"var", var},
        {"deviation", deviation},
        // It scales a numerator and its denominator alike, against overflow in gradients: here 1 does.
        {"inverse_power_of_two", [](const Op& op) { return op.graph.number(1, op.x().dtype()); }},
        {"view", [](const Op& op) { return reshape(op.graph, op.in(0), op.x().sizes(), op.y().sizes()); }},
        {"permute",
         [](const Op& op) {
           return op.graph.add("Transpose", {op.in(0)}, {{"perm", op.list("order")}});
         }},
        {"expand", expand},
        {"slice", slice},
        {"select", select},
        {"pad", pad},
        {"cat", cat},
        {"squeeze", with_axis("Squeeze")},
        {"unsqueeze", with_axis("Unsqueeze")},
        {"index_select",
         [](const Op& op) {
           return op.graph.add("Gather", {op.in(0), op.graph.value(op.get<Tensor>("index"))},
                               {{"axis", op.integer("axis")}});
         }},
    };
    const auto lower = [](std::string type) {
      type[0] = static_cast<char>(std::tolower(type[0]));
      return type;
    };
    for (const char* const type : {"Neg", "Exp", "Log", "Sqrt", "Abs", "Tanh", "Sigmoid", "Erf", "Relu"}) {
      result[lower(type)] = unary(type);
    }
    for (const char* const type : {"Add", "Sub", "Mul", "Div", "Pow", "Equal", "Greater"}) {
      result[lower(type)] = binary(type);
    }
    for (const char* const type : {"Sum", "Mean", "Max", "Prod"}) {
      result[lower(type)] = reduction(std::string("Reduce") + type);
    }
    for (const char* const copy : {"to", "laid_out", "clone", "contiguous", "identity"}) {
      result[copy] = cast;
    }
    return result;
  }();
  const auto found = all.find(name);
  return found == all.end() ? nullptr : &found->second;
}

}  // namespace norma::exporter
