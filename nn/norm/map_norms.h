#pragma once

#include "nn/norm/norm.h"
#include "ops/map_norm/norms.h"

#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace norma::nn {

// Layers around the norms of ops/map_norm/, whose headers describe each. Names of parameters and buffers are those of
// timm and PyTorch. relu is computed with the norm; a residual, and activations behind it, are ops of their own.

/// A norm whose op computes relu at most, and leaves a residual and other activations to other ops.
class MapNorm : public Norm {
 public:
  Tensor forward_act(const Tensor& x, const ActOptions& then) final;
  [[nodiscard]] std::string name() const final { return name_; }
  [[nodiscard]] int64_t channels() const final { return channels_; }

 protected:
  /// The name has `numbers` in brackets. Throws Error for fewer channels than `least`.
  MapNorm(std::string_view layer, int64_t channels, const std::string& numbers, int64_t least = 1);

  /// f(norm(x)), which the constructor sets.
  std::function<Tensor(const Tensor& x, Activation activation)> apply_;

 private:
  std::string name_;
  int64_t channels_;
};

/// See local_response_norm(). No parameters.
class LocalResponseNorm : public MapNorm {
 public:
  /// `channels` of the inputs; 0 accepts any number.
  explicit LocalResponseNorm(int64_t size, const LocalResponseNormOptions& options = {}, int64_t channels = 0);
};

struct EvoNormB0LayerOptions {
  double eps = EvoNormB0Options{}.eps;
  double momentum = EvoNormB0Options{}.momentum;
  Statistics statistics = Statistics::stable;
};
/// See evo_norm_b0(). x: (N, channels, H, W). Parameters weight (1), bias (0) and v (1), buffer running_var (1), all of
/// (channels). Unlike batch norm it has no running mean and no count of batches.
class EvoNorm2dB0 : public MapNorm {
 public:
  explicit EvoNorm2dB0(int64_t channels, const EvoNormB0LayerOptions& options = {});
};

/// See evo_norm_s0(). x: (N, channels, H, W). Parameters weight (1), bias (0) and v (1) of (channels). Throws Error
/// when `groups` does not divide `channels`.
class EvoNorm2dS0 : public MapNorm {
 public:
  EvoNorm2dS0(int64_t groups, int64_t channels, const EvoNormS0Options& options = {});
};

/// See filter_response_norm(). x: (N, channels, H, W). Parameters weight (1), bias (0) and tau (0) of (channels).
class FilterResponseNormTlu2d : public MapNorm {
 public:
  explicit FilterResponseNormTlu2d(int64_t channels, const FilterResponseNormOptions& options = {});
  [[nodiscard]] Invariance invariance() const override { return Invariance::scale; }
};

/// See global_response_norm(). x: (N, channels, …) of rank 3 to 5. Parameters weight (0) and bias (0) of (channels):
/// the layer starts as the identity.
class GlobalResponseNorm : public MapNorm {
 public:
  explicit GlobalResponseNorm(int64_t channels, const GlobalResponseNormOptions& options = {});
  [[nodiscard]] bool weight_is_factor() const override { return false; }
};

struct DynamicTanhLayerOptions {
  double alpha = 0.5;  ///< start value
  int64_t axis = 1;    ///< of the channels in the input; -1 for (N, L, channels)
};
/// See dynamic_tanh(). Parameters alpha of (1), weight (1) and bias (0) of (channels).
class DynamicTanh : public MapNorm {
 public:
  explicit DynamicTanh(int64_t channels, const DynamicTanhLayerOptions& options = {});
  /// Copies its parameters to the host.
  [[nodiscard]] std::optional<Bend> bend() const override;

 private:
  Tensor alpha_;
};

struct DynamicErfLayerOptions {
  double alpha = 0.5;  ///< start value
  double shift = 0;    ///< start value
  int64_t axis = 1;    ///< of the channels in the input; -1 for (N, L, channels)
};
/// See dynamic_erf(). Parameters alpha and shift of (1), weight (1) and bias (0) of (channels).
class DynamicErf : public MapNorm {
 public:
  explicit DynamicErf(int64_t channels, const DynamicErfLayerOptions& options = {});
  /// Copies its parameters to the host.
  [[nodiscard]] std::optional<Bend> bend() const override;

 private:
  Tensor alpha_;
  Tensor shift_;
};

struct SeedNormLayerOptions {
  double eps = SeedNormOptions{}.eps;
  int64_t axis = 1;     ///< of the channels in the input; -1 for (N, L, channels)
  bool offset = false;  ///< the weight is zero-centred: it starts at 0, and 1 + weight takes its place
};
/// See seed_norm(). Parameters weight (1), alpha (1) and beta (0) of (channels). alpha and beta decay, as in the paper;
/// the weight does not, zero-centred or not.
class SeedNorm : public MapNorm {
 public:
  explicit SeedNorm(int64_t channels, const SeedNormLayerOptions& options = {});
  [[nodiscard]] double weight_offset() const override { return offset_ ? 1 : 0; }
  [[nodiscard]] std::vector<std::string> decaying() const override { return {"alpha", "beta"}; }

 private:
  bool offset_;
};

}  // namespace norma::nn
