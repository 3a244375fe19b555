#include "export/graph_onnx.h"
#include "ops/norm/spec.h"

#include <fmt/format.h>

#include <numeric>
#include <utility>

// A norm becomes the op of ONNX that means the same, or plain ops where there is none.

namespace norma::exporter {

namespace {

/// A norm and its operands.
struct Norm {
  const Op& op;
  Graph& graph = op.graph;
  std::vector<int64_t> reduce = op.list("reduce");
  std::vector<int64_t> affine = op.list("affine");
  int64_t groups = op.integer("groups");
  double eps = op.real("eps");
  Centring centring = static_cast<Centring>(op.integer("centring"));
  int64_t correction = op.integer("correction");
  Tensor weight = op.traced.inputs.at(1);
  Tensor bias = op.traced.inputs.at(2);

  [[nodiscard]] int64_t rank() const { return op.x().rank(); }
  [[nodiscard]] DType dtype() const { return op.x().dtype(); }
  [[nodiscard]] std::string x() const { return op.in(0); }
  [[nodiscard]] bool has_affine() const { return weight.defined() || bias.defined(); }
  [[nodiscard]] bool is_centred() const { return centring == Centring::mean && correction == 0; }
  [[nodiscard]] bool is_rms() const { return centring == Centring::none && correction == 0; }
  /// The axes from `first` to the last.
  [[nodiscard]] std::vector<int64_t> axes_from(int64_t first) const {
    std::vector<int64_t> axes(static_cast<size_t>(rank() - first));
    std::iota(axes.begin(), axes.end(), first);
    return axes;
  }
  /// x, and weight and bias of one number per channel.
  [[nodiscard]] std::vector<std::string> by_channel() const {
    const auto each = [&](const Tensor& parameter, double otherwise) {
      return parameter.defined() ? graph.value(parameter) : graph.numbers(otherwise, op.x().size(1), dtype());
    };
    return {x(), each(weight, 1), each(bias, 0)};
  }
};

/// x * weight + bias, whose axes are those of x that `affine` names.
std::string scaled_and_shifted(const Norm& norm, const std::string& x) {
  std::string y = x;
  const auto spread = [&](const Tensor& parameter) {
    Sizes sizes = Sizes::filled(norm.rank(), 1);
    for (const int64_t axis : norm.affine) {
      sizes[axis] = norm.op.x().size(axis);
    }
    std::vector<int64_t> wanted = attribute(sizes);
    return parameter.sizes() == sizes
               ? norm.graph.value(parameter)
               : norm.graph.add("Reshape", {norm.graph.value(parameter), norm.graph.integers(wanted)});
  };
  if (norm.weight.defined()) {
    y = norm.graph.add("Mul", {y, spread(norm.weight)});
  }
  return norm.bias.defined() ? norm.graph.add("Add", {y, spread(norm.bias)}) : y;
}

/// By running statistics.
std::string batch_normalization(const Norm& norm) {
  std::vector<std::string> inputs = norm.by_channel();
  for (const char* name : {"running_mean", "running_var"}) {
    inputs.push_back(norm.graph.value(norm.op.get<Tensor>(name)));
  }
  return norm.graph.add("BatchNormalization", inputs, {{"epsilon", norm.eps}});
}

/// Over the last axes, along which weight and bias vary, too. RMSNormalization takes no bias.
std::string layer_normalization(const Norm& norm, const std::string& x, int64_t axis, const Sizes& sizes) {
  const Norm& n = norm;
  const auto parameter = [&](const Tensor& given, double otherwise) {
    return given.defined()
               ? n.graph.value(given)
               : n.graph.add("Expand", {n.graph.number(otherwise, n.dtype()), n.graph.integers(attribute(sizes))});
  };
  if (n.is_rms()) {
    const std::string y =
        n.graph.add("RMSNormalization", {x, parameter(n.weight, 1)},
                    {{"axis", axis}, {"epsilon", n.eps}, {"stash_type", int64_t{onnx_dtype(n.dtype())}}});
    return n.bias.defined() ? n.graph.add("Add", {y, n.graph.value(n.bias)}) : y;
  }
  return n.graph.add("LayerNormalization",
                     {x, parameter(n.weight, 1), n.bias.defined() ? n.graph.value(n.bias) : std::string()},
                     {{"axis", axis}, {"epsilon", n.eps}});
}

/// Over the channels of each pixel: LayerNormalization and RMSNormalization take the last axes alone.
std::string layer_norm_2d(const Norm& norm) {
  const std::string last = norm.graph.add("Transpose", {norm.x()}, {{"perm", std::vector<int64_t>{0, 2, 3, 1}}});
  const std::string y = layer_normalization(norm, last, -1, {norm.op.x().size(1)});
  return norm.graph.add("Transpose", {y}, {{"perm", std::vector<int64_t>{0, 3, 1, 2}}});
}

std::string group_normalization(const Norm& norm) {
  const Sizes& sizes = norm.op.x().sizes();
  if (norm.graph.opset() >= 21) {  // stash_type: without it, float64 would be computed in float32
    return norm.graph.add(
        "GroupNormalization", norm.by_channel(),
        {{"epsilon", norm.eps}, {"num_groups", norm.groups}, {"stash_type", int64_t{onnx_dtype(norm.dtype())}}});
  }
  const std::string groups = norm.graph.add(
      "Reshape", {norm.x(), norm.graph.integers({0, norm.groups, -1})}, {},
      fmt::format("{}: GroupNormalization has one weight for each group before opset 21", norm.op.name()));
  const std::string y = norm.graph.add(
      "InstanceNormalization",
      {groups, norm.graph.numbers(1, norm.groups, norm.dtype()), norm.graph.numbers(0, norm.groups, norm.dtype())},
      {{"epsilon", norm.eps}});
  return scaled_and_shifted(norm, reshape(norm.graph, y, {sizes[0], norm.groups, -1}, sizes));
}

/// (x - mean) / sqrt(var + eps), or as the centring says, by plain ops.
std::string by_plain_ops(const Norm& norm) {
  Graph& graph = norm.graph;
  const Sizes& sizes = norm.op.x().sizes();
  std::vector<int64_t> axes = norm.reduce;
  std::string x = norm.x();
  std::string comment = fmt::format(
      "{}, of which ONNX has no op{}", norm.op.name(),
      norm.is_rms() && norm.groups == 1 && graph.opset() < 23 ? " before opset 23" : "");  // on the first node
  int64_t count = 1;
  for (const int64_t axis : norm.reduce) {
    count *= sizes[axis];
  }
  if (norm.groups > 1) {  // channels become (groups, channels of a group), of which the latter are reduced
    std::vector<int64_t> cut = attribute(sizes);
    cut[0] = 0;
    cut[1] = norm.groups;
    cut.insert(cut.begin() + 2, sizes[1] / norm.groups);
    x = graph.add("Reshape", {x, graph.integers(cut)}, {}, std::exchange(comment, ""));
    for (int64_t& axis : axes) {
      axis += axis >= 1 ? 1 : 0;
    }
    count /= norm.groups;
  }
  const std::string over = graph.integers(axes);
  const auto mean = [&](const std::string& of) {
    return graph.add("ReduceMean", {of, over}, {{"keepdims", int64_t{1}}});
  };
  const std::string centred =
      norm.centring == Centring::none ? x : graph.add("Sub", {x, mean(x)}, {}, std::exchange(comment, ""));
  std::string square = mean(graph.add("Mul", {centred, centred}, {}, comment));
  if (norm.correction != 0) {
    const double factor = static_cast<double>(count) / static_cast<double>(count - norm.correction);
    square = graph.add("Mul", {square, graph.number(factor, norm.dtype())});
  }
  const std::string root = graph.add("Sqrt", {graph.add("Add", {square, graph.number(norm.eps, norm.dtype())})});
  std::string y = graph.add("Div", {norm.centring == Centring::deviation ? x : centred, root});
  if (norm.groups > 1) {
    y = reshape(graph, y, {sizes[0]}, sizes);
  }
  return scaled_and_shifted(norm, y);
}

std::string normalized(const Norm& norm) {
  const int64_t rank = norm.rank();
  const int64_t first = norm.reduce.empty() ? rank : norm.reduce.front();
  const bool per_channel = !norm.has_affine() || norm.affine == std::vector<int64_t>{1};
  if (norm.op.has("running_mean")) {
    return batch_normalization(norm);
  }
  if (!norm.is_centred() && !(norm.is_rms() && norm.graph.opset() >= 23)) {
    return by_plain_ops(norm);
  }
  const bool takes_last_axes = norm.groups == 1 && first > 0 && norm.reduce == norm.axes_from(first);
  if (takes_last_axes && (!norm.has_affine() || norm.affine == norm.reduce) && (norm.has_affine() || first != 2)) {
    return layer_normalization(norm, norm.x(), first,
                               Sizes(std::span(norm.op.x().sizes().begin() + first, norm.op.x().sizes().end())));
  }
  if (rank == 4 && norm.groups == 1 && norm.reduce == std::vector<int64_t>{1} && per_channel) {
    return layer_norm_2d(norm);
  }
  if (norm.is_rms()) {
    return by_plain_ops(norm);
  }
  if (takes_last_axes && first == 2 && per_channel) {
    return norm.graph.add("InstanceNormalization", norm.by_channel(), {{"epsilon", norm.eps}});
  }
  if (rank >= 3 && norm.reduce == norm.axes_from(1) && per_channel) {
    return group_normalization(norm);
  }
  return by_plain_ops(norm);
}

}  // namespace

bool is_norm(const Op& op) {
  return op.has("reduce") && op.has("affine");
}

std::string lower_norm(const Op& op) {
  const Norm norm{.op = op};
  std::string y = normalized(norm);
  if (const Tensor& residual = op.traced.inputs.at(3); residual.defined()) {
    y = op.graph.add("Add", {y, op.in(3)});
  }
  return lower_activation(op.graph, op.text("activation"), y, op.x().dtype());
}

}  // namespace norma::exporter
