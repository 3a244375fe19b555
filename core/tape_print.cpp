#include "core/tape.h"

#include <map>
#include <unordered_set>
#include <utility>

namespace norma {
namespace {

/// "1.5 MiB"
std::string bytes_text(size_t bytes) {
  constexpr double kStep = 1024;
  const char* const units[] = {"B", "KiB", "MiB", "GiB"};
  auto value = static_cast<double>(bytes);
  size_t unit = 0;
  while (value >= kStep && unit + 1 < std::size(units)) {
    value /= kStep;
    ++unit;
  }
  return fmt::format("{:.{}f} {}", value, unit == 0 ? 0 : 1, units[unit]);
}

/// Bytes each node is the first to save; leaves live anyway.
std::vector<size_t> saved_bytes_by_node(const std::vector<std::shared_ptr<Node>>& nodes) {
  std::unordered_set<const Storage*> seen;
  std::vector<size_t> bytes;
  for (const std::shared_ptr<Node>& node : nodes) {
    size_t sum = 0;
    for (const SavedTensor& saved : node->saved) {
      if (saved.value().defined() && !saved.is_leaf() && seen.insert(saved.value().storage().get()).second) {
        sum += saved.value().storage()->bytes();
      }
    }
    bytes.push_back(sum);
  }
  return bytes;
}

}  // namespace

size_t Tape::saved_bytes() const {
  size_t sum = 0;
  for (const size_t bytes : saved_bytes_by_node(nodes_)) {
    sum += bytes;
  }
  return sum;
}

std::string Tape::summary() const {
  struct Line {
    size_t count = 0;
    size_t bytes = 0;
  };
  std::map<std::pair<std::string, std::string_view>, Line> lines;
  const std::vector<size_t> bytes = saved_bytes_by_node(nodes_);
  for (size_t i = 0; i < nodes_.size(); ++i) {
    Line& line = lines[{nodes_[i]->name, to_string(nodes_[i]->output_dtypes.front())}];
    ++line.count;
    line.bytes += bytes[i];
  }
  constexpr auto kLine = "{:<28} {:<9} {:>8} {:>12}\n";
  std::string text = fmt::format(kLine, "op", "dtype", "recorded", "saved");
  for (const auto& [key, line] : lines) {
    text += fmt::format(kLine, key.first, key.second, line.count, bytes_text(line.bytes));
  }
  return text + fmt::format(kLine, "total", "", nodes_.size(), bytes_text(saved_bytes()));
}

std::string Tape::graphviz() const {
  std::string text = "digraph tape {\n  rankdir = BT;\n  node [shape = box];\n";
  const std::vector<size_t> bytes = saved_bytes_by_node(nodes_);
  std::unordered_set<const TensorImpl*> leaves;
  for (size_t i = 0; i < nodes_.size(); ++i) {
    const Node& node = *nodes_[i];
    text += fmt::format("  op{} [label = \"{}\\nsaves {}\"];\n", node.sequence, node.name, bytes_text(bytes[i]));
    for (const Edge& edge : node.inputs) {
      if (edge.node != nullptr) {
        text += fmt::format("  op{} -> op{} [label = \"{}\"];\n", edge.node->sequence, node.sequence,
                            to_string(edge.node->output_sizes[edge.output_index]));
      } else if (edge.leaf != nullptr) {
        const auto name = fmt::format("leaf{}", static_cast<const void*>(edge.leaf.get()));
        if (leaves.insert(edge.leaf.get()).second) {
          text += fmt::format("  \"{}\" [shape = ellipse, label = \"leaf {}\"];\n", name, to_string(edge.leaf->sizes));
        }
        text += fmt::format("  \"{}\" -> op{};\n", name, node.sequence);
      }
    }
  }
  return text + "}\n";
}

}  // namespace norma
