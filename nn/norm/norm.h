#pragma once

#include "nn/module.h"
#include "ops/norm/norm.h"

#include <cstdint>
#include <optional>

namespace norma::nn {

// Layers around ops/norm/norm.h, which describes each norm. Weights start at 1, biases at 0. nn/norm/batch_norm.h has
// the norms that keep statistics of batches, nn/norm/map_norms.h those that are not one normalize().

/// The changes of a norm's input that its output does not show, up to eps.
enum class Invariance : uint8_t {
  none,
  scale,            ///< a positive factor of the whole input
  scale_and_shift,  ///< a positive factor, and a number added to a channel of the whole batch
};

/// How a bounded norm, such as dyt, bends each element by itself: where |scale · x + shift| > limit, the slope is below
/// a tenth of the largest.
struct Bend {
  double scale = 1;
  double shift = 0;
  double limit = 0;
};

/// The sets of elements whose statistics a norm of (N, channels, H, W) takes: some channels of one image, all pixels or
/// one.
struct StatisticSets {
  int64_t channels = 1;  ///< of a set, neighbours
  bool subtracts_mean = true;
  bool has_variance = true;  ///< false: divides by the root mean square
  double eps = 0;
};

/// What a batch norm computes in evaluation, (x - mean) / sqrt(var + eps) * weight + bias; undefined tensors where it
/// has none.
struct BatchEvaluation {
  Tensor mean;
  Tensor var;
  Tensor weight;
  Tensor bias;
  double eps = 0;
};

/// A norm layer. A residual and an activation may follow it in the same op.
class Norm : public Module {
 public:
  Tensor forward(const Tensor& x) final { return forward_act(x, {}); }
  /// activation(norm(x) + residual).
  virtual Tensor forward_act(const Tensor& x, const ActOptions& then) = 0;
  /// Channels of an input (N, channels, …); 0 if the norm is over other axes.
  [[nodiscard]] virtual int64_t channels() const { return 0; }
  /// The changes of the input that the output does not show in the present mode, training or evaluation. Telemetry
  /// finds weights whose scale has no effect by it.
  [[nodiscard]] virtual Invariance invariance() const { return Invariance::none; }
  /// None for a norm that is not bounded.
  [[nodiscard]] virtual std::optional<Bend> bend() const { return {}; }
  /// None for a norm without sets, and for one whose y is more than weight * (x - mean) / root + bias. Those of batch
  /// norm have a channel each, with the running statistics.
  [[nodiscard]] virtual std::optional<StatisticSets> sets() const { return {}; }
  /// None unless it is a batch norm, which may be frozen.
  [[nodiscard]] virtual std::optional<BatchEvaluation> evaluation() const { return {}; }
  /// False for a weight that does not scale the output, so that its 0 is another norm's 1.
  [[nodiscard]] virtual bool weight_is_factor() const { return true; }
  /// Is added to the weight before it scales the output: 1 for a zero-centred weight.
  [[nodiscard]] virtual double weight_offset() const { return 0; }
  /// The names of the parameters that decay as the weights of convolutions do (nn::parameter_groups()). The others have
  /// the decay of norms, which is 0 as a rule.
  [[nodiscard]] virtual std::vector<std::string> decaying() const { return {}; }
};

/// As Norm::weight_is_factor(); true for a module that is no Norm.
bool weight_is_factor(const Module& norm);
/// As Norm::weight_offset(); 0 for a module that is no Norm.
double weight_offset(const Module& norm);

/// Takes the place of a norm and normalizes nothing: only the residual and the activation act on its input.
class NoNorm : public Norm {
 public:
  explicit NoNorm(int64_t channels);
  Tensor forward_act(const Tensor& x, const ActOptions& then) override;
  [[nodiscard]] std::string name() const override { return "NoNorm"; }
  [[nodiscard]] int64_t channels() const override { return channels_; }

 private:
  int64_t channels_;
};

/// Takes the place of a norm that has been folded into the convolution before it.
class FoldedNorm : public NoNorm {
 public:
  using NoNorm::NoNorm;
  [[nodiscard]] std::string name() const override { return "FoldedNorm"; }
};

/// activation(norm(x) + residual) for any module: one op if the module is a Norm, else several. Hooks of a Norm see the
/// result, those of another module norm(x) alone; a ModuleObserver sees the result of any. Hooks of an activation's own
/// module are not called.
Tensor forward_act(Module& norm, const Tensor& x, const ActOptions& then);
/// activation(norm(conv(x)) + residual). It is conv2d_act() if the norm has been folded into the convolution
/// (fold_batch_norm()) and no hook reads the tensor between them.
Tensor conv_norm_act(Module& conv, Module& norm, const Tensor& x, const ActOptions& then);

struct NormOptions {
  double eps = 1e-5;  ///< PyTorch's; layer_norm() and group_norm() list libraries that differ
  bool affine = true;
  bool bias = true;  ///< false: affine is a weight alone
  Statistics statistics = Statistics::stable;
  /// The weight is zero-centred: it starts at 0, 1 + weight takes its place, and it decays (Norm::decaying()), which
  /// leads to the identity. Gemma's RMS norm, and zero_centered_gamma of Apex and Transformer Engine. Needs affine.
  bool offset = false;
};

/// The part that norms share if they have nothing but weight and bias.
class AffineNorm : public Norm {
 public:
  [[nodiscard]] std::string name() const override;
  [[nodiscard]] Invariance invariance() const override { return Invariance::scale; }
  [[nodiscard]] double weight_offset() const override { return options_.offset ? 1 : 0; }
  [[nodiscard]] std::vector<std::string> decaying() const override;
  [[nodiscard]] const Tensor& weight() const { return weight_; }
  [[nodiscard]] const Tensor& bias() const { return bias_; }

