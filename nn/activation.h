#pragma once

#include "nn/module.h"
#include "ops/pointwise/pointwise.h"

namespace norma::nn {

class ReLU : public Module {
 public:
  Tensor forward(const Tensor& x) override { return relu(x); }
  [[nodiscard]] std::string name() const override { return "ReLU"; }
};

class GELU : public Module {
 public:
  explicit GELU(GeluApproximation approximate = GeluApproximation::none) : approximate_(approximate) {}
  Tensor forward(const Tensor& x) override { return gelu(x, approximate_); }
  [[nodiscard]] std::string name() const override {
    return approximate_ == GeluApproximation::none ? "GELU" : "GELU(tanh)";
  }

 private:
  GeluApproximation approximate_;
};

class SiLU : public Module {
 public:
  Tensor forward(const Tensor& x) override { return silu(x); }
  [[nodiscard]] std::string name() const override { return "SiLU"; }
};

}  // namespace norma::nn
