#pragma once

#include "nn/module.h"
#include "ops/norm/norm.h"

#include <optional>

namespace norma::nn {

// Layers around ops/norm/norm.h, where the meaning of each is described. Weights start at 1, biases at 0. Those that
// keep statistics of batches are in nn/norm/batch_norm.h, those that are not one normalize() in
// nn/norm/map_norms.h.

/// A norm layer, which may be followed by a residual and an activation in one op.
class Norm : public Module {
 public:
  Tensor forward(const Tensor& x) final { return forward_act(x, {}); }
  /// activation(norm(x) + residual).
  virtual Tensor forward_act(const Tensor& x, const ActOptions& then) = 0;
  /// Channels of an input (N, channels, …); 0 for a norm of other axes.
  [[nodiscard]] virtual int64_t channels() const { return 0; }
};

/// No norm, in the place of one: its input, and what follows.
class NoNorm : public Norm {
 public:
  explicit NoNorm(int64_t channels);
  Tensor forward_act(const Tensor& x, const ActOptions& then) override;
  [[nodiscard]] std::string name() const override { return "NoNorm"; }
  [[nodiscard]] int64_t channels() const override { return channels_; }

 private:
  int64_t channels_;
};

/// Stands in the place of a norm that has been folded into the convolution before it.
class FoldedNorm : public NoNorm {
 public:
  using NoNorm::NoNorm;
  [[nodiscard]] std::string name() const override { return "FoldedNorm"; }
};

/// activation(norm(x) + residual) for any module: one op where the module is a Norm, else one after the other. Hooks of
/// the module see the result; those of an activation's own module are not called.
Tensor forward_act(Module& norm, const Tensor& x, const ActOptions& then);
/// activation(norm(conv(x)) + residual). Where the norm has been folded into the convolution (fold_batch_norm()) and no
/// hook wants to see what is between them: conv2d_act().
Tensor conv_norm_act(Module& conv, Module& norm, const Tensor& x, const ActOptions& then);

struct NormOptions {
  double eps = 1e-5;  ///< PyTorch's; see layer_norm() and group_norm() for who differs
  bool affine = true;
  bool bias = true;  ///< false: affine is a weight alone
  Statistics statistics = Statistics::stable;
};

/// Over the last axes, whose sizes are `normalized_shape`.
class LayerNorm : public Norm {
 public:
  explicit LayerNorm(const Sizes& normalized_shape, const NormOptions& options = {});
  Tensor forward_act(const Tensor& x, const ActOptions& then) override;
  [[nodiscard]] std::string name() const override;

 private:
  Sizes shape_;
  NormOptions options_;
  Tensor weight_;
  Tensor bias_;
};

struct RmsNormLayerOptions {
  std::optional<double> eps = {};  ///< none: see rms_norm()
  bool affine = true;
};

/// Root mean square over the last axes, whose sizes are `normalized_shape`. A weight, no bias.
class RMSNorm : public Norm {
 public:
  explicit RMSNorm(const Sizes& normalized_shape, const RmsNormLayerOptions& options = {});
  Tensor forward_act(const Tensor& x, const ActOptions& then) override;
  [[nodiscard]] std::string name() const override;

 private:
  Sizes shape_;
  RmsNormLayerOptions options_;
  Tensor weight_;
};

struct SimpleNormLayerOptions {
  double eps = SimpleNormOptions{}.eps;
  bool affine = true;
  Statistics statistics = Statistics::stable;
};

/// x / deviation over the last axes, whose sizes are `normalized_shape`. A weight, no bias.
class SimpleNorm : public Norm {
 public:
  explicit SimpleNorm(const Sizes& normalized_shape, const SimpleNormLayerOptions& options = {});
  Tensor forward_act(const Tensor& x, const ActOptions& then) override;
  [[nodiscard]] std::string name() const override;

 private:
  Sizes shape_;
  SimpleNormLayerOptions options_;
  Tensor weight_;
};

/// What the norms of (N, channels, …) with nothing but weight and bias share.
class ChannelNorm : public Norm {
 public:
  [[nodiscard]] std::string name() const override;
  [[nodiscard]] int64_t channels() const override { return channels_; }
  [[nodiscard]] const Tensor& weight() const { return weight_; }
  [[nodiscard]] const Tensor& bias() const { return bias_; }

 protected:
  /// Rank of the inputs: `low` to `high`.
  ChannelNorm(std::string layer, int64_t channels, const NormOptions& options, bool with_bias = true);
  /// Throws Error, in the name of `op`, unless x is (N, channels, …) with `low` to `high` axes.
  void check_input(std::string_view op, const Tensor& x, int64_t low, int64_t high) const;
  [[nodiscard]] const NormOptions& options() const { return options_; }

 private:
  std::string layer_;  ///< "LayerNorm2d", or with what comes first: "GroupNorm(8"
  int64_t channels_;
  NormOptions options_;
  Tensor weight_;
  Tensor bias_;
};

struct LayerNorm2dLayerOptions {
  double eps = LayerNorm2dOptions{}.eps;
  bool affine = true;
  bool bias = true;  ///< false: affine is a weight alone
  Statistics statistics = Statistics::stable;
};

/// Over the channels of (N, channels, H, W), at each pixel.
class LayerNorm2d : public ChannelNorm {
 public:
  explicit LayerNorm2d(int64_t channels, const LayerNorm2dLayerOptions& options = {});
  Tensor forward_act(const Tensor& x, const ActOptions& then) override;
};

struct RmsNorm2dLayerOptions {
  double eps = RmsNorm2dOptions{}.eps;
  bool affine = true;
};

/// Root mean square over the channels of (N, channels, H, W), at each pixel. A weight, no bias.
class RMSNorm2d : public ChannelNorm {
 public:
  explicit RMSNorm2d(int64_t channels, const RmsNorm2dLayerOptions& options = {});
  Tensor forward_act(const Tensor& x, const ActOptions& then) override;
};

/// x / deviation over the channels of (N, channels, H, W), at each pixel. A weight, no bias.
class SimpleNorm2d : public ChannelNorm {
 public:
  explicit SimpleNorm2d(int64_t channels, const SimpleNormLayerOptions& options = {});
  Tensor forward_act(const Tensor& x, const ActOptions& then) override;
};

/// Over groups of channels of (N, channels, …). timm's layer takes the channels first, then the groups (32 by default).
/// Throws Error when `groups` does not divide `channels`.
class GroupNorm : public ChannelNorm {
 public:
  GroupNorm(int64_t groups, int64_t channels, const NormOptions& options = {});
  Tensor forward_act(const Tensor& x, const ActOptions& then) override;

 private:
  int64_t groups_;
};

}  // namespace norma::nn
