#pragma once

#include "nn/module.h"

#include <cstdint>
#include <string>
#include <vector>

namespace norma::nn {

/// Parameters that share their settings.
struct ParameterGroup {
  NamedTensors parameters;
  double weight_decay = 0;
  double lr_scale = 1;  ///< the learning rate is multiplied by this
};

struct ParameterGroupsOptions {
  /// Norms' parameters, biases, layer scales and gains do not decay: all that has rank 0 or 1, or sizes (n, 1, 1, 1).
  bool decay_vectors = false;
};

/// All parameters of a module in two groups: those that decay and those that do not. Empty groups are left out.
std::vector<ParameterGroup> parameter_groups(const Module& module, double weight_decay,
                                             const ParameterGroupsOptions& options = {});

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
  /// Names of the running averages that the optimizer keeps for each parameter.
  [[nodiscard]] virtual std::vector<std::string> state_names() const = 0;
  /// Updates one parameter. `state` holds its running averages; they are undefined the first time.
  virtual void update(const Tensor& parameter, const Tensor& gradient, Tensors& state, const ParameterGroup& group) = 0;

 private:
  /// The master weight of one parameter; undefined for float32 and float64, and before the first step.
  struct Master {
    Tensor weight;
    int64_t version = 0;  ///< of the parameter, when the weight was last rounded into it
  };

  /// What update() changes in the place of a parameter, dense: its master weight, itself, or a copy.
  Tensor begin_update(const Tensor& parameter, Master& master);
  /// Puts the result in the parameter.
  void end_update(const Tensor& parameter, const Tensor& values, Master& master);

  std::vector<ParameterGroup> groups_;
  std::vector<std::vector<Tensors>> states_;  // by group, by parameter
  std::vector<std::vector<Master>> masters_;  // likewise
  double lr_;
  int64_t steps_ = 0;
};

struct SgdOptions {
  double lr = 0.1;
  double momentum = 0;
  double dampening = 0;
  bool nesterov = false;  ///< needs momentum and no dampening
};

/// Stochastic gradient descent, as in PyTorch:
///   g = gradient + weight_decay · p;  v = momentum · v + (1 - dampening) · g (v = g the first time);
///   p -= lr · v, or with Nesterov p -= lr · (g + momentum · v).
class Sgd : public Optimizer {
 public:
  explicit Sgd(std::vector<ParameterGroup> groups, const SgdOptions& options = {});
  [[nodiscard]] double momentum() const override { return options_.momentum; }
  void set_momentum(double momentum) override { options_.momentum = momentum; }

 protected:
  [[nodiscard]] std::vector<std::string> state_names() const override { return {"momentum"}; }
  void update(const Tensor& parameter, const Tensor& gradient, Tensors& state, const ParameterGroup& group) override;

 private:
  SgdOptions options_;
};

struct AdamWOptions {
  double lr = 1e-3;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double eps = 1e-8;
};

/// Loshchilov and Hutter, "Decoupled weight decay regularization", 2019, as in PyTorch:
///   p *= 1 - lr · weight_decay;  m = beta1 · m + (1 - beta1) · g;  v = beta2 · v + (1 - beta2) · g²;
///   p -= lr / (1 - beta1^t) · m / (sqrt(v / (1 - beta2^t)) + eps).
class AdamW : public Optimizer {
 public:
  explicit AdamW(std::vector<ParameterGroup> groups, const AdamWOptions& options = {});
  [[nodiscard]] double momentum() const override { return options_.beta1; }
  void set_momentum(double momentum) override { options_.beta1 = momentum; }

 protected:
  [[nodiscard]] std::vector<std::string> state_names() const override { return {"exp_avg", "exp_avg_sq"}; }
  void update(const Tensor& parameter, const Tensor& gradient, Tensors& state, const ParameterGroup& group) override;

 private:
  AdamWOptions options_;
};

/// The 2-norm of all gradients together; they are scaled down to `max_norm` where it is larger. The sum is carried
/// in float64 in a fixed order.
double clip_gradients_by_norm(const Tensors& parameters, double max_norm);
/// Cuts every element of the gradients off at ±`limit`.
void clip_gradients_by_value(const Tensors& parameters, double limit);

}  // namespace norma::nn
