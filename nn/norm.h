#pragma once

#include "nn/module.h"
#include "ops/norm/spec.h"

#include <optional>

namespace norma::nn {

// Layers around ops/norm/norm.h, where the meaning of each is described. Weights start at 1, biases at 0.

struct BatchNorm2dOptions {
  double eps = 1e-5;
  /// Share of the new batch in the running statistics; none: their plain average over all batches; 0: they are frozen.
  std::optional<double> momentum = 0.1;
  bool affine = true;
  bool track_running_stats = true;  ///< false: batch statistics also in evaluation
  Statistics statistics = Statistics::stable;
};

/// x: (N, channels, H, W). Buffers running_mean, running_var and num_batches_tracked (int64).
class BatchNorm2d : public Module {
 public:
  explicit BatchNorm2d(int64_t channels, const BatchNorm2dOptions& options = {});

  Tensor forward(const Tensor& x) override;
  [[nodiscard]] std::string name() const override;
  [[nodiscard]] const Tensor& weight() const { return weight_; }
  [[nodiscard]] const Tensor& bias() const { return bias_; }
  [[nodiscard]] const Tensor& running_mean() const { return running_mean_; }
  [[nodiscard]] const Tensor& running_var() const { return running_var_; }

 private:
  int64_t channels_;
  BatchNorm2dOptions options_;
  Tensor weight_;
  Tensor bias_;
  Tensor running_mean_;
  Tensor running_var_;
  Tensor num_batches_tracked_;
};

struct NormOptions {
  double eps = 1e-5;
  bool affine = true;
  Statistics statistics = Statistics::stable;
};

/// Over the last axes, whose sizes are `normalized_shape`.
class LayerNorm : public Module {
 public:
  explicit LayerNorm(const Sizes& normalized_shape, const NormOptions& options = {});
  Tensor forward(const Tensor& x) override;
  [[nodiscard]] std::string name() const override;

 private:
  Sizes shape_;
  NormOptions options_;
  Tensor weight_;
  Tensor bias_;
};

/// Over the channels of (N, channels, H, W), at each pixel.
class LayerNorm2d : public Module {
 public:
  explicit LayerNorm2d(int64_t channels, const NormOptions& options = {.eps = 1e-6});
  Tensor forward(const Tensor& x) override;
  [[nodiscard]] std::string name() const override;

 private:
  int64_t channels_;
  NormOptions options_;
  Tensor weight_;
  Tensor bias_;
};

/// Throws Error when `groups` does not divide `channels`.
class GroupNorm : public Module {
 public:
  GroupNorm(int64_t groups, int64_t channels, const NormOptions& options = {});
  Tensor forward(const Tensor& x) override;
  [[nodiscard]] std::string name() const override;

 private:
  int64_t groups_;
  int64_t channels_;
  NormOptions options_;
  Tensor weight_;
  Tensor bias_;
};

/// Over the pixels of each channel of each image of (N, channels, H, W). With weight and bias, unlike PyTorch's
/// default.
class InstanceNorm2d : public Module {
 public:
  explicit InstanceNorm2d(int64_t channels, const NormOptions& options = {});
  Tensor forward(const Tensor& x) override;
  [[nodiscard]] std::string name() const override;

 private:
  int64_t channels_;
  NormOptions options_;
  Tensor weight_;
  Tensor bias_;
};

}  // namespace norma::nn
