#pragma once

#include "core/random.h"
#include "nn/module.h"
#include "ops/matmul/matmul.h"

#include <cstdint>
#include <memory>
#include <string>

namespace norma::models {

// The parts that the residual blocks of ConvNeXt and ViT share. Activations are images (N, C, H, W); the tokens of a
// ViT are images of one row, (N, C, 1, L) in channels_last, whose memory is that of (N, L, C).

/// An image as rows of channels, a view: (N, C, H, W) → (N, H, W, C), and back.
Tensor channels_to_last(const Tensor& x);
Tensor channels_to_second(const Tensor& x);

/// x with each channel multiplied by scale (C), or x itself where that is undefined.
Tensor scaled(const Tensor& x, const Tensor& scale);

/// The deviation of the normal start values of weights in ConvNeXt and ViT.
inline constexpr double kInitDeviation = 0.02;

struct PointwiseOptions {
  bool conv = false;  ///< the weight is (out, in, 1, 1)
  bool bias = true;
  Generator* generator = nullptr;  ///< of the start values of the weight, truncated normal; null: zeros
};

/// A linear layer over the channels at each pixel of (N, in, H, W): a 1x1 convolution. A bias starts at 0.
class Pointwise : public nn::Module {
 public:
  Pointwise(int64_t in, int64_t out, const PointwiseOptions& options);

  Tensor forward(const Tensor& x) override { return forward_act(x, {}); }
  /// activation(scale · (W x + b) + residual), with a scale (out).
  Tensor forward_act(const Tensor& x, const LinearActOptions& then);
  /// Channels start … start + count of the result. The other rows of W are not multiplied.
  Tensor part(const Tensor& x, int64_t start, int64_t count);
  [[nodiscard]] std::string name() const override;

 private:
  Tensor weight_;
  Tensor bias_;
};

/// The branch of a residual block: its last layer is a product, which can also scale its result and add the block's
/// input, without another pass over memory.
class Branch : public nn::Module {
 public:
  Tensor forward(const Tensor& x) override;
  /// scale · branch(x) + residual; scale and residual may be undefined. Only the hooks of the branch's parts run.
  Tensor forward_act(const Tensor& x, const Tensor& scale, const Tensor& residual);

 protected:
  virtual Tensor hidden(const Tensor& x) = 0;  ///< the input of the last layer
  void register_last(const std::string& name, std::shared_ptr<Pointwise> last);

 private:
  std::shared_ptr<Pointwise> last_;
};

struct MlpOptions {
  int64_t ratio = 4;  ///< channels between the two layers for each of the input
  bool grn = false;   ///< a global response norm after the GELU
  PointwiseOptions layers = {};
};

/// fc1, GELU, a global response norm if asked for, fc2.
class Mlp : public Branch {
 public:
  Mlp(int64_t channels, const MlpOptions& options);
  [[nodiscard]] std::string name() const override { return "Mlp"; }

 protected:
  Tensor hidden(const Tensor& x) override;

 private:
  std::shared_ptr<Pointwise> fc1_;
  std::shared_ptr<nn::Module> act_, grn_;
};

/// The sum of a residual block, x + drop_path(scale · branch). scale (C) may be undefined, drop_path null.
struct ResidualSum {
  Tensor scale = {};
  nn::Module* drop_path = nullptr;

  /// x + drop_path(scale · branch), for a tensor.
  [[nodiscard]] Tensor plus(const Tensor& x, const Tensor& branch) const;
  /// x + drop_path(scale · branch(y)): where nothing stands between them, the last product of the branch does it all.
  [[nodiscard]] Tensor plus(const Tensor& x, Branch& branch, const Tensor& y) const;
};

/// The rates of drop path for the blocks of a network: they rise linearly from 0 to `last`.
double drop_path_rate(double last, int64_t block, int64_t blocks);

}  // namespace norma::models