 protected:
  /// `text`: how name() begins, "LayerNorm([3], eps=1e-05". `sizes`: of weight and bias.
  AffineNorm(std::string text, const Sizes& sizes, const NormOptions& options, bool with_bias = true);
  [[nodiscard]] const NormOptions& options() const { return options_; }
  /// What scales the output: the weight, or 1 + weight.
  [[nodiscard]] Tensor gain() const;

 private:
  std::string text_;
  NormOptions options_;
  Tensor weight_;
  Tensor bias_;
};

/// Layer norm over the last axes, whose sizes are `normalized_shape`.
class LayerNorm : public AffineNorm {
 public:
  explicit LayerNorm(const Sizes& normalized_shape, const NormOptions& options = {});
  Tensor forward_act(const Tensor& x, const ActOptions& then) override;

 private:
  Sizes shape_;
};

struct RmsNormLayerOptions {
  std::optional<double> eps = {};  ///< none: see rms_norm()
  bool affine = true;
};

/// RMS norm over the last axes, whose sizes are `normalized_shape`. It has a weight, but no bias.
class RMSNorm : public AffineNorm {
 public:
  explicit RMSNorm(const Sizes& normalized_shape, const RmsNormLayerOptions& options = {});
  Tensor forward_act(const Tensor& x, const ActOptions& then) override;

 private:
  Sizes shape_;
  std::optional<double> eps_;
};

struct SimpleNormLayerOptions {
  double eps = SimpleNormOptions{}.eps;
  bool affine = true;
  Statistics statistics = Statistics::stable;
};

/// Simple norm, x / sqrt(var + eps), over the last axes, whose sizes are `normalized_shape`. It has a weight, but no
/// bias.
class SimpleNorm : public AffineNorm {
 public:
  explicit SimpleNorm(const Sizes& normalized_shape, const SimpleNormLayerOptions& options = {});
  Tensor forward_act(const Tensor& x, const ActOptions& then) override;

 private:
  Sizes shape_;
};

/// An AffineNorm of (N, channels, …).
class ChannelNorm : public AffineNorm {
 public:
  [[nodiscard]] int64_t channels() const override { return channels_; }
  [[nodiscard]] double eps() const { return options().eps; }

 protected:
  /// `layer`: "LayerNorm2d", or with its first argument: "GroupNorm(8".
  ChannelNorm(const std::string& layer, int64_t channels, const NormOptions& options, bool with_bias = true);
  /// Throws Error, in the name of `op`, unless x is (N, channels, …) with `low` to `high` axes.
  void check_input(std::string_view op, const Tensor& x, int64_t low, int64_t high) const;

 private:
  int64_t channels_;
};

struct LayerNorm2dLayerOptions {
  double eps = LayerNorm2dOptions{}.eps;
  bool affine = true;
  bool bias = true;  ///< false: affine is a weight alone
  Statistics statistics = Statistics::stable;
  bool offset = false;  ///< as NormOptions::offset
};

/// Layer norm over the channels of (N, channels, H, W), at each pixel.
class LayerNorm2d : public ChannelNorm {
 public:
  explicit LayerNorm2d(int64_t channels, const LayerNorm2dLayerOptions& options = {});
  Tensor forward_act(const Tensor& x, const ActOptions& then) override;
  [[nodiscard]] std::optional<StatisticSets> sets() const override {
    return StatisticSets{.channels = channels(), .eps = eps()};
  }
};

struct RmsNorm2dLayerOptions {
  double eps = RmsNorm2dOptions{}.eps;
  bool affine = true;
  bool offset = false;  ///< as NormOptions::offset
  int64_t groups = 1;
};

/// RMS norm over the channels of (N, channels, H, W), or over each group of them, at each pixel. It has a weight, but
/// no bias. Throws Error when `groups` does not divide `channels`.
class RMSNorm2d : public ChannelNorm {
 public:
  explicit RMSNorm2d(int64_t channels, const RmsNorm2dLayerOptions& options = {});
  Tensor forward_act(const Tensor& x, const ActOptions& then) override;
  [[nodiscard]] std::optional<StatisticSets> sets() const override {
    return StatisticSets{
        .channels = channels() / groups_, .subtracts_mean = false, .has_variance = false, .eps = eps()};
  }

 private:
  int64_t groups_;
};

/// Simple norm over the channels of (N, channels, H, W), at each pixel. It has a weight, but no bias.
class SimpleNorm2d : public ChannelNorm {
 public:
  explicit SimpleNorm2d(int64_t channels, const SimpleNormLayerOptions& options = {});
  Tensor forward_act(const Tensor& x, const ActOptions& then) override;
  [[nodiscard]] std::optional<StatisticSets> sets() const override {
    return StatisticSets{.channels = channels(), .subtracts_mean = false, .eps = eps()};
  }
};

/// Group norm over groups of channels of (N, channels, …). timm's layer takes the channels first, then the groups (32
/// by default). Throws Error when `groups` does not divide `channels`.
class GroupNorm : public ChannelNorm {
 public:
  GroupNorm(int64_t groups, int64_t channels, const NormOptions& options = {});
  Tensor forward_act(const Tensor& x, const ActOptions& then) override;
  [[nodiscard]] int64_t groups() const { return groups_; }
  [[nodiscard]] std::optional<StatisticSets> sets() const override {
    return StatisticSets{.channels = channels() / groups_, .eps = eps()};
  }
  /// A group of one channel takes the channel's mean away.
  [[nodiscard]] Invariance invariance() const override {
    return groups_ == channels() ? Invariance::scale_and_shift : Invariance::scale;
  }

 private:
  int64_t groups_;
};

}  // namespace norma::nn
