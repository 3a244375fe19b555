#pragma once

#include "nn/optim/parameter_groups.h"

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace norma::nn {

/// Changes parameters by their gradients. Parameters without a gradient are left alone.
/// Of bfloat16 and float16 parameters it keeps a copy in float32, the master weight, and float32 averages: updates are
/// smaller than the steps of 16-bit numbers and would be lost. The parameter is the master weight, rounded. One that
/// was changed otherwise (by loading a state dict) becomes its own master weight again.
class Optimizer {
 public:
  /// Throws Error when a tensor appears twice or does not require a gradient.
  Optimizer(std::vector<ParameterGroup> groups, double lr);
  virtual ~Optimizer() = default;
  Optimizer(const Optimizer&) = delete;
  Optimizer& operator=(const Optimizer&) = delete;

  /// One update of every parameter.
  void step();
  void zero_grad();

  [[nodiscard]] double lr() const { return lr_; }
  void set_lr(double lr) { lr_ = lr; }
  /// What the gradients of the next steps have been multiplied by (GradScaler); step() divides them by it.
  [[nodiscard]] double grad_scale() const { return grad_scale_; }
  /// Throws Error unless it is finite and positive.
  void set_grad_scale(double scale);
  /// What one-cycle turns against the learning rate: SGD's momentum, AdamW's beta1.
  [[nodiscard]] virtual double momentum() const = 0;
  virtual void set_momentum(double momentum) = 0;
  /// Updates so far.
  [[nodiscard]] int64_t steps() const { return steps_; }
  [[nodiscard]] const std::vector<ParameterGroup>& groups() const { return groups_; }
  [[nodiscard]] Tensors parameters() const;

  /// The float32 master weights of bfloat16 and float16 parameters, by name. They share the optimizer's memory.
  [[nodiscard]] NamedTensors master_weights() const;

  /// "step" (int64 scalar) and, for each parameter that has been updated, its running averages, "momentum.<parameter>",
  /// "exp_avg.<parameter>", "exp_avg_sq.<parameter>", and "master.<parameter>" for master weights. They share the
  /// optimizer's memory.
  [[nodiscard]] NamedTensors state_dict() const;
  /// Takes all of that over by copying. Throws one Error that lists unexpected and misshapen names; nothing has changed
  /// then. Averages that are missing start anew.
  void load_state_dict(const NamedTensors& dict);

 protected:
  /// Throws Error, in the name of `op`, unless the value is finite and at least 0.
  static void check_not_negative(std::string_view op, std::string_view name, double value);
  /// Names of the running averages that the optimizer keeps for each parameter.
  [[nodiscard]] virtual std::vector<std::string> state_names() const = 0;
  /// Once in each step, before the parameters are updated. steps() counts this one already.
  virtual void begin_step() {}
  /// Updates one parameter. `state` holds its running averages; they are undefined the first time.
  virtual void update(const Tensor& parameter, const Tensor& gradient, Tensors& state, const ParameterGroup& group) = 0;

 private:
  /// The master weight of one parameter; undefined for float32 and float64, and before the first step.
  struct Master {
    Tensor weight;
    int64_t version = 0;  ///< of the parameter, when the weight was last rounded into it

    /// False where the parameter was changed or moved since.
    [[nodiscard]] bool is_current(const Tensor& parameter) const;
  };

  /// What update() changes in the place of a parameter, dense: its master weight, itself, or a copy.
  Tensor begin_update(const Tensor& parameter, Master& master);
  /// Puts the result in the parameter.
  void end_update(const Tensor& parameter, const Tensor& values, Master& master);

  std::vector<ParameterGroup> groups_;
  std::vector<std::vector<Tensors>> states_;  // by group, by parameter
  std::vector<std::vector<Master>> masters_;  // likewise
  double lr_;
  double grad_scale_ = 1;
  int64_t steps_ = 0;
};

}  // namespace norma::nn
