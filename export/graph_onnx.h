#pragma once

#include "core/trace.h"

#include <onnx/onnx_pb.h>

#include <cstdint>
#include <functional>
#include <initializer_list>
#include <map>
#include <set>
#include <stdexcept>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <variant>
#include <vector>

namespace norma::exporter {

/// Sizes, strides or axes as an attribute.
template <class Range>
std::vector<int64_t> attribute(const Range& range) {
  return {range.begin(), range.end()};
}

/// A graph of ONNX that grows node by node. Values are known by their names.
class Graph {
 public:
  using Attribute = std::variant<int64_t, double, std::string, std::vector<int64_t>>;
  using Attributes = std::initializer_list<std::pair<std::string_view, Attribute>>;

  explicit Graph(int64_t opset) : opset_(opset) {}

  [[nodiscard]] int64_t opset() const { return opset_; }

  // --- tensors of a trace ----------------------------------------------------------------------------------------
  /// The elements of x are those of the value `name` from now on.
  void define(const Tensor& x, const std::string& name) { values_[place_of(x)] = name; }
  /// True iff they were defined: they depend on the input of the network.
  [[nodiscard]] bool depends_on_input(const Tensor& x) const { return values_.contains(place_of(x)); }
  /// The name that the elements of x get if they become a constant of the graph, with a number behind it if the graph
  /// has a value of that name, such as its input.
  void name_constant(const Tensor& x, const std::string& name);
  /// The name of x's value. Elements that nobody defined become a constant. "" for an undefined x.
  std::string value(const Tensor& x);

  // --- constants -------------------------------------------------------------------------------------------------
  /// One number, of x's dtype.
  std::string number(double value, DType dtype);
  /// The same number for each of `count` channels.
  std::string numbers(double value, int64_t count, DType dtype);
  /// Sizes, axes or positions: int64, rank 1.
  std::string integers(const std::vector<int64_t>& values);

  // --- nodes -----------------------------------------------------------------------------------------------------
  /// Adds a node with one output and returns that one's name. `comment` becomes its doc_string. A Transpose behind
  /// another one is joined with it, and left out if both together change nothing.
  std::string add(const std::string& type, const std::vector<std::string>& inputs, Attributes attributes = {},
                  const std::string& comment = "");

  /// The whole graph with this output; nodes and constants that it does not need are left out. Unless `data_file` is
  /// "", constants of 1 KiB and more are added to `data`, the bytes of a file of that name, and the graph says where.
  [[nodiscard]] ::onnx::GraphProto finished(const std::string& output, const std::string& data_file,
                                            std::string& data) const;

 private:
  /// The same place means the same elements in the same order, as long as nothing is changed in place.
  using Place = std::tuple<const Storage*, int64_t, std::vector<int64_t>, std::vector<int64_t>, DType>;
  static Place place_of(const Tensor& x);

  std::string new_name(const std::string& type);
  std::string add_constant(const std::string& name, const Tensor& x);
  /// x, under one name for each text.
  std::string shared_constant(const std::string& text, const std::string& type, const Tensor& x);
  std::string add_node(const std::string& type, const std::vector<std::string>& inputs, Attributes attributes,
                       const std::string& comment);

  int64_t opset_;
  std::vector<::onnx::NodeProto> nodes_;
  std::map<std::string, Tensor> constants_;  ///< contiguous, on the CPU
  std::vector<std::string> order_of_constants_;
  std::map<Place, std::string> values_;
  std::map<Place, std::string> constant_names_;
  std::map<Place, std::string> constants_by_place_;
  std::map<std::string, std::string> constants_by_text_;
  std::map<std::string, int64_t> counts_;
  std::set<std::string> names_{"input", "output"};  ///< that are taken
  /// Of each result of a Transpose: what went in, and the order of its axes.
  std::map<std::string, std::pair<std::string, std::vector<int64_t>>> transposes_;
};

/// The number that ONNX has for a dtype. Throws Error for one that it lacks.
int32_t onnx_dtype(DType dtype);

/// An op of the trace that is to become nodes.
struct Op {
  Graph& graph;
  const TracedOp& traced;

  /// The name of the value of an input.
  [[nodiscard]] std::string in(size_t number) const { return graph.value(traced.inputs.at(number)); }
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
using Lowering = std::function<std::string(const Op& op)>;
/// The lowering of an op of this name; null if ONNX has none. A norm has none here: is_norm() knows it by its
/// attributes.
const Lowering* find_lowering(const std::string& name);

/// True iff the op is a norm of ops/norm.
bool is_norm(const Op& op);
std::string lower_norm(const Op& op);

/// y = activation(x)
std::string lower_activation(Graph& graph, const std::string& activation, const std::string& x, DType dtype);

/// Reshapes x from the sizes `from` to `to`. If both begin with the same size, the node takes the first size from its
/// input, so that the file serves any batch size.
std::string reshape(Graph& graph, const std::string& x, const Sizes& from, const Sizes& to);

}  // namespace norma::exporter
