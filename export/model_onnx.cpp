#include "base/error.h"
#include "core/factory.h"
#include "core/tape.h"
#include "core/trace.h"
#include "core/version.h"
#include "export/graph_onnx.h"
#include "export/onnx.h"
#include "ops/pointwise/pointwise.h"
#include "ops/shape/join.h"
#include "ops/shape/view.h"

#include <algorithm>
#include <filesystem>
#include <limits>
#include <string_view>
#include <vector>

namespace norma {

namespace {

using exporter::Graph;
using exporter::Op;

constexpr std::string_view kOp = "export_onnx";
constexpr int64_t kFirstOpset = 18;
constexpr int64_t kLastOpset = 23;

/// A forward pass and what it did.
struct Pass {
  Tensor input;
  Tensor output;
  std::vector<TracedOp> ops;
};

Pass run(nn::Module& module, const Tensor& x) {
  const GradModeGuard recorded(true);  // else inference would take ops together that ONNX has one by one
  Tensor input = x.detach().set_requires_grad();
  const Trace trace;
  const Tensor output = module(input);
  return {.input = input, .output = output, .ops = trace.ops()};
}

void add_tensor_type(::onnx::ValueInfoProto& info, const std::string& name, const Tensor& x, bool dynamic_batch) {
  info.set_name(name);
  ::onnx::TypeProto::Tensor& type = *info.mutable_type()->mutable_tensor_type();
  type.set_elem_type(exporter::onnx_dtype(x.dtype()));
  for (int64_t axis = 0; axis < x.rank(); ++axis) {
    ::onnx::TensorShapeProto::Dimension& size = *type.mutable_shape()->add_dim();
    if (axis == 0 && dynamic_batch) {
      size.set_dim_param("batch");
    } else {
      size.set_dim_value(x.size(axis));
    }
  }
}

bool same_values(const Tensor& a, const Tensor& b) {
  if (!a.defined() || !b.defined()) {
    return a.defined() == b.defined();
  }
  const bool same_place = a.storage() == b.storage() && a.offset() == b.offset() && a.strides() == b.strides();
  return a.sizes() == b.sizes() && (same_place || a.to_vector<double>() == b.to_vector<double>());
}

/// Throws Error unless an op does in another pass, with another input, what it does in this one.
void check_same_op(const Graph& graph, const TracedOp& op, const TracedOp& other) {
  check(op.op == other.op && op.inputs.size() == other.inputs.size(), kOp,
        "expected the same ops for every input, got {} and {}", op.op, other.op);
  for (size_t i = 0; i < op.inputs.size(); ++i) {
    const Tensor& x = op.inputs[i];
    check(!x.defined() || graph.depends_on_input(x) || same_values(x, other.inputs[i]), kOp,
          "{}: input {} depends on the input of the network by an op that is not described (core/trace.h)", op.op, i);
  }
  for (const auto& [name, value] : op.attributes) {
    const auto found = other.attributes.find(name);
    check(found != other.attributes.end(), kOp, "{}: expected the same attributes for every input", op.op);
    if (const auto* const x = std::get_if<Tensor>(&value)) {
      check(graph.depends_on_input(*x) || same_values(*x, std::get<Tensor>(found->second)), kOp,
            "{}: {} depends on the input of the network by an op that is not described (core/trace.h)", op.op, name);
    } else {
      const bool same = std::visit(
          []<class A, class B>(const A& one, const B& another) {
            if constexpr (std::is_same_v<A, B> && !std::is_same_v<A, Tensor>) {
              return one == another;
            } else {
              return false;
            }
          },
          value, found->second);
      check(same, kOp, "{}: {}: expected the same value for every input", op.op, name);
    }
  }
}

/// Throws Error where sizes depend on the number of images in another place than the first axis.
void check_batch_axis(const TracedOp& op, int64_t images, const TracedOp& other, int64_t other_images) {
  const bool has_sizes_in_file = op.op == "view" || op.op == "expand";  // where the first stands for that of the input
  for (size_t i = 0; i < op.outputs.size(); ++i) {
    Sizes sizes = op.outputs[i].sizes();
    const Sizes& others = other.outputs[i].sizes();
    const bool images_first = !sizes.empty() && !others.empty() && sizes[0] == images && others[0] == other_images;
    if (images_first && (!has_sizes_in_file || op.inputs[0].sizes()[0] == images)) {
      sizes[0] = others[0];
    }
    check(sizes == others, kOp, "{}: expected the images in the first axis for dynamic_batch, got sizes {} and {}",
          op.op, to_string(op.outputs[i].sizes()), to_string(others));
  }
}

/// Throws Error where a variance divides by a number of elements that depends on the number of images: the file has one
/// number.
void check_divisor(const TracedOp& op, const TracedOp& other) {
  const auto correction = op.attributes.find("correction");
  if (correction == op.attributes.end() || std::get<int64_t>(correction->second) == 0 ||
      op.attributes.contains("running_mean")) {
    return;
  }
  const auto axes = op.attributes.find(op.attributes.contains("axes") ? "axes" : "reduce");
  for (const int64_t axis : std::get<std::vector<int64_t>>(axes->second)) {
    const Sizes& sizes = op.inputs[0].sizes();
    const Sizes& others = other.inputs[0].sizes();
    check(
        sizes[axis] == others[axis], kOp,
        "{}: correction: expected 0 over the images for dynamic_batch, since its share depends on their number, got {}",
        op.op, std::get<int64_t>(correction->second));
  }
}

/// Another input: other values and, if asked for, one image more.
Tensor other_input(const Tensor& example, bool more_images) {
  const NoGradGuard no_grad;
  const Tensor other = add(mul(example.detach(), -0.75), 0.125);
  return more_images ? cat({other, narrow(other, 0, 0, 1)}, 0) : other;
}

/// The nodes of all ops of `pass` that depend on its input. `other`, with another input, must have done the same.
Graph graph_of(const nn::Module& module, const Pass& pass, const Pass& other, const OnnxOptions& options) {
  Graph graph(options.opset);
  for (const auto& [name, x] : module.state_dict()) {
    graph.name_constant(x, name);
  }
  graph.define(pass.input, "input");
  check(pass.ops.size() == other.ops.size(), kOp, "expected the same ops for every input, got {} and {} of them",
        pass.ops.size(), other.ops.size());
  for (size_t i = 0; i < pass.ops.size(); ++i) {
    const TracedOp& traced = pass.ops[i];
    const auto depends = [&](const Tensor& x) { return x.defined() && graph.depends_on_input(x); };
    bool is_needed = std::ranges::any_of(traced.inputs, depends);
    for (const auto& [name, value] : traced.attributes) {
      const auto* const x = std::get_if<Tensor>(&value);
      is_needed = is_needed || (x != nullptr && depends(*x));
    }
    if (!is_needed) {
      continue;  // its results are constants
    }
    check_same_op(graph, traced, other.ops[i]);
    if (options.dynamic_batch) {
      check_batch_axis(traced, pass.input.size(0), other.ops[i], other.input.size(0));
      check_divisor(traced, other.ops[i]);
    }
    const Op op{graph, traced};
    const exporter::Lowering* const lowering = exporter::find_lowering(traced.op);
    check(exporter::is_norm(op) || lowering != nullptr, kOp, "expected ops that ONNX has, got {}", traced.op);
    graph.define(op.y(), exporter::is_norm(op) ? lower_norm(op) : (*lowering)(op));
  }
  check(graph.depends_on_input(pass.output), kOp,
        "expected an output that depends on the input by ops that are described (core/trace.h)");
  return graph;
}

}  // namespace

bool has_onnx() {
  return true;
}

void add_metadata(OnnxModel& model, const std::string& name, const std::string& text) {
  ::onnx::ModelProto more;
  ::onnx::StringStringEntryProto& entry = *more.add_metadata_props();
  entry.set_key(name);
  entry.set_value(text);
  model.bytes += more.SerializeAsString();  // who reads one message of protobuf behind another joins their lists
}

OnnxModel export_onnx(nn::Module& module, const Tensor& example, const OnnxOptions& options) {
  check_defined(kOp, "example", example);
  check(example.dtype() == DType::float32 || example.dtype() == DType::float64, kOp,
        "example: expected float32 or float64, got {}", to_string(example.dtype()));
  check(example.rank() > 0 && example.numel() > 0, kOp, "example: expected an image at least, got sizes {}",
        to_string(example.sizes()));
  check(options.opset >= kFirstOpset && options.opset <= kLastOpset, kOp, "opset: expected {} to {}, got {}",
        kFirstOpset, kLastOpset, options.opset);
  check(std::filesystem::path(options.data_file).filename() == options.data_file, kOp,
        "data_file: expected a name without a folder, got '{}'", options.data_file);
  for (const auto& [name, x] : module.state_dict()) {
    check(!is_floating(x.dtype()) || x.dtype() == example.dtype(), kOp,
          "{}: expected the dtype of the example, {}, got {}", name, to_string(example.dtype()), to_string(x.dtype()));
  }
  const nn::Modes modes(module);
  module.eval();
  const Pass pass = run(module, example);
  const Pass other = run(module, other_input(example, options.dynamic_batch));
  Graph graph = graph_of(module, pass, other, options);

  ::onnx::ModelProto model;
  constexpr int64_t kFirstWithIr9 = 19;  // each opset needs a version of the format itself
  constexpr int64_t kFirstWithIr10 = 21;
  constexpr int64_t kFirstWithIr11 = 23;
  model.set_ir_version(options.opset >= kFirstWithIr11   ? 11
                       : options.opset >= kFirstWithIr10 ? 10
                       : options.opset >= kFirstWithIr9  ? 9
                                                         : 8);
  model.set_producer_name("norma");
  model.set_producer_version(std::string(version()));
  ::onnx::OperatorSetIdProto& opset = *model.add_opset_import();
  opset.set_domain("");
  opset.set_version(options.opset);
  // The output has a name of its own, by a node that is there for this alone.
  OnnxModel result{.bytes = {}, .data_file = options.data_file, .data = {}};
  const std::string output = graph.value(pass.output);
  *model.mutable_graph() = graph.finished(output, options.data_file, result.data);
  ::onnx::NodeProto& last = *model.mutable_graph()->add_node();
  last.set_op_type("Identity");
  last.set_name("output");
  last.add_input(output);
  last.add_output("output");
  model.mutable_graph()->set_name(module.name());
  add_tensor_type(*model.mutable_graph()->add_input(), "input", pass.input, options.dynamic_batch);
  add_tensor_type(*model.mutable_graph()->add_output(), "output", pass.output, options.dynamic_batch);
  check(model.ByteSizeLong() < static_cast<size_t>(std::numeric_limits<int>::max()), kOp,
        "data_file: expected a second file for the weights of a network of 2 GiB and more, got {} bytes in one file",
        model.ByteSizeLong());
  check(model.SerializeToString(&result.bytes), kOp, "protobuf cannot write the file");
  if (result.data.empty()) {
    result.data_file.clear();
  }
  return result;
}

}  // namespace norma
