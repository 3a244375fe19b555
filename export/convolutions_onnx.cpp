#include "base/error.h"
#include "core/factory.h"
#include "export/lower_onnx.h"

#include <fmt/format.h>

#include <limits>

namespace norma::exporter {

namespace {

std::vector<int64_t> both_sides(const std::vector<int64_t>& padding) {
  return {padding[0], padding[1], padding[0], padding[1]};
}

std::string conv2d(Graph& graph, const Op& op) {
  const Tensor& weight = op.traced.inputs.at(1);
  return graph.add("Conv", {graph.value(op.x()), graph.value(weight), graph.value(op.traced.inputs.at(2))},
                   {{"kernel_shape", std::vector<int64_t>{weight.size(2), weight.size(3)}},
                    {"strides", op.list("stride")},
                    {"pads", both_sides(op.list("padding"))},
                    {"dilations", op.list("dilation")},
                    {"group", op.integer("groups")}});
}

std::string linear(Graph& graph, const Op& op) {
  const Tensor& weight = op.traced.inputs.at(1);
  const Tensor& bias = op.traced.inputs.at(2);
  if (op.x().rank() == 2) {
    return graph.add("Gemm", {graph.value(op.x()), graph.value(weight), graph.value(bias)}, {{"transB", int64_t{1}}});
  }
  const std::string transposed = graph.add("Transpose", {graph.value(weight)}, {{"perm", std::vector<int64_t>{1, 0}}});
  const std::string product = graph.add("MatMul", {graph.value(op.x()), transposed});
  return bias.defined() ? graph.add("Add", {product, graph.value(bias)}) : product;
}

std::string max_pool2d(Graph& graph, const Op& op) {
  return graph.add("MaxPool", {graph.value(op.x())},
                   {{"kernel_shape", op.list("kernel")},
                    {"strides", op.list("stride")},
                    {"pads", both_sides(op.list("padding"))},
                    {"dilations", op.list("dilation")},
                    {"ceil_mode", op.integer("ceil_mode")}});
}

std::string avg_pool2d(Graph& graph, const Op& op) {
  const std::vector<int64_t>& kernel = op.list("kernel");
  const int64_t divisor = op.integer("divisor_override");
  check(divisor == 0 || op.integer("ceil_mode") == 0, "export_onnx",
        "avg_pool2d: expected no divisor_override together with ceil_mode, which ONNX cannot say");
  const std::string y = graph.add("AveragePool", {graph.value(op.x())},
                                  {{"kernel_shape", kernel},
                                   {"strides", op.list("stride")},
                                   {"pads", both_sides(op.list("padding"))},
                                   {"ceil_mode", op.integer("ceil_mode")},
                                   {"count_include_pad", divisor != 0 ? int64_t{1} : op.integer("count_include_pad")}});
  if (divisor == 0) {
    return y;
  }
  const double factor = static_cast<double>(kernel[0] * kernel[1]) / static_cast<double>(divisor);
  return graph.add("Mul", {y, graph.number(factor, op.x().dtype())}, {},
                   "divisor_override: the mean over the whole kernel, times its size, by another number");
}

std::string adaptive_avg_pool2d(Graph& graph, const Op& op) {
  const std::vector<int64_t>& output = op.list("output");
  const std::string x = graph.value(op.x());
  if (output == std::vector<int64_t>{1, 1}) {
    return graph.add("GlobalAveragePool", {x});
  }
  const int64_t h = op.x().size(2);
  const int64_t w = op.x().size(3);
  check(h % output[0] == 0 && w % output[1] == 0, "export_onnx",
        "adaptive_avg_pool2d: expected windows of one size, since ONNX has no others, got {} x {} from {} x {}",
        output[0], output[1], h, w);
  const std::vector<int64_t> window{h / output[0], w / output[1]};
  return graph.add("AveragePool", {x}, {{"kernel_shape", window}, {"strides", window}});
}

std::string softmax(Graph& graph, const Op& op) {
  return graph.add(op.name() == "softmax" ? "Softmax" : "LogSoftmax", {graph.value(op.x())},
                   {{"axis", op.integer("axis")}});
}

/// softmax(scale · q kᵀ + mask) v
std::string attention(Graph& graph, const Op& op) {
  const Tensor& q = op.x();
  const Tensor& k = op.traced.inputs.at(1);
  const Tensor& mask = op.traced.inputs.at(3);
  const auto number = [&](double value) { return graph.number(value, q.dtype()); };
  const double infinity = std::numeric_limits<double>::infinity();
  const std::string turned = graph.add("Transpose", {graph.value(k)}, {{"perm", std::vector<int64_t>{0, 1, 3, 2}}});
  std::string scores = graph.add("MatMul", {graph.add("Mul", {graph.value(q), number(op.real("scale"))}), turned}, {},
                                 "scaled_dot_product_attention, of which opset 23 has an op");
  if (op.integer("causal") != 0) {
    std::vector<double> added;
    for (int64_t i = 0; i < q.size(2); ++i) {
      for (int64_t j = 0; j < k.size(2); ++j) {
        added.push_back(j <= i ? 0 : -infinity);
      }
    }
    scores = graph.add("Add", {scores, graph.value(from_vector<double>(added, {q.size(2), k.size(2)},
                                                                       {.dtype = q.dtype(), .device = kCpu}))});
  }
  if (!mask.defined()) {
    return graph.add("MatMul",
                     {graph.add("Softmax", {scores}, {{"axis", int64_t{-1}}}), graph.value(op.traced.inputs.at(2))});
  }
  scores = mask.dtype() == DType::boolean ? graph.add("Where", {graph.value(mask), scores, number(-infinity)})
                                          : graph.add("Add", {scores, graph.value(mask)});
  // Softmax makes NaN of a row without any key, which is to become zeros.
  const std::string hidden = graph.add("Equal", {scores, number(-infinity)});
  const double lowest = static_cast<double>(std::numeric_limits<float>::lowest());
  const std::string p =
      graph.add("Softmax", {graph.add("Where", {hidden, number(lowest), scores})}, {{"axis", int64_t{-1}}});
  return graph.add("MatMul", {graph.add("Where", {hidden, number(0), p}), graph.value(op.traced.inputs.at(2))});
}

}  // namespace

void add_convolutions(Lowerings& to) {
  to["conv2d"] = conv2d;
  to["linear"] = linear;
  to["matmul"] = [](Graph& graph, const Op& op) {
    return graph.add("MatMul", {graph.value(op.x()), graph.value(op.traced.inputs.at(1))});
  };
  to["max_pool2d"] = max_pool2d;
  to["avg_pool2d"] = avg_pool2d;
  to["adaptive_avg_pool2d"] = adaptive_avg_pool2d;
  to["scaled_dot_product_attention"] = attention;
  to["softmax"] = softmax;
  to["log_softmax"] = softmax;
}

}  // namespace norma::exporter
