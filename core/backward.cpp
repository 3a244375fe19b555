#include "base/lists.h"
#include "core/anomaly.h"
#include "core/base_ops.h"
#include "core/copy.h"
#include "core/factory.h"
#include "core/op.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <map>
#include <memory>
#include <unordered_map>
#include <unordered_set>
#include <utility>

namespace norma {
namespace {

/// True iff nobody but `x` can see its elements, so that they may be overwritten. Elements of an expanded tensor share
/// places.
bool owned_by_one(const Tensor& x) {
  return x.impl_pointer().use_count() == 1 && x.storage().use_count() == 1 && is_non_overlapping_and_dense(x);
}

/// slot += gradient, where an undefined slot is zero.
void add_to(Tensor& slot, Tensor gradient) {
  if (!slot.defined()) {
    slot = std::move(gradient);
  } else if (!grad_enabled() && owned_by_one(slot)) {
    accumulate_into(slot, gradient);
  } else {
    slot = accumulate(slot, gradient);
  }
}

void run_hooks(const std::vector<GradientHook>& hooks, Tensor& gradient) {
  for (const GradientHook& hook : hooks) {
    if (Tensor replaced = hook(gradient); replaced.defined()) {
      check_like("hook", "gradient", replaced, gradient.sizes(), gradient);
      gradient = std::move(replaced);
    }
  }
}

/// The number of the first node that can lie between the targets and a root: nodes recorded before all targets lead to
/// none of them.
uint64_t first_of_interest(const Tensors& targets) {
  uint64_t first = std::numeric_limits<uint64_t>::max();
  for (const Tensor& target : targets) {
    first = std::min(first, target.is_leaf() ? 0 : target.impl().node->sequence);
  }
  return first;
}

/// One walk over the tape, from last to first.
class BackwardWalk {
 public:
  /// `first`: nodes before this number are left alone.
  BackwardWalk(const Tensors& roots, const Tensors& gradients, const BackwardOptions& options, uint64_t first = 0)
      : options_(options), tape_(roots, first) {
    for (const std::shared_ptr<Node>& node : tape_.nodes()) {
      check(!node->released, "backward",
            "this graph was walked before and what {} had saved is gone; pass retain_graph = true the first time",
            node->name);
    }
    for (size_t i = 0; i < roots.size(); ++i) {
      deliver(edge_of(roots[i]), gradients[i]);
    }
  }

  /// Only nodes on the way to `targets` will run. Without this call all do.
  void restrict_to(const Tensors& targets) {
    restricted_ = true;
    for (const Tensor& target : targets) {
      wanted_.emplace(key_of(edge_of(target)), Tensor());
    }
    find_leading(tape_);
  }

  void run() {
    const GradModeGuard mode(options_.create_graph);
    const OpPassGuard pass(OpPass::backward);
    const AutocastOff no_autocast;  // gradients have the dtypes that forward gave them
    const auto& nodes = tape_.nodes();
    if (options_.on_leaf) {
      count_uses_of_leaves();
    }
    for (auto node = nodes.rbegin(); node != nodes.rend(); ++node) {
      step(*node);
      if (options_.on_leaf) {
        tell_of_leaves(**node);
      }
    }
    convert_leaf_gradients();
    for (auto& [leaf, gradient] : leaves_) {
      run_hooks(leaf->hooks, gradient);
    }
  }

  /// The gradient that arrived at a target; undefined if none did.
  Tensor gradient_of(const Tensor& target) const {
    const Edge edge = edge_of(target);
    if (edge.leaf != nullptr) {
      return gradient_of(edge.leaf.get());
    }
    const auto found = wanted_.find(key_of(edge));  // not there if a hook has changed the target in place
    return found == wanted_.end() ? Tensor() : found->second;
  }

