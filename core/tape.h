#pragma once

#include "base/not_copied.h"
#include "core/tensor.h"

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace norma {

// The tape. While gradients are on, every op with an input that requires a gradient is recorded (core/op.h):
// record_node() hangs one Node on the op's outputs: a name, edges to the nodes of the inputs, the saved tensors, and a
// function from output gradients to input gradients. backward() gathers the nodes that lead to a tensor, sorted by the
// order in which they were recorded, and walks them from last to first.

/// A tensor's place on the tape, where its gradient goes: output `output_index` of `node`, or the .grad of `leaf`; or
/// nowhere.
struct Edge {
  std::shared_ptr<Node> node;
  size_t output_index = 0;
  std::shared_ptr<TensorImpl> leaf;

  [[nodiscard]] bool connected() const { return node != nullptr || leaf != nullptr; }
};

/// A tensor kept for the backward pass together with the version it had.
class SavedTensor {
 public:
  /// `outputs` are those of the op that saves x as number `position`: x may be one of them.
  SavedTensor(const Tensor& x, std::span<const Tensor> outputs, size_t position);

  /// The tensor; with its place on the tape if gradients are on. `owner` is the node that saved it. Throws Error when
  /// it was changed in place since.
  [[nodiscard]] Tensor unpack(const std::shared_ptr<Node>& owner) const;
  /// The tensor without its place on the tape, also if it was changed since; undefined if unpack() remakes it.
  [[nodiscard]] const Tensor& value() const { return value_; }
  [[nodiscard]] size_t position() const { return position_; }
  [[nodiscard]] bool is_leaf() const { return place_.leaf != nullptr; }
  [[nodiscard]] const std::shared_ptr<Node>& node() const { return place_.node; }

 private:
  [[nodiscard]] Tensor remade() const;

  Tensor value_;  // off the tape: a node that kept its own output with its place would own itself
  Edge place_;    // of an output of the owner: the index alone
  size_t position_;
  int64_t version_;
  bool is_output_ = false;  // of the owner
};

/// The saved tensors and the flags that a backward function may ask for.
class BackwardContext {
 public:
  BackwardContext(const std::shared_ptr<Node>& node, std::span<const bool> needs, bool create_graph)
      : node_(node), needs_(needs), create_graph_(create_graph) {}

  /// Tensor number i of the `saved` list given to record(); undefined if it was undefined there.
  [[nodiscard]] Tensor saved(size_t i) const;
  /// The first `count` of them, to be given names: const auto [x, index] = context.saved<2>().
  template <size_t count>
  [[nodiscard]] std::array<Tensor, count> saved() const {
    return [&]<size_t... i>(std::index_sequence<i...>) {
      return std::array<Tensor, count>{saved(i)...};
    }
    (std::make_index_sequence<count>());
  }
  /// True iff the gradient of input i is wanted; otherwise return an undefined tensor for it.
  [[nodiscard]] bool needs_grad(size_t i) const { return needs_[i]; }
  /// True iff the backward pass is itself recorded (create_graph): then only differentiable ops may be used.
  [[nodiscard]] bool create_graph() const { return create_graph_; }

 private:
  const std::shared_ptr<Node>& node_;
  std::span<const bool> needs_;
  bool create_graph_;
};

/// Computes the gradients of the inputs, in order, from those of the outputs (undefined where none arrived). An
/// undefined result means zero. Runs with gradients off, unless create_graph.
using BackwardFunction = std::function<Tensors(const Tensors& grad_outputs, const BackwardContext& context)>;
/// A BackwardFunction for an op with one output, whose gradient is always defined.
using UnaryBackwardFunction = std::function<Tensors(const Tensor& grad_output, const BackwardContext& context)>;

/// Computes the outputs of a node again from what it has saved, in the same bits and strides. For a part of the tape it
/// runs with gradients on, and records that part anew: record_node(). For the only output of an op it runs with
/// gradients off: offer_remake().
using RecomputeFunction = std::function<Tensors(const BackwardContext& context)>;

/// One recorded op.
struct Node : NotCopied {
  std::string name;
  uint64_t sequence = 0;  ///< order of recording
  std::vector<Edge> inputs;
  std::vector<SavedTensor> saved;  ///< the defined tensors of the list given to record()
  std::vector<Sizes> output_sizes;
  std::vector<DType> output_dtypes;
  std::vector<std::vector<GradientHook>> output_hooks;
  BackwardFunction backward;  ///< empty: the node stands for a part of the tape, which `recompute` records anew
  RecomputeFunction recompute;
  int64_t remake_version = 0;  ///< of the output that `recompute` gives
  int remake_ops = 0;          ///< number of ops that `recompute` runs, those that remake its own inputs included
  bool released = false;       ///< backward() ran over it and dropped what it had saved

  [[nodiscard]] bool is_part() const { return !released && backward == nullptr && recompute != nullptr; }
  ~Node();  // takes long chains apart without recursion
};

/// Puts an op on the tape, unless gradients are off or no input requires one; returns whether it did. `saved` holds all
/// tensors that backward will need. Ops call Op::record() (core/op.h), which calls this.
///
/// With `recompute` in place of `backward` the node stands for all ops between `inputs` and `outputs`, and keeps
/// `saved` and nothing else. When backward() comes to it, `recompute` runs those ops again: what they record takes the
/// node's place, and is walked and dropped before backward() goes on (Chen et al., "Training deep nets with sublinear
/// memory cost", 2016). The inputs must then hold every tensor that requires a gradient and comes from outside.
/// nn/checkpoint.h does this for modules.
bool record_node(std::string_view op, TensorList inputs, TensorList outputs, TensorList saved,
                 BackwardFunction backward, RecomputeFunction recompute = {});

/// An output is kept, and not remade, where so many ops or more would run to remake it: chains of remade outputs stay
/// short.
inline constexpr int kMostRemakes = 4;

/// Says how `output`, the only output of the op recorded last, is computed again. While a RemakeGuard lives, ops that
/// save it keep its node instead, so that its memory is free as soon as nobody else needs it, and each of them computes
/// it again in backward. For outputs that cost little beside the ops that save them: those of norms and activations.
/// Does nothing without a guard, if the op was not recorded, or if kMostRemakes ops or more would run for the output.
void offer_remake(const Tensor& output, RecomputeFunction recompute);
/// True iff an op that saves x keeps no memory of x's.
bool can_be_remade(const Tensor& x);

/// True iff outputs are remade on this thread. Ops ask it before they make a RecomputeFunction.
bool remakes_outputs();
void set_remakes_outputs(bool on);

/// Outputs are remade for as long as it lives, if it is `on`: offer_remake(). It need not live during backward().
class RemakeGuard : Temporarily<bool> {
 public:
  explicit RemakeGuard(bool on = true);
};

/// The place of x on the tape.
Edge edge_of(const Tensor& x);
/// True iff x is a view without history (a node), but a recorded op has changed the view's memory since: its base has a
/// history.
bool has_lost_history(const Tensor& x);
/// True iff x is a view whose memory has changed since it was made, through another tensor: its history is not its own.
bool has_old_history(const Tensor& x);

/// True iff record() with these inputs would put a node on the tape; ops save less when it would not. Also true for an
/// input that record() will refuse: a view whose storage a recorded op has changed since.
bool will_record(TensorList inputs);

/// Every in-place op calls this before it writes into x. Throws Error when two elements of x share a place, and, if the
/// change would be recorded, when x is a leaf that requires a gradient or a view (whose base would keep an old
/// history).
void check_in_place(std::string_view op, const Tensor& x, TensorList other_inputs = {});

// --- running it backwards -------------------------------------------------------------------------------------

struct BackwardOptions {
  bool retain_graph = false;  ///< keep what the nodes saved, for another backward pass (implied by create_graph)
  /// Record the backward pass, for higher derivatives. As in PyTorch, a leaf and a .grad that was recorded keep each
  /// other in memory until set_grad() takes it away; results of grad() have no such cycle.
  bool create_graph = false;
  /// Called during the walk as soon as nothing more can be added to the gradient of a leaf, once for each leaf of the
  /// tape, in an order that depends on the tape alone. `gradient` may be of a narrower dtype than the leaf; undefined:
  /// none arrived. The leaf's hooks run later, and .grad changes later.
  std::function<void(const Tensor& leaf, const Tensor& gradient)> on_leaf = {};
};

/// Adds d(root · gradient)/d(leaf) to the .grad of every leaf that `root` depends on. Without `gradient`, root must
/// have one element, and 1 is taken. A gradient has the strides of its leaf when those are dense. What counts is
/// whether a leaf required a gradient when the ops that read it were recorded: one that was frozen since gets its
/// gradient all the same, also in a checkpoint (nn/checkpoint.h) and unlike in PyTorch; one that requires a gradient
/// only since gets none. Throws Error when root requires no gradient, when sizes, dtype or device of `gradient` differ
/// from root's, when a graph is walked a second time, and when a saved tensor was changed in place.
void backward(const Tensor& root, const Tensor& gradient = {}, const BackwardOptions& options = {});

/// The gradients of sum(outputs · grad_outputs) for `inputs` (leaves or not), returned rather than accumulated. The
/// gradient is undefined for an input that the outputs do not depend on. Without grad_outputs, each output must have
/// one element, and 1 is taken. Throws Error as backward() does, and when an input requires no gradient.
Tensors grad(const Tensors& outputs, const Tensors& inputs, const Tensors& grad_outputs = {},
             const BackwardOptions& options = {});

/// A differentiable function of tensors.
using TensorFunction = std::function<Tensors(const Tensors& inputs)>;

// --- modes ----------------------------------------------------------------------------------------------------

/// True iff ops are recorded on this thread, as they are at first. Guards and set_grad_enabled() change it; so does
/// backward() while it runs.
bool grad_enabled();
/// Sets whether this thread's ops are recorded.
void set_grad_enabled(bool enabled);

/// Sets whether gradients are on for as long as it lives.
class GradModeGuard : Temporarily<bool> {
 public:
  explicit GradModeGuard(bool enabled);
};

/// Nothing is recorded while it lives.
class NoGradGuard : public GradModeGuard {
 public:
  NoGradGuard() : GradModeGuard(false) {}
};

// --- looking at it --------------------------------------------------------------------------------------------

/// Leaves with their names.
using NamedLeaves = std::vector<std::pair<std::string, Tensor>>;

/// The part of the tape that leads to one tensor, in the order of recording.
class Tape {
 public:
  explicit Tape(const Tensor& root) : Tape(Tensors{root}) {}
  /// Nodes recorded before number `first` are left out.
  explicit Tape(const Tensors& roots, uint64_t first = 0);

  [[nodiscard]] const std::vector<std::shared_ptr<Node>>& nodes() const { return nodes_; }
  /// Bytes that live only because backward will need them: a storage saved by several nodes counts once, leaves
  /// (parameters) do not count.
  [[nodiscard]] size_t saved_bytes() const;
  /// A table with one line per op name and dtype of its (first) result: how often it was recorded and the bytes it
  /// saves; then the total. After backward(), which drops saved tensors, it says "released" in place of the bytes.
  [[nodiscard]] std::string summary() const;
  /// A picture of the nodes and edges for Graphviz. Leaves have the names given here, such as those of
  /// nn::Module::named_parameters(); others are numbered in the order in which ops take them. The same program gives
  /// the same text.
  [[nodiscard]] std::string graphviz(const NamedLeaves& names = {}) const;

 private:
  std::vector<std::shared_ptr<Node>> nodes_;
};

/// The number that the next recorded op will have (Node::sequence). Ops that a thread records between two calls
/// have the numbers from the first result to just below the second.
uint64_t next_node_number();

}  // namespace norma
