#include "export/lower_onnx.h"
#include "ops/norm/spec.h"

namespace norma::exporter {

namespace {

Lowering reduction(const std::string& type) {
  return [type](Graph& graph, const Op& op) {
    return graph.add(type, {graph.value(op.x()), graph.integers(op.list("axes"))},
                     {{"keepdims", op.integer("keepdim")}});
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

std::string var(Graph& graph, const Op& op) {
  const std::string biased =
      variance(graph, graph.value(op.x()), graph.integers(op.list("axes")), op.integer("keepdim"));
  const auto count = static_cast<double>(op.x().numel()) / static_cast<double>(op.y().numel());
  const double factor = count / (count - static_cast<double>(op.integer("correction")));
  return factor == 1 ? biased : graph.add("Mul", {biased, graph.number(factor, op.x().dtype())});
}

/// sqrt(var(x) + eps), or of the mean square
std::string deviation(Graph& graph, const Op& op) {
  const std::string x = graph.value(op.x());
  const std::string axes = graph.integers(op.list("reduce"));
  const std::string square = static_cast<Centring>(op.integer("centring")) == Centring::none
                                 ? mean(graph, graph.add("Mul", {x, x}), axes)
                                 : variance(graph, x, axes, 1);
  return graph.add("Sqrt", {graph.add("Add", {square, graph.number(op.real("eps"), op.x().dtype())})});
}

}  // namespace

void add_reductions(Lowerings& to) {
  to["sum"] = reduction("ReduceSum");
  to["mean"] = reduction("ReduceMean");
  to["max"] = reduction("ReduceMax");
  to["prod"] = reduction("ReduceProd");
  to["var"] = var;
  to["deviation"] = deviation;
  // It scales a numerator and its denominator alike, against overflow in gradients: here 1 does.
  to["inverse_power_of_two"] = [](Graph& graph, const Op& op) { return graph.number(1, op.x().dtype()); };
}

}  // namespace norma::exporter
