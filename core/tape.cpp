#include "core/tape.h"

#include <algorithm>
#include <atomic>
#include <unordered_set>
#include <utility>

namespace norma {
namespace {

thread_local bool grad_enabled_ = true;
thread_local bool remakes_outputs_ = false;
std::atomic<uint64_t> next_sequence = 0;

/// The edge along which the gradient of `input` goes. Throws Error for a view whose history is old or lost.
Edge edge_to(std::string_view op, const Tensor& input) {
  if (!input.defined()) {
    return {};
  }
  check(!has_lost_history(input), op,
        "an input is a view whose storage was changed by a recorded op since; make the view again");
  if (!input.requires_grad()) {
    return {};
  }
  if (has_old_history(input)) {
    fail(op, "an input is a view made by {} whose storage was changed in place since; make the view again",
         input.impl().node->name);
  }
  return edge_of(input);
}

/// Hangs `node` on its output number `index`.
void attach(const Tensor& output, const std::shared_ptr<Node>& node, size_t index) {
  TensorImpl& impl = output.impl();
  impl.node = node;
  impl.output_index = index;
  impl.requires_grad = true;
  impl.node_version = output.version();
}

}  // namespace

bool grad_enabled() {
  return grad_enabled_;
}
void set_grad_enabled(bool enabled) {
  grad_enabled_ = enabled;
}
GradModeGuard::GradModeGuard(bool enabled) : Temporarily(grad_enabled_, enabled) {}

bool remakes_outputs() {
  return remakes_outputs_;
}
void set_remakes_outputs(bool on) {
  remakes_outputs_ = on;
}
RemakeGuard::RemakeGuard(bool on) : Temporarily(remakes_outputs_, on) {}

void offer_remake(const Tensor& output, RecomputeFunction recompute) {
  const std::shared_ptr<Node>& node = output.impl().node;
  if (!remakes_outputs_ || node == nullptr) {
    return;
  }
  node->remake_ops = 1;
  for (const SavedTensor& saved : node->saved) {
    node->remake_ops += saved.value().defined() ? 0 : saved.node()->remake_ops;
  }
  if (node->remake_ops < kMostRemakes) {
    node->recompute = std::move(recompute);
    node->remake_version = output.version();
  }
}

bool can_be_remade(const Tensor& x) {
  const std::shared_ptr<Node>& node = x.impl().node;
  return remakes_outputs_ && node != nullptr && node->recompute && !node->is_part() &&
         node->remake_version == x.version();
}

Edge edge_of(const Tensor& x) {
  const TensorImpl& impl = x.impl();
  return impl.node != nullptr ? Edge{.node = impl.node, .output_index = impl.output_index}
                              : Edge{.leaf = x.impl_pointer()};
}

uint64_t next_node_number() {
  return next_sequence;
}

bool has_lost_history(const Tensor& x) {
  const TensorImpl& impl = x.impl();
  return impl.is_view && impl.node == nullptr && impl.storage->recorded_version(impl.family) > impl.node_version;
}

bool has_old_history(const Tensor& x) {
  const TensorImpl& impl = x.impl();
  return impl.is_view && impl.node != nullptr && impl.node_version != x.version();
}

bool will_record(TensorList inputs) {
  return grad_enabled() && std::any_of(inputs.begin(), inputs.end(), [](const Tensor& x) {
           return x.defined() && (x.requires_grad() || has_lost_history(x));
         });
}

bool record_node(std::string_view op, TensorList inputs, TensorList outputs, TensorList saved,
                 BackwardFunction backward, RecomputeFunction recompute) {
  if (!will_record(inputs)) {
    return false;
  }
  const auto node = std::make_shared<Node>();
  node->name = op;
  node->sequence = next_sequence++;
  node->backward = std::move(backward);
  node->recompute = std::move(recompute);
  node->inputs.reserve(inputs.size());
  for (const Tensor& input : inputs) {
    node->inputs.push_back(edge_to(op, input));
  }
  node->saved.reserve(saved.size());
  for (size_t i = 0; i < saved.size(); ++i) {
    if (saved[i].defined()) {
      node->saved.emplace_back(saved[i], outputs, i);
    }
  }
  node->output_hooks.resize(outputs.size());
  for (const Tensor& output : outputs) {
    node->output_sizes.push_back(output.sizes());
    node->output_dtypes.push_back(output.dtype());
  }
  for (size_t i = 0; i < outputs.size(); ++i) {
    if (is_floating(outputs[i].dtype())) {  // positions, masks and the like carry no gradient
      attach(outputs[i], node, i);
    }
  }
  return true;
}

void check_in_place(std::string_view op, const Tensor& x, TensorList other_inputs) {
  check_defined(op, "x", x);
  for (int64_t axis = 0; axis < x.rank(); ++axis) {
    check(x.strides()[axis] != 0 || x.sizes()[axis] <= 1, op,
          "x: expected a place in memory for each element, got an expanded tensor (sizes {}, strides {})", x.sizes(),
          x.strides());
  }
  Tensors inputs{x};
  inputs.insert(inputs.end(), other_inputs.begin(), other_inputs.end());
  if (!will_record(inputs)) {
    return;
  }
  check(!(x.is_leaf() && x.requires_grad()), op,
        "x: a leaf that requires a gradient cannot be changed in place while gradients are on");
  check(!x.impl().is_view, op, "x: a view cannot be changed in place while gradients are on; clone() it first");
  for (const Tensor& other : other_inputs) {  // refuse before writing what recording would refuse
    edge_to(op, other);
  }
}

// --- saved tensors --------------------------------------------------------------------------------------------

SavedTensor::SavedTensor(const Tensor& x, std::span<const Tensor> outputs, size_t position)
    : position_(position), version_(x.version()) {
  if (!can_be_remade(x)) {
    value_ = x.detach();
  }
  const auto own = std::ranges::find_if(outputs, [&](const Tensor& output) { return output.is_same(x); });
  is_output_ = own != outputs.end();
  if (is_output_) {
    place_.output_index = static_cast<size_t>(own - outputs.begin());
  } else if (x.requires_grad()) {
    place_ = edge_of(x);
  }
}

Tensor SavedTensor::remade() const {
  Tensor result;
  {
    const NoGradGuard no_grad;
    result = place_.node->recompute(BackwardContext(place_.node, {}, /* create_graph= */ false))[0];
  }
  if (grad_enabled()) {
    attach(result, place_.node, place_.output_index);
  }
  return result;
}

Tensor SavedTensor::unpack(const std::shared_ptr<Node>& owner) const {
  if (!value_.defined()) {
    return remade();
  }
  check(value_.version() == version_, owner->name,
        "saved tensor {} ({}) was changed in place: it is at version {}, backward needs version {}", position_,
        describe(value_), value_.version(), version_);
  if (!grad_enabled()) {
    return value_;
  }
  if (place_.leaf != nullptr) {
    return Tensor(place_.leaf);
  }
  Tensor result = value_.detach();
  if (const std::shared_ptr<Node>& node = is_output_ ? owner : place_.node; node != nullptr) {
    attach(result, node, place_.output_index);
  }
  return result;
}

Tensor BackwardContext::saved(size_t i) const {
  const auto found = std::ranges::find(node_->saved, i, &SavedTensor::position);
  return found == node_->saved.end() ? Tensor() : found->unpack(node_);
}

// --- nodes ----------------------------------------------------------------------------------------------------

namespace {

/// Moves what `node` refers to onto `stack`.
void take_references(Node& node, std::vector<std::shared_ptr<Node>>& stack) {
  for (Edge& edge : node.inputs) {
    if (edge.node != nullptr) {
      stack.push_back(std::move(edge.node));
    }
  }
  for (const SavedTensor& saved : node.saved) {
    if (saved.node() != nullptr) {
      stack.push_back(saved.node());
    }
  }
  node.inputs.clear();
  node.saved.clear();
}

}  // namespace

Node::~Node() {
  // A chain of a million ops would otherwise take a million nested destructor calls.
  std::vector<std::shared_ptr<Node>> stack;
  take_references(*this, stack);
  while (!stack.empty()) {
    const std::shared_ptr<Node> node = std::move(stack.back());
    stack.pop_back();
    if (node.use_count() == 1) {
      take_references(*node, stack);
    }
  }
}

// --- the part of the tape that leads to some tensors -------------------------------------------------------------

Tape::Tape(const Tensors& roots, uint64_t first) {
  std::unordered_set<const Node*> seen;
  std::vector<std::shared_ptr<Node>> stack;
  auto visit = [&](const std::shared_ptr<Node>& node) {
    if (node != nullptr && node->sequence >= first && seen.insert(node.get()).second) {
      stack.push_back(node);
    }
  };
  for (const Tensor& root : roots) {
    visit(root.impl().node);
  }
  while (!stack.empty()) {
    const std::shared_ptr<Node> node = std::move(stack.back());
    stack.pop_back();
    for (const Edge& edge : node->inputs) {
      visit(edge.node);
    }
    nodes_.push_back(node);
  }
  std::ranges::sort(nodes_, {}, &Node::sequence);
}

}  // namespace norma
