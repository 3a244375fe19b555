#pragma once

#include "nn/optim/optimizer.h"

#include <string>
#include <vector>

namespace norma::nn {

struct LambOptions {
  double lr = 1e-3;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double eps = 1e-6;
  double max_grad_norm = 1;  ///< the norm of all gradients together that they are first scaled down to; 0: not scaled
};

/// LAMB (You et al., "Large batch optimization for deep learning", 2020), as timm's Lamb: AdamW's direction, including
/// the decay, scaled to the norm of the parameter:
///   m, v as AdamW, of g / max(1, |all g| / max_grad_norm);
///   u = m / (1 - beta1^t) / (sqrt(v / (1 - beta2^t)) + eps) + weight_decay · p;  p -= lr · r · u
/// with the trust ratio r = |p| / |u|, or 1 if either is 0 and for groups without weight decay. Made of tensor
/// functions; nobody waits for a device. The gradients are not changed.
class Lamb : public Optimizer {
 public:
  explicit Lamb(std::vector<ParameterGroup> groups, const LambOptions& options = {});
  [[nodiscard]] double momentum() const override { return options_.beta1; }
  void set_momentum(double momentum) override { options_.beta1 = momentum; }

 protected:
  [[nodiscard]] std::vector<std::string> state_names() const override { return {"exp_avg", "exp_avg_sq"}; }
  void begin_step() override;
  void update(const std::vector<Update>& updates) override;

 private:
  LambOptions options_;
  Tensor divisor_;  // of the gradients in this step: float64, of rank 0; undefined: 1
};

}  // namespace norma::nn