  /// Adds to the .grad of every leaf reached.
  void accumulate_in_leaves() {
    const GradModeGuard mode(options_.create_graph);
    const OpPassGuard pass(OpPass::backward);
    Tensors sums;  // which one call adds to
    Tensors more;
    for (auto& [leaf, gradient] : leaves_) {
      if (!leaf->grad.defined()) {
        leaf->grad = as_own_gradient(*leaf, std::move(gradient));
      } else if (!grad_enabled() && owned_by_one(leaf->grad)) {
        sums.push_back(leaf->grad);
        more.push_back(std::move(gradient));
      } else {
        add_to(leaf->grad, std::move(gradient));
      }
    }
    accumulate_all_into(sums, more);
  }

 private:
  using Key = std::pair<const void*, size_t>;

  struct Leaf {
    std::shared_ptr<TensorImpl> leaf;
    Tensor gradient;
  };

  static Key key_of(const Edge& edge) {
    return edge.leaf != nullptr ? Key{edge.leaf.get(), 0} : Key{edge.node.get(), edge.output_index};
  }

  bool is_wanted(const Edge& edge) const {
    return edge.connected() && (!restricted_ || wanted_.contains(key_of(edge)) || leading_.contains(edge.node.get()));
  }

  Tensor gradient_of(const TensorImpl* leaf) const {
    const auto found = leaf_numbers_.find(leaf);
    return found == leaf_numbers_.end() ? Tensor() : leaves_[found->second].gradient;
  }

  void deliver(const Edge& edge, Tensor gradient) {
    if (edge.leaf != nullptr) {
      const auto [number, is_first] = leaf_numbers_.try_emplace(edge.leaf.get(), leaves_.size());
      if (is_first) {
        leaves_.push_back({edge.leaf, std::move(gradient)});
      } else {  // each is converted before they are added
        Tensor& sum = leaves_[number->second].gradient;
        sum = cast(sum, edge.leaf->dtype);
        add_to(sum, cast(gradient, edge.leaf->dtype));
      }
      return;
    }
    Tensors& slots = pending_[edge.node.get()];
    slots.resize(edge.node->output_sizes.size());
    add_to(slots[edge.output_index], std::move(gradient));
  }

  void find_leading(const Tape& tape) {
    for (const std::shared_ptr<Node>& node : tape.nodes()) {  // inputs come before those that use them
      if (std::ranges::any_of(node->inputs, [&](const Edge& edge) { return is_wanted(edge); })) {
        leading_.insert(node.get());
      }
    }
  }

  void step(const std::shared_ptr<Node>& node) {
    auto entry = pending_.extract(node.get());
    if (entry.empty()) {
      return;  // no gradient came this way
    }
    Tensors& gradients = entry.mapped();
    for (size_t i = 0; i < gradients.size(); ++i) {
      if (gradients[i].defined()) {
        run_hooks(node->output_hooks[i], gradients[i]);
        if (const auto target = wanted_.find({node.get(), i}); target != wanted_.end()) {
          target->second = gradients[i];
        }
      }
    }
    if (!restricted_ || leading_.contains(node.get())) {
      if (node->is_part()) {
        walk_again(node, gradients);
      } else {
        propagate(node, gradients);
      }
      if (!options_.retain_graph && !options_.create_graph) {
        if (node->is_part()) {
          node->recompute = nullptr;
        }
        node->saved.clear();
        node->backward = nullptr;
        node->released = true;
      }
    }
  }

  void count_uses_of_leaves() {
    for (const std::shared_ptr<Node>& node : tape_.nodes()) {
      for (const Edge& edge : node->inputs) {
        if (edge.leaf != nullptr) {
          ++uses_to_come_[edge.leaf.get()];
        }
      }
    }
  }

  /// Call it after the last thing that `node` may add.
  void tell_of_leaves(const Node& node) {
    for (const Edge& edge : node.inputs) {
      if (edge.leaf != nullptr && --uses_to_come_[edge.leaf.get()] == 0) {
        options_.on_leaf(Tensor(edge.leaf), gradient_of(edge.leaf.get()));
      }
    }
  }

