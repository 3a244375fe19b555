#pragma once

#include "nn/module.h"

namespace norma::nn {

/// dropout() in training, its input in evaluation. Draws from the default generator.
/// Throws Error for a rate outside [0, 1].
class Dropout : public Module {
 public:
  explicit Dropout(double rate = 0.5);
  Tensor forward(const Tensor& x) override;
  [[nodiscard]] std::string name() const override { return fmt::format("Dropout({})", rate_); }

 private:
  double rate_;
};

/// dropout() of whole samples (stochastic depth), in training.
class DropPath : public Module {
 public:
  explicit DropPath(double rate);
  Tensor forward(const Tensor& x) override;
  [[nodiscard]] std::string name() const override { return fmt::format("DropPath({})", rate_); }

 private:
  double rate_;
};

}  // namespace norma::nn
