#pragma once

#include "base/not_copied.h"
#include "core/tensor.h"
#include "ops/norm/spec.h"

#include <memory>
#include <optional>

namespace norma {

// Every norm is one op, and all share these rules:
//  - the biased variance normalizes; the unbiased variance goes into running statistics;
//  - running = (1 - momentum) * running + momentum * batch, as in PyTorch. In Keras, Flax (both 0.99 by default) and
//    Paddle (0.9) momentum is the share of the old statistics: 1 - ours;
//  - eps stands inside the root; statistics are float32 or wider;
//  - an absent weight is 1, an absent bias is 0;
//  - the output keeps the input's dtype and memory format;
//  - backward returns the gradients of input, weight and bias, in that order.
// Input: float64, float32, bfloat16 or float16, any strides. bfloat16 and float16 are computed in float32 and rounded
// once; their parameters have the input's dtype or float32. All norms are differentiable any number of times, except
// batch norm with BatchNormOptions::parts, whose gradients have no derivative.

/// The statistics that normalize() computed, one number for each set of reduced elements. Their sizes are those of x
/// without the reduced axes; with groups, axis 1 stays and has the size `groups`. Their dtype is float64 for a float64
/// x, else float32.
struct NormStatistics {
  Tensor mean;  ///< rounded to that dtype
  Tensor var;   ///< biased unless the spec has a correction; the mean square for Centring::none
};

/// Normalizes x by statistics taken from x itself. weight and bias: sizes of x along spec.affine, or undefined.
/// `statistics`, if given, receives mean and variance (off the tape).
/// Throws Error for axes out of range or repeated, groups that do not divide axis 1, eps below 0, a correction that
/// leaves no degree of freedom, and misshapen weight or bias.
Tensor normalize(const Tensor& x, const NormSpec& spec, const Tensor& weight = {}, const Tensor& bias = {},
                 NormStatistics* statistics = nullptr, std::string_view op = "normalize");

/// The gradients of sum(dy * normalize(x, spec, weight, bias)) for x, weight and bias, in that order; undefined for an
/// undefined weight or bias. dy has the sizes and dtype of x, dx the memory format of x. The statistics are taken from
/// x again; inside normalize() itself they are kept. Differentiable like normalize(), and throws what it throws.
Tensors normalize_backward(const Tensor& dy, const Tensor& x, const NormSpec& spec, const Tensor& weight = {},
                           const Tensor& bias = {});

/// normalize() with a residual and an activation: y = activation(norm(x) + residual). Backward computes norm(x) again
/// rather than keep it; a relu behind a residual keeps one bit per element. Also throws Error for a residual of other
/// sizes or dtype.
Tensor norm_act(const Tensor& x, const NormSpec& spec, const Tensor& weight, const Tensor& bias, const ActOptions& then,
                NormStatistics* statistics = nullptr, std::string_view op = "norm_act");

/// The statistics that normalize() would use, alone (off the tape).
NormStatistics norm_statistics(const Tensor& x, const NormSpec& spec, std::string_view op = "norm_statistics");

/// A batch that several processes share, each of which has some of its images, or none.
class PartsOfBatch : NotCopied {
 public:
  virtual ~PartsOfBatch() = default;

