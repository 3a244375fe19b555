#include "base/excerpt.h"
#include "core/tape.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <utility>

namespace norma {
namespace {

/// A text as it stands between quotes in Graphviz's language.
std::string in_quotes(std::string_view text) {
  std::string result;
  for (const char c : text) {
    result += c == '"' || c == '\\' ? "\\" : "";
    result += c;
  }
  return result;
}

/// Bytes that each node is the first to save; leaves live anyway.
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
  const std::vector<size_t> bytes = saved_bytes_by_node(nodes_);
  return std::accumulate(bytes.begin(), bytes.end(), size_t{0});
}

std::string Tape::summary() const {
  struct Line {
    size_t count = 0;
    size_t bytes = 0;
    size_t released = 0;

    [[nodiscard]] std::string saved() const { return count > 0 && released == count ? "released" : byte_text(bytes); }
  };
  Line total;
  std::map<std::pair<std::string, std::string_view>, Line> lines;
  const std::vector<size_t> bytes = saved_bytes_by_node(nodes_);
  size_t recomputed = 0;
  for (size_t i = 0; i < nodes_.size(); ++i) {
    recomputed += nodes_[i]->is_part() ? 1 : 0;
    Line& line = lines[{nodes_[i]->name, to_string(nodes_[i]->output_dtypes.front())}];
    for (Line* sum : {&line, &total}) {
      ++sum->count;
      sum->bytes += bytes[i];
      sum->released += nodes_[i]->released ? 1 : 0;
    }
  }
  constexpr auto kLine = "{:<28} {:<9} {:>8} {:>12}\n";
  std::string text = fmt::format(kLine, "op", "dtype", "recorded", "saved");
  for (const auto& [key, line] : lines) {
    text += fmt::format(kLine, key.first, key.second, line.count, line.saved());
  }
  text += fmt::format(kLine, "total", "", total.count, total.saved());
  if (recomputed > 0) {
    text += fmt::format("{} of the ops stand for a part of the tape that backward() records again\n", recomputed);
  }
  return text;
}

std::string Tape::graphviz(const NamedLeaves& names) const {
  std::string text = "digraph tape {\n  rankdir = BT;\n  node [shape = box];\n";
  const std::vector<size_t> bytes = saved_bytes_by_node(nodes_);
  std::unordered_map<const TensorImpl*, size_t> leaves;  // each leaf's number
  for (size_t i = 0; i < nodes_.size(); ++i) {
    const Node& node = *nodes_[i];
    const std::string saves = node.released ? "released" : "saves " + byte_text(bytes[i]);
    text += fmt::format("  op{} [label = \"{}\\n{}\"];\n", i + 1, node.name, saves);
    for (const Edge& edge : node.inputs) {
      if (edge.node != nullptr) {
        const auto from = std::lower_bound(nodes_.begin(), nodes_.end(), edge.node->sequence,
                                           [](const auto& one, uint64_t sequence) { return one->sequence < sequence; });
        if (from != nodes_.end() && *from == edge.node) {  // a node before the first one asked for is not shown
          text += fmt::format("  op{} -> op{} [label = \"{}\"];\n", from - nodes_.begin() + 1, i + 1,
                              to_string(edge.node->output_sizes[edge.output_index]));
        }
      } else if (edge.leaf != nullptr) {
        const auto [leaf, fresh] = leaves.try_emplace(edge.leaf.get(), leaves.size() + 1);
        if (fresh) {
          const auto name = std::find_if(names.begin(), names.end(), [&](const auto& one) {
            return one.second.defined() && &one.second.impl() == edge.leaf.get();
          });
          text += fmt::format("  leaf{} [shape = ellipse, label = \"{}\\n{}\"];\n", leaf->second,
                              name != names.end() ? in_quotes(name->first) : fmt::format("leaf {}", leaf->second),
                              to_string(edge.leaf->sizes));
        }
        text += fmt::format("  leaf{} -> op{};\n", leaf->second, i + 1);
      }
    }
  }
  return text + "}\n";
}

}  // namespace norma
