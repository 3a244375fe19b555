#include "base/error.h"
#include "export/lower_onnx.h"

#include <cmath>

namespace norma::exporter {

namespace {

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
  return [type](Graph& graph, const Op& op) { return graph.add(type, {graph.value(op.x())}); };
}

/// With another tensor, or with a number.
Lowering binary(const std::string& type) {
  return [type](Graph& graph, const Op& op) {
    const std::string b =
        op.has("number") ? graph.number(op.real("number"), op.x().dtype()) : graph.value(op.traced.inputs.at(1));
    return graph.add(type, {graph.value(op.x()), b});
  };
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

void add_pointwise(Lowerings& to) {
  to["add"] = binary("Add");
  to["accumulate"] = binary("Add");
  to["sub"] = binary("Sub");
  to["mul"] = binary("Mul");
  to["div"] = binary("Div");
  to["maximum"] = binary("Max");
  to["pow"] = binary("Pow");
  to["equal"] = binary("Equal");
  to["greater"] = binary("Greater");
  to["where"] = [](Graph& graph, const Op& op) {
    return graph.add(
        "Where", {graph.value(op.get<Tensor>("condition")), graph.value(op.x()), graph.value(op.traced.inputs.at(1))});
  };
  to["neg"] = unary("Neg");
  to["exp"] = unary("Exp");
  to["log"] = unary("Log");
  to["sqrt"] = unary("Sqrt");
  to["rsqrt"] = [](Graph& graph, const Op& op) {
    return graph.add("Reciprocal", {graph.add("Sqrt", {graph.value(op.x())})});
  };
  to["abs"] = unary("Abs");
  to["tanh"] = unary("Tanh");
  to["sigmoid"] = unary("Sigmoid");
  to["erf"] = unary("Erf");
  to["relu"] = unary("Relu");
  to["silu"] = [](Graph& graph, const Op& op) {
    return lower_activation(graph, "silu", graph.value(op.x()), op.x().dtype());
  };
  to["gelu"] = [](Graph& graph, const Op& op) {
    return gelu(graph, graph.value(op.x()), op.text("approximate"), op.x().dtype());
  };
  to["clamp"] = [](Graph& graph, const Op& op) {
    const DType dtype = op.x().dtype();
    return graph.add("Clip",
                     {graph.value(op.x()), graph.number(op.real("low"), dtype), graph.number(op.real("high"), dtype)});
  };
}

}  // namespace norma::exporter
