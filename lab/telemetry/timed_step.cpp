#include "lab/telemetry/timed_step.h"

#include "base/lists.h"
#include "core/device.h"
#include "core/memory_format.h"
#include "lab/telemetry/visit_tape.h"
#include "ops/conv/kernels.h"
#include "ops/matmul/kernels.h"

#include <algorithm>
#include <any>
#include <map>
#include <tuple>
#include <unordered_set>
#include <utility>

namespace norma::lab {

namespace {

/// The memory format, or "strided" for neither format without gaps.
std::string format_text(const Sizes& sizes, const Strides& strides) {
  if (is_contiguous(sizes, strides)) {
    return "contiguous";
  }
  return is_channels_last_contiguous(sizes, strides) ? "channels_last" : "strided";
}

void add(PassTime& time, LayerKind kind, const OpRecord& record) {
  if (kind == LayerKind::norm) {
    time.norm += record.seconds;
  } else if (std::any_cast<kernels::Conv2dCall>(&record.work.call) != nullptr) {
    time.convolution += record.seconds;
  } else if (std::any_cast<kernels::MatmulCase>(&record.work.call) != nullptr) {
    time.product += record.seconds;
  }
}

}  // namespace

std::vector<SavedBytes> saved_by_layer(const Tape& tape, const LayerTable& table, const LayerLog& log) {
  std::vector<int64_t> bytes(table.layers().size(), 0);
  std::unordered_set<const Storage*> seen;
  for (const std::shared_ptr<Node>& node : tape.nodes()) {
    const size_t layer = log.layer_of_node(node->sequence);
    for (const SavedTensor& saved : node->saved) {
      const Tensor& x = saved.value();
      if (x.defined() && !saved.is_leaf() && seen.insert(x.storage().get()).second) {
        bytes[layer] += static_cast<int64_t>(x.storage()->bytes());
      }
    }
  }
  std::vector<SavedBytes> result;
  for (size_t layer = 0; layer < bytes.size(); ++layer) {
    if (bytes[layer] > 0) {
      result.push_back(
          {.layer = table.layers()[layer].name, .kind = table.layers()[layer].kind, .bytes = bytes[layer]});
    }
  }
  return result;
}

TimedStep::TimedStep(const LayerTable& table, std::function<void(StepFindings)> done)
    : table_(table), done_(std::move(done)), log_(table, &profile_) {
  synchronize(default_device());  // ends the work before
  start_.record();
}

void TimedStep::after_forward(const Tensor& loss, double /*grad_scale*/) {
  forward_end_.record();
  forward_records_ = profile_.size();
  {
    saved_ = saved_by_layer(Tape(loss), table_, log_);
    visit_tape({loss}, [this](const Tape& tape) { watch(tape.nodes()); });
  }
  backward_start_.record();
}

void TimedStep::watch(const std::vector<std::shared_ptr<Node>>& nodes) {
  for (const std::shared_ptr<Node>& node : nodes) {
    node_names_.emplace(node->sequence, node->name);
    if (node->is_part()) {  // its part of the tape is watched when it is there
      continue;
    }
    node->backward = [this, number = node->sequence, inner = std::move(node->backward)](
                         const Tensors& gradients, const BackwardContext& context) {
      const size_t begin = profile_.size();
      Tensors results = inner(gradients, context);
      spans_.push_back({.begin = begin, .end = profile_.size(), .node = number});
      return results;
    };
  }
}

void TimedStep::after_backward() {
  backward_end_.record();
  backward_records_ = profile_.size();
  update_start_.record();
}

void TimedStep::after_update() {
  end_.record();
  const std::vector<Origin> made_by = origins();
  done_({.time = times(made_by), .saved = std::move(saved_), .ledger = copies(made_by)});
}

std::vector<TimedStep::Origin> TimedStep::origins() const {
  const std::vector<OpRecord>& records = profile_.records();
  std::vector<Origin> result;
  result.reserve(records.size());
  const auto in_forward = [&](size_t i) -> Origin {
    const auto* copy = std::any_cast<CopyCall>(&records[i].work.call);
    const auto maker = copy == nullptr ? node_names_.end() : node_names_.find(copy->node);
    return {.op = maker == node_names_.end() ? records[i].work.op : maker->second, .layer = log_.layer_of_record(i)};
  };
  for (size_t i = 0; i < forward_records_; ++i) {
    result.push_back(in_forward(i));
  }
  auto span = spans_.begin();
  for (size_t i = forward_records_; i < backward_records_; ++i) {
    while (span != spans_.end() && span->end <= i) {
      ++span;
    }
    if (span != spans_.end() && span->begin <= i) {
      result.push_back({.op = node_names_.at(span->node), .layer = log_.layer_of_node(span->node)});
    } else if (records[i].pass == OpPass::forward) {  // that runs again (nn/checkpoint.h)
      result.push_back(in_forward(i));
    } else {  // between two ops, and at the leaves
      result.push_back({.op = "gradient", .layer = table_.none()});
    }
  }
  result.resize(records.size(), {.op = "update", .layer = table_.none()});
  return result;
}

StepTime TimedStep::times(const std::vector<Origin>& origins) const {
  StepTime time{.samples = 1,
                .forward = forward_end_.seconds_since(start_),
                .backward = backward_end_.seconds_since(backward_start_),
                .optimizer = end_.seconds_since(update_start_)};
  PassTime forward;
  PassTime backward;
  const std::vector<OpRecord>& records = profile_.records();
  for (size_t i = 0; i < backward_records_; ++i) {
    add(i < forward_records_ ? forward : backward, table_.layers()[origins[i].layer].kind, records[i]);
  }
  forward.rest = time.forward - forward.total();
  backward.rest = time.backward - backward.total();
  time.forward_split = forward;
  time.backward_split = backward;
  return time;
}

bool TimedStep::belongs_in_ledger(const CopyCall& copy, size_t layer) const {
  int64_t elements = 1;
  bool same_order = true;
  for (int64_t axis = 0; axis < copy.sizes.size(); ++axis) {
    elements *= copy.sizes[axis];
    same_order = same_order && (copy.sizes[axis] == 1 || copy.from[axis] == copy.to[axis]);
    if (copy.from[axis] == 0 && copy.sizes[axis] > 1) {
      return false;  // a number is repeated, as when a weight is spread over pixels
    }
  }
  if (!same_order) {
    return true;
  }
  // Gradients of parameters and statistics get memory of their own, which is no copy of an image.
  const int64_t images = log_.image_elements(layer);
  return copy.from_dtype == copy.to_dtype && images > 0 && 2 * elements >= images &&
         !table_.is_size_of_parameter(elements);
}

std::vector<LayoutCopy> TimedStep::copies(const std::vector<Origin>& origins) const {
  using Key = std::tuple<OpPass, size_t, std::string, std::string, std::string>;
  std::map<Key, LayoutCopy> found;
  const std::vector<OpRecord>& records = profile_.records();
  for (size_t i = 0; i < records.size(); ++i) {
    const OpRecord& record = records[i];
    const auto* copy = std::any_cast<CopyCall>(&record.work.call);
    if (copy == nullptr) {
      continue;
    }
    if (!belongs_in_ledger(*copy, origins[i].layer)) {
      continue;
    }
    const std::string from = format_text(copy->sizes, copy->from);
    const std::string to = format_text(copy->sizes, copy->to);
    LayoutCopy& line = found[{record.pass, origins[i].layer, origins[i].op, from, to}];
    line.op = origins[i].op;
    line.layer = table_.layers()[origins[i].layer].name;
    line.pass = record.pass;
    line.from = from;
    line.to = to;
    ++line.count;
    line.bytes += static_cast<int64_t>(record.work.bytes);
  }
  return mapped(found, [](const auto& one) { return one.second; });
}

}  // namespace norma::lab
