#include "nn/checkpoint.h"

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

#include <optional>
#include <utility>
#include <vector>

namespace norma::nn {

namespace {

thread_local CheckpointPass current_pass = CheckpointPass::none;

class PassGuard {
 public:
  explicit PassGuard(CheckpointPass pass) : before_(std::exchange(current_pass, pass)) {}
  ~PassGuard() { current_pass = before_; }
  PassGuard(const PassGuard&) = delete;
  PassGuard& operator=(const PassGuard&) = delete;

 private:
  CheckpointPass before_;
};

Tensors copies_of(const Tensors& from) {
  const NoGradGuard no_grad;
  Tensors to;
  for (const Tensor& x : from) {
    to.push_back(empty_like(x));
  }
  copy_all_into(from, to);
  return to;
}

/// What a forward pass finds, and what it may change beside its output.
class Surroundings {
 public:
  explicit Surroundings(Module& module) : modes_(module) {
    Tensors values;
    for (const auto& [name, x] : module.named_buffers()) {
      buffers_.push_back(x);
      values.push_back(x.detach());
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
  Surroundings(const Surroundings&) = delete;
  Surroundings& operator=(const Surroundings&) = delete;

 private:
  friend class Restored;

  Modes modes_;
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
class Restored {
 public:
  Restored(Module& module, const Surroundings& then)
      : buffers_(then.buffers_), modes_(module), tf32_(then.tf32_), random_(default_generator()) {
    const Tensors values = copies_of(then.values_);
    then.modes_.restore();
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
  ~Restored() {
    for (size_t i = 0; i < buffers_.size(); ++i) {
      replace_data(buffers_[i], now_[i].data);
      buffers_[i].impl().is_view = now_[i].is_view;
    }
    default_generator() = random_;
  }
  Restored(const Restored&) = delete;
  Restored& operator=(const Restored&) = delete;

 private:
  struct Now {
    Tensor data;
    bool is_view;
  };

  const Tensors& buffers_;
  std::vector<Now> now_;
  Modes modes_;
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
  for (const Tensor& parameter : module->parameters()) {
    if (parameter.requires_grad()) {
      inputs.push_back(parameter);
    }
  }
  if (!will_record(inputs)) {
    return (*module)(x);
  }
  ModuleScope scope(*module, x);
  const std::string name = fmt::format("checkpoint({})", module->name());
  const auto surroundings = std::make_shared<const Surroundings>(*module);
  const int64_t version = x.version();
  Tensor y;
  {
    // It is recorded like the second pass: ops that need no gradient may take another way, with other bits.
    const PassGuard pass(CheckpointPass::first);
    y = module->forward(x);
  }
  check(x.version() == version, name, "x: expected a module that leaves it as it is, got one that changes it in place");
  if (y.requires_grad()) {
    const auto recompute = [module, surroundings, count = inputs.size()](const BackwardContext& context) -> Tensors {
      const Tensor input = context.saved(0);
      for (size_t i = 1; i < count; ++i) {
        static_cast<void>(context.saved(i));  // throws for a parameter that was changed
      }
      const Restored restored(*module, *surroundings);
      const PassGuard pass(CheckpointPass::again);
      const OpPassGuard forward(OpPass::forward);
      return {module->forward(input)};
    };
    y = record_recomputed(name, inputs, {y.detach()}, inputs, recompute)[0];
  }
  y = scope.leave(y);
  module->run_forward_hooks(x, y);
  return y;
}

}  // namespace norma::nn
