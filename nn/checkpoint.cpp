#include "nn/checkpoint.h"

#include "base/lists.h"
#include "base/not_copied.h"
#include "core/autocast.h"
#include "core/copy.h"
#include "core/factory.h"
#include "core/op_profile.h"
#include "core/random.h"
#include "core/tape.h"
#include "core/tf32.h"
#include "nn/module_scope.h"
#include "ops/random/batch_part.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <ranges>
#include <string>
#include <utility>
#include <vector>

namespace norma::nn {

namespace {

thread_local CheckpointPass current_pass = CheckpointPass::none;

Tensors copies_of(const Tensors& from) {
  const NoGradGuard no_grad;
  Tensors to = mapped(from, [](const Tensor& x) { return empty_like(x); });
  copy_all_into(from, to);
  return to;
}

/// All modules below one, with their paths.
using Tree = std::vector<std::pair<std::string, std::shared_ptr<Module>>>;

Tree below(const Module& module) {
  Tree tree;
  for (const auto& [path, holder] : module.named_modules()) {
    for (const auto& [name, child] : holder->children()) {
      tree.emplace_back(join_names(path, name), child);
    }
  }
  return tree;
}

/// What a forward pass finds, and what it may change beside its output.
class Surroundings : NotCopied {
 public:
  Surroundings(Module& module, const Tensor& x) : tree_(below(module)), modes_(module) {
    for (const Tensor& parameter : module.parameters()) {
      leaves_.emplace_back(parameter, parameter.requires_grad());
    }
    if (x.is_leaf()) {
      leaves_.emplace_back(x, x.requires_grad());
    }
    Tensors values;
    for (const auto& [name, buffer] : module.named_buffers()) {
      buffers_.push_back(buffer);
      values.push_back(buffer.detach());
    }
    values_ = copies_of(values);
    if (const BatchPart* part = current_batch_part(); part != nullptr) {
      part_ = *part;
    }
    if (const auto* state = detail::autocast_state; state != nullptr) {
      cast_dtype_ = state->dtype;
      casts_ = *state->policy;
    }
  }
  ~Surroundings() { modes_.forget(); }

  /// Throws Error in the name of `op` if the module holds others than it did.
  void check_modules(const std::string& op, const Module& module) const {
    const Tree now = below(module);
    if (const auto [was, is] = std::ranges::mismatch(tree_, now); was != tree_.end() || is != now.end()) {
      fail(op, "backward: expected the modules of the forward pass, got another one at '{}'",
           is == now.end() ? was->first : is->first);
    }
  }

 private:
  friend class Restored;

  Tree tree_;
  Modes modes_;
  std::vector<std::pair<Tensor, bool>> leaves_;  // with requires_grad
  Tensors buffers_;
  Tensors values_;  // of the buffers
  Generator random_ = default_generator();
  bool tf32_ = allow_tf32();
  std::optional<BatchPart> part_;
  std::optional<DType> cast_dtype_;
  CastPolicy casts_;
};

/// Restores the surroundings of a forward pass for as long as it lives. Buffers get memory of their own meanwhile, so
/// that neither their values nor their versions change in the end.
class Restored : NotCopied {
 public:
  Restored(Module& module, const Surroundings& then)
      : buffers_(then.buffers_), modes_(module), tf32_(then.tf32_), random_(default_generator()) {
    const Tensors values = copies_of(then.values_);
    then.modes_.restore();
    for (const auto& [x, requires_grad] : then.leaves_) {
      leaves_.emplace_back(x, x.requires_grad());
      x.impl().requires_grad = requires_grad;
    }
    default_generator() = then.random_;
    if (then.part_) {
      part_.emplace(*then.part_);
    }
    if (then.cast_dtype_) {  // its cache may be gone: parameters are converted again
      casts_.emplace(*then.cast_dtype_, then.casts_);
    }
    for (size_t i = 0; i < buffers_.size(); ++i) {
      now_.push_back({buffers_[i].detach(), buffers_[i].impl().is_view});
      replace_data(buffers_[i], values[i]);
    }
  }
  ~Restored() {  // backwards: of a tensor that stands in several places, the first has what it was
    for (size_t i = buffers_.size(); i-- > 0;) {
      replace_data(buffers_[i], now_[i].data);
      buffers_[i].impl().is_view = now_[i].is_view;
    }
    for (const auto& [x, requires_grad] : std::views::reverse(leaves_)) {
      x.impl().requires_grad = requires_grad;
    }
    default_generator() = random_;
  }

 private:
  struct Now {
    Tensor data;
    bool is_view;
  };

  const Tensors& buffers_;
  std::vector<Now> now_;
  Modes modes_;
  std::vector<std::pair<Tensor, bool>> leaves_;
  Tf32Guard tf32_;
  Generator random_;
  std::optional<BatchPartGuard> part_;
  std::optional<Autocast> casts_;
};

}  // namespace

CheckpointPass checkpoint_pass() {
  return current_pass;
}

Tensor checkpoint(const std::shared_ptr<Module>& module, const Tensor& x) {
  check(module != nullptr, "checkpoint", "module: expected one, got none");
  check_defined("checkpoint", "x", x);
  Tensors inputs{x};
  Tensors saved{x};
  for (const Tensor& parameter : module->parameters()) {
    saved.push_back(parameter);
    if (parameter.requires_grad()) {
      inputs.push_back(parameter);
    }
  }
  if (!will_record(inputs)) {
    return (*module)(x);
  }
  ModuleScope scope(*module, x);
  const std::string name = fmt::format("checkpoint({})", module->name());
  const auto surroundings = std::make_shared<const Surroundings>(*module, x);
  const int64_t version = x.version();
  Tensor y;
  {
    // It is recorded like the second pass: ops that need no gradient may take another way, with other bits.
    const Temporarily pass(current_pass,
                           current_pass == CheckpointPass::again ? CheckpointPass::again : CheckpointPass::first);
    y = module->forward(x);
  }
  check(x.version() == version, name, "x: expected a module that leaves it as it is, got one that changes it in place");
  if (y.requires_grad()) {
    const auto recompute = [name, module, surroundings,
                            count = saved.size()](const BackwardContext& context) -> Tensors {
      const Tensor input = context.saved(0);
      for (size_t i = 1; i < count; ++i) {
        static_cast<void>(context.saved(i));  // throws for a parameter that was changed
      }
      surroundings->check_modules(name, *module);
      const Restored restored(*module, *surroundings);
      const Temporarily now(current_pass, CheckpointPass::again);
      const OpPassGuard forward(OpPass::forward);
      return {module->forward(input)};
    };
    y = y.detach();
    record_node(name, inputs, y, saved, /* backward= */ {}, recompute);
  }
  y = scope.leave(y);
  module->run_forward_hooks(x, y);
  return y;
}

}  // namespace norma::nn
