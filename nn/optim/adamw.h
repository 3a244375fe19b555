#pragma once

#include "nn/optim/optimizer.h"

#include <string>
#include <vector>

namespace norma::nn {

struct AdamWOptions {
  double lr = 1e-3;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double eps = 1e-8;
};

/// AdamW (Loshchilov and Hutter, "Decoupled weight decay regularization", 2019), as in PyTorch:
///   p *= 1 - lr · weight_decay;  m = beta1 · m + (1 - beta1) · g;  v = beta2 · v + (1 - beta2) · g²;
///   p -= lr / (1 - beta1^t) · m / (sqrt(v / (1 - beta2^t)) + eps).
class AdamW : public Optimizer {
 public:
  explicit AdamW(std::vector<ParameterGroup> groups, const AdamWOptions& options = {});
  [[nodiscard]] double momentum() const override { return options_.beta1; }
  void set_momentum(double momentum) override { options_.beta1 = momentum; }

 protected:
  [[nodiscard]] std::vector<std::string> state_names() const override { return {"exp_avg", "exp_avg_sq"}; }
  void update(const std::vector<Update>& updates) override;

 private:
  AdamWOptions options_;
};

}  // namespace norma::nn
