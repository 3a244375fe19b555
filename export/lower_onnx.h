#pragma once

#include "core/trace.h"
#include "export/graph_onnx.h"

#include <functional>
#include <string>
#include <vector>

namespace norma::exporter {

/// An op of the trace that is to become nodes.
struct Op {
  const TracedOp& traced;

  [[nodiscard]] const std::string& name() const { return traced.op; }
  [[nodiscard]] const Tensor& x() const { return traced.inputs.at(0); }
  [[nodiscard]] const Tensor& y() const { return traced.outputs.at(0); }
  [[nodiscard]] bool has(std::string_view name) const { return traced.attributes.contains(name); }
  /// Attributes; std::out_of_range for one that the op did not describe.
  template <class T>
  [[nodiscard]] const T& get(std::string_view name) const {
    const auto found = traced.attributes.find(name);
    if (found == traced.attributes.end()) {
      throw std::out_of_range(traced.op + ": " + std::string(name));
    }
    return std::get<T>(found->second);
  }
  [[nodiscard]] int64_t integer(std::string_view name) const { return get<int64_t>(name); }
  [[nodiscard]] double real(std::string_view name) const { return get<double>(name); }
  [[nodiscard]] const std::string& text(std::string_view name) const { return get<std::string>(name); }
  [[nodiscard]] const std::vector<int64_t>& list(std::string_view name) const {
    return get<std::vector<int64_t>>(name);
  }
};

/// Adds the nodes of an op and returns the name of its result.
using Lowering = std::function<std::string(Graph& graph, const Op& op)>;
/// Lowerings by the name of the op. A norm has none here: is_norm() knows it by its attributes.
using Lowerings = std::map<std::string, Lowering>;

void add_convolutions(Lowerings& to);
void add_pointwise(Lowerings& to);
void add_reductions(Lowerings& to);
void add_shapes(Lowerings& to);

/// True iff the op is a norm of ops/norm.
bool is_norm(const Op& op);
std::string lower_norm(Graph& graph, const Op& op);

/// y = activation(x)
std::string lower_activation(Graph& graph, const std::string& activation, const std::string& x, DType dtype);

/// Reshapes x from the sizes `from` to `to`. If both begin with the same size, the node takes the first size from its
/// input, so that the file serves any batch size.
std::string reshape(Graph& graph, const std::string& x, const Sizes& from, const Sizes& to);

}  // namespace norma::exporter