  /// Walks the part of the tape that `node` stands for (record_node()). Its edges end where those of the node do.
  void walk_again(const std::shared_ptr<Node>& node, Tensors& gradients) {
    const uint64_t first = next_node_number();
    Tensors outputs;
    {
      const GradModeGuard on(true);
      outputs = node->recompute(BackwardContext(node, {}, options_.create_graph));
    }
    check(outputs.size() == gradients.size(), node->name, "backward: expected {} outputs of the second pass, got {}",
          gradients.size(), outputs.size());
    for (size_t i = 0; i < outputs.size(); ++i) {  // a module that follows a count of its own may give others
      check(outputs[i].sizes() == node->output_sizes[i] && outputs[i].dtype() == node->output_dtypes[i], node->name,
            "backward: expected an output of the second pass of {} {}, as the first gave, got {} {}",
            to_string(node->output_dtypes[i]), node->output_sizes[i], to_string(outputs[i].dtype()),
            outputs[i].sizes());
    }
    const Tape part(outputs, first);
    check_stays_inside(*node, part, first);
    if (restricted_) {
      find_leading(part);
    }
    for (size_t i = 0; i < outputs.size(); ++i) {
      if (gradients[i].defined() && outputs[i].requires_grad()) {
        deliver(edge_of(outputs[i]), std::move(gradients[i]));
      }
    }
    gradients.clear();
    outputs.clear();  // the ops that need one have saved it
    for (auto again = part.nodes().rbegin(); again != part.nodes().rend(); ++again) {
      step(*again);
    }
  }

  /// Throws Error if the part reads a leaf or a tensor of the older tape that is no input of `node`: its gradient would
  /// be lost, since the tape of the root does not lead there.
  static void check_stays_inside(const Node& node, const Tape& part, uint64_t first) {
    const auto is_input = [&](const Edge& edge) {
      return std::ranges::any_of(node.inputs, [&](const Edge& input) { return key_of(input) == key_of(edge); });
    };
    for (const std::shared_ptr<Node>& inner : part.nodes()) {
      for (const Edge& edge : inner->inputs) {
        const bool inside = edge.node != nullptr && edge.node->sequence >= first;
        check(!edge.connected() || inside || is_input(edge), node.name,
              "backward: expected no tensors from outside but the inputs, got {}",
              edge.node == nullptr ? "a leaf" : "one that " + edge.node->name + " made");
      }
    }
  }

  void propagate(const std::shared_ptr<Node>& node, Tensors& gradients) {
    const size_t count = node->inputs.size();
    const auto needs = std::make_unique<bool[]>(count);
    for (size_t i = 0; i < count; ++i) {
      needs[i] = is_wanted(node->inputs[i]);
    }
    Tensors results;
    try {
      results = node->backward(gradients, BackwardContext(node, {needs.get(), count}, options_.create_graph));
    } catch (const NotFinite& found) {  // from an op that the backward function calls
      throw NotFinite(fmt::format("{}: backward: {}", node->name, found.what()), node->sequence);
    } catch (const std::exception&) {
      throw;
    } catch (...) {  // by an op of a plug-in
      fail(node->name, "backward: it threw something that is no std::exception");
    }
    gradients.clear();  // so that a gradient which was passed on has one owner
    check(results.size() == count, node->name, "backward: expected {} gradients, got {}", count, results.size());
    if (anomaly_enabled()) {
      check_backward_is_finite(node->name, results, node->sequence);
    }
    for (size_t i = 0; i < count; ++i) {
      if (results[i].defined() && needs[i]) {
        const Edge& edge = node->inputs[i];
        const Sizes& expected = edge.leaf != nullptr ? edge.leaf->sizes : edge.node->output_sizes[edge.output_index];
        check(results[i].sizes() == expected, node->name,
              "backward: expected a gradient of sizes {} for input {}, got {}", expected, i, results[i].sizes());
        deliver(edge, std::move(results[i]));
      }
    }
  }

