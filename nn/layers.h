#pragma once

#include "nn/module.h"
#include "ops/pointwise/pointwise.h"
#include "ops/pool/pool.h"

namespace norma::nn {

struct LinearOptions {
  bool bias = true;
  bool initialize = true;  ///< false: zeros, for a caller that sets the values
};

/// linear() over the last axis: x (…, in) → (…, out). weight (out, in) and bias (out) are initialized as in PyTorch.
class Linear : public Module {
 public:
  Linear(int64_t in_features, int64_t out_features, const LinearOptions& options = {});

  Tensor forward(const Tensor& x) override;
  [[nodiscard]] std::string name() const override;
  [[nodiscard]] const Tensor& weight() const { return weight_; }
  [[nodiscard]] const Tensor& bias() const { return bias_; }  ///< may be undefined

 private:
  Tensor weight_;
  Tensor bias_;
};

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

class MaxPool2d : public Module {
 public:
  explicit MaxPool2d(const Pool2dOptions& options) : options_(options) {}
  Tensor forward(const Tensor& x) override { return max_pool2d(x, options_); }
  [[nodiscard]] std::string name() const override;

 private:
  Pool2dOptions options_;
};

class AvgPool2d : public Module {
 public:
  explicit AvgPool2d(const Pool2dOptions& options) : options_(options) {}
  Tensor forward(const Tensor& x) override { return avg_pool2d(x, options_); }
  [[nodiscard]] std::string name() const override;

 private:
  Pool2dOptions options_;
};

class AdaptiveAvgPool2d : public Module {
 public:
  explicit AdaptiveAvgPool2d(Pair output) : output_(output) {}
  Tensor forward(const Tensor& x) override { return adaptive_avg_pool2d(x, output_); }
  [[nodiscard]] std::string name() const override;

 private:
  Pair output_;
};

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
