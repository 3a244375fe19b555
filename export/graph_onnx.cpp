#include "export/graph_onnx.h"

#include "base/error.h"
#include "core/copy.h"
#include "core/factory.h"
#include "core/memory_format.h"
#include "ops/shape/copy.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

namespace norma::exporter {

int32_t onnx_dtype(DType dtype) {
  switch (dtype) {
    case DType::float32: return ::onnx::TensorProto::FLOAT;
    case DType::float64: return ::onnx::TensorProto::DOUBLE;
    case DType::float16: return ::onnx::TensorProto::FLOAT16;
    case DType::bfloat16: return ::onnx::TensorProto::BFLOAT16;
    case DType::int64: return ::onnx::TensorProto::INT64;
    case DType::int32: return ::onnx::TensorProto::INT32;
    case DType::uint8: return ::onnx::TensorProto::UINT8;
    case DType::boolean: return ::onnx::TensorProto::BOOL;
  }
  fail("export_onnx", "dtype: expected one that ONNX has, got {}", to_string(dtype));
}

Graph::Place Graph::place_of(const Tensor& x) {
  return {x.storage().get(), x.offset(), attribute(x.sizes()), attribute(x.strides()), x.dtype()};
}

std::string Graph::new_name(const std::string& type) {
  while (true) {  // a parameter of the network itself may be called Conv_1
    std::string name = fmt::format("{}_{}", type, ++counts_[type]);
    if (names_.insert(name).second) {
      return name;
    }
  }
}

void Graph::name_constant(const Tensor& x, const std::string& name) {
  const auto [known, is_new] = constant_names_.emplace(place_of(x), name);
  if (is_new && !names_.insert(name).second) {
    known->second = new_name(name);
  }
}

std::string Graph::value(const Tensor& x) {
  if (!x.defined()) {
    return "";
  }
  const Place place = place_of(x);
  if (const auto found = values_.find(place); found != values_.end()) {
    return found->second;
  }
  if (const auto found = constants_by_place_.find(place); found != constants_by_place_.end()) {
    return found->second;
  }
  const auto named = constant_names_.find(place);
  const std::string name = named != constant_names_.end() ? named->second : new_name("constant");
  constants_by_place_[place] = name;
  return add_constant(name, x);
}

std::string Graph::add_constant(const std::string& name, const Tensor& x) {
  constants_[name] = contiguous_copy(to_device(x.detach(), kCpu), MemoryFormat::contiguous);
  order_of_constants_.push_back(name);
  return name;
}

std::string Graph::shared_constant(const std::string& text, const std::string& type, const Tensor& x) {
  std::string& name = constants_by_text_[text];
  return name.empty() ? name = add_constant(new_name(type), x) : name;
}

std::string Graph::number(double value, DType dtype) {
  return shared_constant(fmt::format("{} {}", to_string(dtype), value), "number",
                         full({}, value, {.dtype = dtype, .device = kCpu}));
}

std::string Graph::numbers(double value, int64_t count, DType dtype) {
  return shared_constant(fmt::format("{} {} times {}", to_string(dtype), count, value), "numbers",
                         full({count}, value, {.dtype = dtype, .device = kCpu}));
}

std::string Graph::integers(const std::vector<int64_t>& values) {
  return shared_constant(
      fmt::format("{}", values), "integers",
      from_vector(values, {static_cast<int64_t>(values.size())}, {.dtype = DType::int64, .device = kCpu}));
}

std::string Graph::add(const std::string& type, const std::vector<std::string>& inputs, Attributes attributes,
                       const std::string& comment) {
  if (type == "Transpose") {
    std::string from = inputs.at(0);
    auto axes = std::get<std::vector<int64_t>>(attributes.begin()->second);
    if (const auto before = transposes_.find(from); before != transposes_.end()) {
      for (int64_t& axis : axes) {
        axis = before->second.second[static_cast<size_t>(axis)];
      }
      from = before->second.first;
    }
    if (std::ranges::is_sorted(axes)) {
      return from;
    }
    const std::string output = add_node(type, {from}, {{"perm", axes}}, comment);
    transposes_[output] = {from, axes};
    return output;
  }
  return add_node(type, inputs, attributes, comment);
}

std::string Graph::add_node(const std::string& type, const std::vector<std::string>& inputs, Attributes attributes,
                            const std::string& comment) {
  const std::string output = new_name(type);
  ::onnx::NodeProto& node = nodes_.emplace_back();
  node.set_op_type(type);
  node.set_name(output);
  if (!comment.empty()) {
    node.set_doc_string(comment);
  }
  for (const std::string& input : inputs) {
    node.add_input(input);
  }
  while (node.input_size() > 0 && node.input(node.input_size() - 1).empty()) {
    node.mutable_input()->RemoveLast();  // optional ones
  }
  node.add_output(output);
  for (const auto& [name, value] : attributes) {
    ::onnx::AttributeProto& attribute = *node.add_attribute();
    attribute.set_name(std::string(name));
    if (const auto* const number = std::get_if<int64_t>(&value)) {
      attribute.set_type(::onnx::AttributeProto::INT);
      attribute.set_i(*number);
    } else if (const auto* const real = std::get_if<double>(&value)) {
      attribute.set_type(::onnx::AttributeProto::FLOAT);
      attribute.set_f(static_cast<float>(*real));
    } else if (const auto* const text = std::get_if<std::string>(&value)) {
      attribute.set_type(::onnx::AttributeProto::STRING);
      attribute.set_s(*text);
    } else {
      attribute.set_type(::onnx::AttributeProto::INTS);
      for (const int64_t item : std::get<std::vector<int64_t>>(value)) {
        attribute.add_ints(item);
      }
    }
  }
  return output;
}

namespace {

constexpr size_t kPage = 4096;  ///< where constants outside begin, so that who reads the file can map them into memory

void add_entry(::onnx::TensorProto& proto, const std::string& key, const std::string& value) {
  ::onnx::StringStringEntryProto& entry = *proto.add_external_data();
  entry.set_key(key);
  entry.set_value(value);
}

/// The bytes of a constant go into the graph, or, for a larger one and with a data_file, to the end of `data`.
void write_constant(::onnx::TensorProto& proto, const std::string& name, const Tensor& x, const std::string& data_file,
                    std::string& data) {
  constexpr size_t kLeastOutside = 1024;
  proto.set_name(name);
  proto.set_data_type(onnx_dtype(x.dtype()));
  for (const int64_t size : x.sizes()) {
    proto.add_dims(size);
  }
  const auto* const bytes = static_cast<const char*>(x.device_pointer());
  const size_t count = static_cast<size_t>(x.numel()) * size_of(x.dtype());
  if (data_file.empty() || count < kLeastOutside) {
    proto.set_raw_data(bytes, count);
    return;
  }
  data.resize((data.size() + kPage - 1) / kPage * kPage);
  proto.set_data_location(::onnx::TensorProto::EXTERNAL);
  add_entry(proto, "location", data_file);
  add_entry(proto, "offset", std::to_string(data.size()));
  add_entry(proto, "length", std::to_string(count));
  data.append(bytes, count);
}

}  // namespace

::onnx::GraphProto Graph::finished(const std::string& output, const std::string& data_file, std::string& data) const {
  std::set<std::string> needed{output};
  std::vector<const ::onnx::NodeProto*> kept;
  for (auto node = nodes_.rbegin(); node != nodes_.rend(); ++node) {
    if (needed.contains(node->output(0))) {
      kept.push_back(&*node);
      needed.insert(node->input().begin(), node->input().end());
    }
  }
  ::onnx::GraphProto graph;
  for (auto node = kept.rbegin(); node != kept.rend(); ++node) {
    *graph.add_node() = **node;
  }
  if (!data_file.empty()) {  // growing by doubling would take another such memory
    size_t bytes = 0;
    for (const auto& [name, x] : constants_) {
      bytes += needed.contains(name) ? static_cast<size_t>(x.numel()) * size_of(x.dtype()) + kPage : 0;
    }
    data.reserve(bytes);
  }
  for (const std::string& name : order_of_constants_) {
    if (needed.contains(name)) {
      write_constant(*graph.add_initializer(), name, constants_.at(name), data_file, data);
    }
  }
  return graph;
}

}  // namespace norma::exporter