  /// Gives the leaves' gradients the dtypes of their leaves; record_cast_of_leaf() left them in its own.
  void convert_leaf_gradients() {
    Tensors from;
    Tensors to;
    for (auto& [leaf, gradient] : leaves_) {
      if (gradient.dtype() != leaf->dtype) {
        from.push_back(gradient);
        gradient = empty_strided(leaf->sizes, preserved_strides(leaf->sizes, leaf->strides),
                                 {.dtype = leaf->dtype, .device = gradient.device()});
        to.push_back(gradient);
      }
    }
    copy_all_into(from, to);
  }

  // The leaf's .grad gets memory of its own, in the leaf's strides: optimizers walk both side by side, and clipping
  // changes it in place.
  Tensor as_own_gradient(const TensorImpl& leaf, Tensor gradient) const {
    const bool dense = is_non_overlapping_and_dense(leaf.sizes, leaf.strides);
    const bool fits = !dense || gradient.strides() == leaf.strides;
    if (fits && owned_by_one(gradient)) {
      return gradient;
    }
    Tensor copy = dense ? empty_strided(leaf.sizes, leaf.strides, {.dtype = leaf.dtype, .device = gradient.device()})
                        : empty_like(gradient);
    copy_into(gradient, copy);
    if (!options_.create_graph) {
      return copy;
    }
    return Op("clone").record({gradient}, copy, {},
                              [](const Tensor& dy, const BackwardContext&) -> Tensors { return {dy}; });
  }

  BackwardOptions options_;
  Tape tape_;
  bool restricted_ = false;
  std::map<Key, Tensor> wanted_;  // the targets, with the gradients of those that are no leaves
  std::unordered_set<const Node*> leading_;
  std::unordered_map<const Node*, Tensors> pending_;
  std::vector<Leaf> leaves_;  // in the order in which they were reached
  std::unordered_map<const TensorImpl*, size_t> leaf_numbers_;
  std::unordered_map<const TensorImpl*, int64_t> uses_to_come_;  // with BackwardOptions::on_leaf
};

Tensor start_gradient(std::string_view op, const Tensor& root, const Tensor& gradient) {
  check_defined(op, "root", root);
  check(!has_lost_history(root) && !has_old_history(root), op,
        "root: is a view whose storage was changed in place since; make the view again");
  check(root.requires_grad(), op, "root: expected a tensor that requires a gradient, got {} that does not",
        describe(root));
  if (!gradient.defined()) {
    check(root.numel() == 1, op,
          "gradient: expected one, since only a root with one element has 1 as default (sizes {})", root.sizes());
    return ones_like(root);
  }
  check_like(op, "gradient", gradient, root.sizes(), root);
  return gradient;
}

}  // namespace

void backward(const Tensor& root, const Tensor& gradient, const BackwardOptions& options) {
  BackwardWalk walk({root}, {start_gradient("backward", root, gradient)}, options);
  walk.run();
  walk.accumulate_in_leaves();
}

Tensors grad(const Tensors& outputs, const Tensors& inputs, const Tensors& grad_outputs,
             const BackwardOptions& options) {
  check(grad_outputs.empty() || grad_outputs.size() == outputs.size(), "grad",
        "grad_outputs: expected {} or none, got {}", outputs.size(), grad_outputs.size());
  for (const Tensor& input : inputs) {
    check_defined("grad", "inputs", input);
    check(input.requires_grad(), "grad", "inputs: expected tensors that require a gradient, got {} that does not",
          describe(input));
  }
  Tensors starts;
  for (size_t i = 0; i < outputs.size(); ++i) {
    starts.push_back(start_gradient("grad", outputs[i], grad_outputs.empty() ? Tensor() : grad_outputs[i]));
  }
  BackwardWalk walk(outputs, starts, options, first_of_interest(inputs));
  walk.restrict_to(inputs);
  walk.run();
  return mapped(inputs, [&](const Tensor& input) { return walk.gradient_of(input); });
}

}  // namespace norma
