#pragma once

#include "nn/optim/optimizer.h"

#include <string>
#include <vector>

namespace norma::nn {

struct RmsPropTfOptions {
  double lr = 1e-2;
  double alpha = 0.9;
  double eps = 1e-10;
  double momentum = 0;
};

/// RMSprop as in TensorFlow and timm's RMSpropTF: eps stands inside the root, the average of squares begins at 1, and
/// the velocity includes the learning rate:
///   g = gradient + weight_decay · p;  s = s + (1 - alpha) · (g² - s);  v = momentum · v + lr · g / sqrt(s + eps);
///   p -= v. Made of tensor functions.
class RmsPropTf : public Optimizer {
 public:
  explicit RmsPropTf(std::vector<ParameterGroup> groups, const RmsPropTfOptions& options = {});
  [[nodiscard]] double momentum() const override { return options_.momentum; }
  void set_momentum(double momentum) override { options_.momentum = momentum; }

 protected:
  [[nodiscard]] std::vector<std::string> state_names() const override { return {"square_avg", "momentum"}; }
  void update(const std::vector<Update>& updates) override;

 private:
  RmsPropTfOptions options_;
};

}  // namespace norma::nn
