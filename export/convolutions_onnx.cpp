#include "base/error.h"
#include "core/factory.h"
#include "export/lower_onnx.h"
#include "ops/pointwise/pointwise.h"
#include "ops/shape/view.h"

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

/// Opset 23 has an op for it; these are the products and the softmax that it stands for. A query that sees no key gets
/// zeros.
std::string attention(Graph& graph, const Op& op) {
  const std::vector<int64_t> swapped{0, 1, 3, 2};
  const Tensor& k = op.traced.inputs.at(1);
  const Tensor& mask = op.traced.inputs.at(3);
  const DType dtype = op.x().dtype();
  const std::string q = graph.add("Mul", {graph.value(op.x()), graph.number(op.real("scale"), dtype)});
  std::string scores = graph.add("MatMul", {q, graph.add("Transpose", {graph.value(k)}, {{"perm", swapped}})});
  std::string seen;
  if (op.integer("causal") != 0) {
    seen = graph.value(less_equal(unsqueeze(arange(k.size(2), DType::int64, kCpu), 0),
                                  unsqueeze(arange(op.x().size(2), DType::int64, kCpu), 1)));
  } else if (mask.defined() && mask.dtype() == DType::boolean) {
    seen = graph.value(mask);
  } else if (mask.defined()) {
    scores = graph.add("Add", {scores, graph.value(mask)});
    seen = graph.add("Not", {graph.add("IsInf", {scores}, {{"detect_positive", int64_t{0}}})});
  }
  if (!seen.empty()) {
    scores = graph.add("Where", {seen, scores, graph.number(std::numeric_limits<float>::lowest(), dtype)});
  }
  std::string shares = graph.add("Softmax", {scores}, {{"axis", int64_t{-1}}});
  if (!seen.empty()) {
    shares = graph.add("Where", {seen, shares, graph.number(0, dtype)});
  }
  return graph.add("MatMul", {shares, graph.value(op.traced.inputs.at(2))});
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
