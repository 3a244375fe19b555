#pragma once

#include "nn/optim/optimizer.h"

#include <string>
#include <vector>

namespace norma::nn {

struct SgdOptions {
  double lr = 0.1;
  double momentum = 0;
  double dampening = 0;
  bool nesterov = false;  ///< needs momentum and no dampening
};

/// Stochastic gradient descent (SGD), as in PyTorch:
///   g = gradient + weight_decay · p;  v = momentum · v + (1 - dampening) · g (v = g the first time);
///   p -= lr · v, or with Nesterov p -= lr · (g + momentum · v).
class Sgd : public Optimizer {
 public:
  explicit Sgd(std::vector<ParameterGroup> groups, const SgdOptions& options = {});
  [[nodiscard]] double momentum() const override { return options_.momentum; }
  void set_momentum(double momentum) override { options_.momentum = momentum; }

 protected:
  [[nodiscard]] std::vector<std::string> state_names() const override { return {"momentum"}; }
  void update(const std::vector<Update>& updates) override;

 private:
  SgdOptions options_;
};

}  // namespace norma::nn
