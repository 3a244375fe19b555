#pragma once

#include "nn/module.h"
#include "ops/pool/pool.h"

namespace norma::nn {

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

}  // namespace norma::nn