  /// Gathers the x (k) of every process, in the order of the processes: (processes, k). All processes must call it,
  /// with the same k and dtype.
  [[nodiscard]] virtual Tensor all_gather(const Tensor& x) const = 0;
};

struct BatchNormOptions {
  bool training = true;
  double momentum = 0.1;  ///< share of the new batch in the running statistics
  double eps = 1e-5;      ///< Keras has 1e-3, dlib 1e-4
  Statistics statistics = Statistics::stable;
  /// running_var takes the biased variance, as in Keras, Flax and Paddle; PyTorch's is unbiased.
  bool biased_running_var = false;
  /// Undefined, or the number of batches that the running statistics have seen (int64, one element): training adds one.
  Tensor num_batches_tracked = {};
  /// Not null: in training, x is this process's part of a batch, and the statistics are those of the whole batch
  /// (PartsOfBatch). All processes must call batch_norm() and backward(), also those without images.
  /// backward() throws Error with create_graph. The gradients of x are those of the whole batch, those of weight and
  /// bias are the part's: their sum is the batch's.
  std::shared_ptr<const PartsOfBatch> parts = {};
};
/// Batch norm (Ioffe and Szegedy, 2015). x: (N, C, …), rank 2 to 5; statistics of each channel over all other axes.
/// weight, bias, running_mean, running_var: (C) or undefined. Training updates the running statistics in place, but an
/// empty batch leaves them alone; evaluation normalizes with them, or with batch statistics if both are undefined.
/// Throws Error where batch statistics are taken over a single value per channel.
Tensor batch_norm(const Tensor& x, const Tensor& running_mean, const Tensor& running_var, const Tensor& weight = {},
                  const Tensor& bias = {}, const BatchNormOptions& options = {}, const ActOptions& then = {});

/// Ghost batch norm (Hoffer, Hubara and Soudry, 2017): batch norm of each `sub_batch` images on their own; the last
/// part may have fewer. Running statistics take the average over the sub-batches. Evaluation is that of batch_norm().
/// Throws Error for sub_batch below 1, and for a sub-batch with a single value per channel.
Tensor ghost_batch_norm(const Tensor& x, int64_t sub_batch, const Tensor& running_mean, const Tensor& running_var,
                        const Tensor& weight = {}, const Tensor& bias = {}, const BatchNormOptions& options = {},
                        const ActOptions& then = {});

struct BatchRenormOptions {
  BatchNormOptions batch_norm = {};
  double r_max = 3;  ///< bounds of the correction; 1 and 0 make it batch norm
  double d_max = 5;
};
/// Batch renorm (Ioffe, 2017): batch norm whose output is moved to what the running statistics would give,
/// y = ((x - mean_b) / s_b * r + d) * weight + bias with s = sqrt(var + eps), r = clamp(s_b / s, 1 / r_max, r_max) and
/// d = clamp((mean_b - mean) / s, -d_max, d_max), where r and d count as constants. Evaluation is that of batch_norm().
/// The paper and Keras keep a running s, with the biased variance; here the variance is kept, unbiased unless the
/// options say otherwise. Throws Error without running statistics, and in training for a single value per channel.
Tensor batch_renorm(const Tensor& x, const Tensor& running_mean, const Tensor& running_var, const Tensor& weight = {},
                    const Tensor& bias = {}, const BatchRenormOptions& options = {}, const ActOptions& then = {});

struct LayerNormOptions {
  double eps = 1e-5;  ///< timm and Flax have 1e-6, Keras 1e-3
  Statistics statistics = Statistics::stable;
};
/// Layer norm (Ba, Kiros and Hinton, 2016) over the last axes. Throws Error unless normalized_shape has their sizes.
/// weight and bias have these sizes, as in Keras, or are undefined; Flax's vary along the last axis alone by default.
Tensor layer_norm(const Tensor& x, const Sizes& normalized_shape, const Tensor& weight = {}, const Tensor& bias = {},
                  const LayerNormOptions& options = {}, const ActOptions& then = {});
struct LayerNorm2dOptions {
  double eps = 1e-6;  ///< as in timm and ConvNeXt
  Statistics statistics = Statistics::stable;
};
/// Layer norm over the channels of (N, C, H, W), at each pixel, without permuting. weight, bias: (C).
Tensor layer_norm_2d(const Tensor& x, const Tensor& weight = {}, const Tensor& bias = {},
                     const LayerNorm2dOptions& options = {}, const ActOptions& then = {});

struct RmsNormOptions {
  /// none: the distance from 1 to the next number of the dtype (float32's for 16 bits), as in PyTorch. timm, Flax and
  /// Keras have 1e-6. The norm is that of Zhang and Sennrich, 2019.
  std::optional<double> eps = {};
};
/// RMS norm over the last axes, x / sqrt(mean(x²) + eps) * weight; without eps the dtype's (16 bits: float32's).
Tensor rms_norm(const Tensor& x, const Sizes& normalized_shape, const Tensor& weight = {},
                const RmsNormOptions& options = {}, const ActOptions& then = {});

struct RmsNorm2dOptions {
  double eps = 1e-6;       ///< as in timm
  int64_t num_groups = 1;  ///< of neighbours among the channels, each with a root mean square of its own
};
/// RMS norm over the channels of (N, C, H, W), at each pixel. weight: (C). Throws Error when num_groups does not divide
/// C.
Tensor rms_norm_2d(const Tensor& x, const Tensor& weight = {}, const RmsNorm2dOptions& options = {},
                   const ActOptions& then = {});

struct SimpleNormOptions {
  double eps = 1e-6;
  Statistics statistics = Statistics::stable;
};
/// x / sqrt(var + eps) * weight over the last axes, with the unbiased variance, as in timm: the mean is not subtracted.
/// Throws Error for a single element.
Tensor simple_norm(const Tensor& x, const Sizes& normalized_shape, const Tensor& weight = {},
                   const SimpleNormOptions& options = {}, const ActOptions& then = {});
/// Simple norm over the channels of (N, C, H, W), at each pixel. weight: (C).
Tensor simple_norm_2d(const Tensor& x, const Tensor& weight = {}, const SimpleNormOptions& options = {},
                      const ActOptions& then = {});

struct GroupNormOptions {
  double eps = 1e-5;  ///< Flax has 1e-6
  Statistics statistics = Statistics::stable;
};
/// Group norm (Wu and He, 2018): x (N, C, …), statistics over C / num_groups channels and all axes behind. weight,
/// bias: (C). The channels of a group are neighbours; MLX, unless pytorch_compatible, takes every num_groups-th
/// channel. Throws Error when num_groups does not divide C.
Tensor group_norm(const Tensor& x, int64_t num_groups, const Tensor& weight = {}, const Tensor& bias = {},
                  const GroupNormOptions& options = {}, const ActOptions& then = {});

struct InstanceNormOptions {
  double eps = 1e-5;  ///< Flax has 1e-6
  Statistics statistics = Statistics::stable;
};
/// Instance norm (Ulyanov et al., 2016): x (N, C, …), statistics over all axes behind the channels. weight, bias: (C).
/// Throws Error for a single element behind the channels.
Tensor instance_norm(const Tensor& x, const Tensor& weight = {}, const Tensor& bias = {},
                     const InstanceNormOptions& options = {}, const ActOptions& then = {});

struct TrackedInstanceNormOptions {
  bool training = true;
  double momentum = 0.1;
  double eps = 1e-5;
  Statistics statistics = Statistics::stable;
};
/// Instance norm with running statistics, as in PyTorch. Training normalizes with the images' own statistics, and
/// updates the running ones with their average over the batch (the unbiased variance). Evaluation normalizes with the
/// running ones.
Tensor instance_norm(const Tensor& x, const Tensor& running_mean, const Tensor& running_var, const Tensor& weight,
                     const Tensor& bias, const TrackedInstanceNormOptions& options, const ActOptions& then = {});

struct StandardizeWeightOptions {
  double eps = 1e-6;  ///< timm's; BiT's code has 1e-10
  Statistics statistics = Statistics::stable;
  /// "Scaled weight standardization" (Brock, De and Smith, 2021): also multiplies each output channel by gamma /
  /// sqrt(fan-in) * gain, which keeps the deviation of activations without a norm. gamma makes up for the nonlinearity
  /// in front: 1.7139588594436646 for relu.
  std::optional<double> gamma = {};
};
/// Weight standardization (Qiao et al., "Micro-batch training with batch-channel normalization and weight
/// standardization", 2019), as in timm: (weight - mean) / sqrt(var + eps) of each output channel, with the biased
/// variance over its fan-in. weight: (O, …) of rank 2 to 5, as of a linear layer or a convolution. gain: O numbers of
/// any shape, (O, 1, 1, 1) in timm, or undefined; it multiplies with or without gamma. The paper's code adds 1e-5 to
/// the unbiased deviation. The rules of every norm hold here. Throws Error for a fan-in of 1, whose weights
/// would all be 0.
Tensor standardize_weight(const Tensor& weight, const Tensor& gain = {}, const StandardizeWeightOptions& options = {});

/// True iff NormReference (reference.h) computes the norms of ops/norm in place of the device's kernels.
/// NORMA_NORM=reference, or the last call of set_norm_reference(), says so. Throws Error if NORMA_NORM is something
/// else.
bool norm_reference();
void set_norm_reference(bool on);

}  // namespace norma
