#pragma once

#include "base/not_copied.h"
#include "core/tensor.h"
#include "nn/module.h"

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace norma::nn {

/// Parameters that share their settings.
struct ParameterGroup {
  NamedTensors parameters;
  double weight_decay = 0;
  double lr_scale = 1;  ///< factor of the learning rate
};

struct ParameterGroupsOptions {
  /// False: parameters of norms, biases, layer scales and gains (all of rank 0 or 1, or of sizes (n, 1, 1, 1)), and
  /// those named cls_token and pos_embed, do not decay, but those that a norm names do (Norm::decaying()).
  bool decay_vectors = false;
  /// Unless decay_vectors: the decay of such parameters in norm layers, torchvision's --norm-weight-decay.
  double norm_weight_decay = 0;
  /// Unless decay_vectors: the decay of others of them named "bias", torchvision's --bias-weight-decay.
  double bias_weight_decay = 0;
  /// ParameterGroup::lr_scale of each parameter, by its name. Empty: 1 for all.
  std::function<double(const std::string& name)> lr_scale = {};
};

/// The parameters of a module that require a gradient, in groups: for each scale of the learning rate, those with
/// `weight_decay`, those with none, and those with other numbers. Empty groups are left out.
std::vector<ParameterGroup> parameter_groups(const Module& module, double weight_decay,
                                             const ParameterGroupsOptions& options = {});

/// Changes parameters by their gradients, and leaves parameters without one alone. For bfloat16 and float16 parameters
/// it keeps float32 averages and a float32 copy, the master weight: updates are smaller than the steps of 16-bit
/// numbers and would be lost. The parameter is the rounded master weight. If it was changed otherwise (by loading a
/// state dict), it becomes its own master weight again.
class Optimizer : NotCopied {
 public:
  /// Throws Error when a tensor appears twice or does not require a gradient.
  Optimizer(std::vector<ParameterGroup> groups, double lr, double momentum);
  virtual ~Optimizer() = default;

  /// Updates every parameter once. A step that throws, as for want of memory, is not counted.
  void step();
  /// Removes the gradients of all parameters.
  void zero_grad();

  // These functions are for a step that is recorded once and launched many times (core/device_graph.h), after some
  // steps of step(). Call set_numbers() before the recording and before each launch, and count_launched_step() after
  // each launch that made the update.

  /// False if the numbers of a step cannot be set without its kernels.
  [[nodiscard]] bool can_be_recorded() const { return !groups_.empty() && !numbers_of(groups_[0], 1).empty(); }
  /// Copies the numbers of the next step, such as the learning rate, to the device of the parameters, where the kernels
  /// of record_step() read them.
  void set_numbers();
  /// As step(), for a recording: counts no step. `guard`, two float64 numbers on the device: unless both are finite,
  /// nothing is changed.
  void record_step(const Tensor& guard);
  void count_launched_step();

  [[nodiscard]] double lr() const { return lr_; }
  void set_lr(double lr) { lr_ = lr; }
  /// The factor of the gradients of the next steps (GradScaler); step() divides them by it.
  [[nodiscard]] double grad_scale() const { return grad_scale_; }
  /// Throws Error unless it is finite and positive.
  void set_grad_scale(double scale);
  /// The number that one-cycle moves against the learning rate: SGD's momentum, AdamW's beta1.
  [[nodiscard]] double momentum() const { return momentum_; }
  void set_momentum(double momentum) { momentum_ = momentum; }
  /// The number of updates so far.
  [[nodiscard]] int64_t steps() const { return steps_; }
  [[nodiscard]] const std::vector<ParameterGroup>& groups() const { return groups_; }
  [[nodiscard]] Tensors parameters() const;

  /// The float32 master weights of bfloat16 and float16 parameters, by name. They share the optimizer's memory.
  [[nodiscard]] NamedTensors master_weights() const;
  /// Sets the master weights of the 16-bit parameters with these names to values that were not rounded to 16 bits, and
  /// rounds them into the parameters. Other names are ignored. Throws Error for other sizes.
  void set_master_weights(const NamedTensors& values);

  /// "step" and, for each parameter that has been updated, its running averages ("momentum.<parameter>",
  /// "exp_avg.<parameter>", "exp_avg_sq.<parameter>") and its master weight ("master.<parameter>"), which share the
  /// optimizer's memory, and the number of its updates ("step.<parameter>") where that is not "step"; and "states", the
  /// number of these. "step", "step.<parameter>" and "states" are int64 scalars.
  [[nodiscard]] NamedTensors state_dict() const;
  /// Copies all of that from `dict`. Averages and master weights that the saved optimizer did not have start anew; a
  /// parameter without averages has had no update.
  /// Throws one Error that lists unexpected and misshapen names, and the absent ones if there are fewer than "states";
  /// nothing has changed then.
  void load_state_dict(const NamedTensors& dict);

 protected:
  /// Throws Error, in the name of `op`, unless the value is finite and at least 0.
  static void check_not_negative(std::string_view op, std::string_view name, double value);
  /// Names of the running averages that the optimizer keeps for each parameter.
  [[nodiscard]] virtual std::vector<std::string> state_names() const = 0;
  /// Runs once in each step, before the parameters are updated. steps() already counts this step.
  virtual void begin_step() {}
  /// One parameter that a step changes, dense, with its gradient in its strides and dtype.
  struct Update {
    Tensor parameter;
    Tensor gradient;
    Tensors* state = nullptr;  ///< the running averages; undefined the first time
    const ParameterGroup* group = nullptr;
    int64_t number = 1;                ///< which update of the parameter this is, from 1
    const double* changing = nullptr;  ///< where set_numbers() put its Step; null outside record_step()
  };
  /// Updates these parameters, and makes the averages that are undefined.
  virtual void update(const std::vector<Update>& updates) = 0;
  /// The Step (ops/optimizer/kernels.h) of update `number` of a parameter, in the next step, as plain numbers; empty
  /// for an optimizer that has none.
  [[nodiscard]] virtual std::vector<double> numbers_of(const ParameterGroup& /*group*/, int64_t /*number*/) const {
    return {};
  }
  /// The guard of record_step(); undefined outside of it.
  [[nodiscard]] const Tensor& guard() const { return guard_; }

 private:
  /// The master weight of one parameter; undefined for float32 and float64, and before the first step.
  struct Master {
    Tensor weight;
    std::weak_ptr<Storage> storage;  ///< of the parameter, when the weight was last rounded into it
    int64_t version = 0;             ///< of that storage; another storage counts versions of its own

    /// Notes that the parameter is the rounded weight now.
    void note_rounded_into(const Tensor& parameter);
    /// False if the parameter was changed or moved since.
    [[nodiscard]] bool is_current(const Tensor& parameter) const;
  };

  /// One parameter, and what is kept for it.
  struct Slot {
    std::string name;
    Tensor parameter;
    const ParameterGroup* group = nullptr;
    Tensors state = {};  ///< the running averages
    Master master = {};
    int64_t steps = 0;          ///< the updates of this parameter so far
    bool has_gradient = false;  ///< in the last step, or the recording of one

    void count_step() { steps += has_gradient ? 1 : 0; }

    /// The dense tensor that update() changes: the master weight, the parameter itself, or a copy.
    Tensor begin_update();
    /// Makes a copy of `weight` the master weight, and rounds it into the parameter.
    void set_master(const Tensor& weight);
  };

  /// An update that waits for the others of its batch.
  struct Pending {
    Slot* slot = nullptr;
    Tensor gradient;  ///< undefined where Update::gradient is the gradient itself, else what goes into that
  };

  /// Converts gradients, updates these parameters, and puts the results into them.
  void update_batch(const std::vector<Update>& updates, const std::vector<Pending>& pending);

  /// The work of step(), without counting it.
  void make_step();

  std::vector<ParameterGroup> groups_;
  Tensor numbers_;  // of set_numbers()
  Tensor guard_;
  std::vector<Slot> slots_;  // of all groups, in their order
  double lr_;
  double momentum_;
  double grad_scale_ = 1;
  int64_t steps_ = 0;
};

/// The gradients of the parameters that have one.
Tensors gradients_of(const Tensors& parameters);

}  // namespace norma::nn
