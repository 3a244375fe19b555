#include "export/lower_onnx.h"

#include <algorithm>

namespace norma::exporter {

namespace {

/// Copies change the layout in memory and perhaps the dtype; ONNX knows only the latter.
std::string cast(Graph& graph, const Op& op) {
  const std::string x = graph.value(op.x());
  return op.x().dtype() == op.y().dtype() ? x : graph.add("Cast", {x}, {{"to", int64_t{onnx_dtype(op.y().dtype())}}});
}

std::string expand(Graph& graph, const Op& op) {
  const Sizes& from = op.x().sizes();
  std::vector<int64_t> sizes = attribute(op.y().sizes());
  const auto added = static_cast<int64_t>(sizes.size()) - from.size();
  for (int64_t axis = 0; axis < from.size(); ++axis) {
    int64_t& size = sizes[static_cast<size_t>(axis + added)];
    size = from[axis] == size ? 1 : size;  // 1 keeps that of x
  }
  return graph.add("Expand", {graph.value(op.x()), graph.integers(sizes)});
}

std::string slice(Graph& graph, const Op& op) {
  const int64_t start = op.integer("start");
  const int64_t step = op.integer("step");
  const int64_t length = op.integer("length");
  const int64_t end = length == 0 ? start : start + (length - 1) * step + 1;  // below 0 it would count from the back
  return graph.add("Slice", {graph.value(op.x()), graph.integers({start}), graph.integers({end}),
                             graph.integers({op.integer("axis")}), graph.integers({step})});
}

std::string select(Graph& graph, const Op& op) {
  const int64_t index = op.integer("index");
  const std::string axis = graph.integers({op.integer("axis")});
  return graph.add(
      "Squeeze",
      {graph.add("Slice", {graph.value(op.x()), graph.integers({index}), graph.integers({index + 1}), axis}), axis});
}

std::string pad(Graph& graph, const Op& op) {
  std::vector<int64_t> pads = op.list("before");
  pads.insert(pads.end(), op.list("after").begin(), op.list("after").end());
  return graph.add("Pad", {graph.value(op.x()), graph.integers(pads), graph.number(op.real("value"), op.x().dtype())});
}

std::string cat(Graph& graph, const Op& op) {
  std::vector<std::string> inputs;
  for (const Tensor& x : op.traced.inputs) {
    inputs.push_back(graph.value(x));
  }
  return graph.add("Concat", inputs, {{"axis", op.integer("axis")}});
}

Lowering with_axis(const std::string& type) {
  return [type](Graph& graph, const Op& op) {
    return graph.add(type, {graph.value(op.x()), graph.integers({op.integer("axis")})});
  };
}

}  // namespace

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

void add_shapes(Lowerings& to) {
  to["to"] = cast;
  to["laid_out"] = cast;
  for (const char* const copy : {"clone", "contiguous", "identity"}) {
    to[copy] = cast;
  }
  to["view"] = [](Graph& graph, const Op& op) {
    return reshape(graph, graph.value(op.x()), op.x().sizes(), op.y().sizes());
  };
  to["permute"] = [](Graph& graph, const Op& op) {
    return graph.add("Transpose", {graph.value(op.x())}, {{"perm", op.list("order")}});
  };
  to["expand"] = expand;
  to["slice"] = slice;
  to["select"] = select;
  to["pad"] = pad;
  to["cat"] = cat;
  to["squeeze"] = with_axis("Squeeze");
  to["unsqueeze"] = with_axis("Unsqueeze");
  to["index_select"] = [](Graph& graph, const Op& op) {
    return graph.add("Gather", {graph.value(op.x()), graph.value(op.get<Tensor>("index"))},
                     {{"axis", op.integer("axis")}});
  };
}

}  // namespace norma::exporter
