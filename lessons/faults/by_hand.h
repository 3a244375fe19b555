#pragma once

// What the faults of norms share: the layers around the functions that have them.

#include <norma/norma.h>

#include <cmath>
#include <memory>
#include <string>

namespace norma::faults {

/// Tensors in 16 bits are computed in float32.
inline Tensor wide(const Tensor& x) {
  return x.dtype() == DType::float64 ? x : to(x, DType::float32);
}

/// A number for each channel as (C, 1, 1), which fits (N, C, H, W).
inline Tensor along_channels(const Tensor& numbers) {
  return view(numbers, {numbers.size(0), 1, 1});
}

/// Layer norm over the channels of each pixel. `function` gets x (N, C, H, W) in float32 or float64, weight (C) and
/// bias (C).
class LayerNormByHand : public nn::Module {
 public:
  using Function = Tensor (*)(const Tensor& x, const Tensor& weight, const Tensor& bias);
  LayerNormByHand(int64_t channels, Function function)
      : weight_(register_parameter("weight", ones({channels}))),
        bias_(register_parameter("bias", zeros({channels}))),
        function_(function) {}

  Tensor forward(const Tensor& x) override { return norma::to(function_(wide(x), weight_, bias_), x.dtype()); }
  [[nodiscard]] std::string name() const override { return "LayerNormByHand"; }

 private:
  Tensor weight_;
  Tensor bias_;
  Function function_;
};

inline void register_layer_norm(const std::string& name, LayerNormByHand::Function function) {
  nn::register_norm(name, [=](int64_t channels) { return std::make_shared<LayerNormByHand>(channels, function); });
}

struct Normalized {
  Tensor xhat;  // (N, C, H, W)
  Tensor r;     // (N, 1, H, W), 1 / deviation
};
/// x̂ = (x - mean) · r,  r = 1 / sqrt(variance + eps), over the channels of each pixel.
inline Normalized normalized(const Tensor& x) {
  const Tensor centred = x - mean(x, {1}, {.keepdim = true});
  const Tensor r = rsqrt(mean(centred * centred, {1}, {.keepdim = true}) + 1e-6);
  return {centred * r, r};
}

/// The gradients of x, weight and bias.
using LayerNormBackward = Tensors (*)(const Tensor& dy, const Normalized& x, const Tensor& weight);
/// y = x̂ · weight + bias, with a backward pass of its own.
inline Tensor layer_norm_with(LayerNormBackward backward, const Tensor& x, const Tensor& weight, const Tensor& bias) {
  const auto forward = [&] {
    const NoGradGuard guard;
    return normalized(x).xhat * along_channels(weight) + along_channels(bias);
  };
  return Op("layer_norm_by_hand")
      .record({x, weight, bias}, forward(), {x, weight}, [backward](const Tensor& dy, const BackwardContext& context) {
        return backward(dy, normalized(context.saved(0)), context.saved(1));
      });
}

/// Batch norm, made of ops, with running statistics for evaluation, which update() changes.
class BatchNormByHand : public nn::Module {
 public:
  BatchNormByHand(int64_t channels, double momentum)
      : running_mean_(register_buffer("running_mean", zeros({channels}))),
        running_var_(register_buffer("running_var", ones({channels}))),
        momentum_(momentum),
        weight_(register_parameter("weight", ones({channels}))),
        bias_(register_parameter("bias", zeros({channels}))) {}

  Tensor forward(const Tensor& input) override {
    const Tensor x = wide(input);
    const Axes axes{0, 2, 3};
    Tensor m = running_mean_;
    Tensor v = running_var_;
    if (is_training()) {
      m = mean(x, axes);
      const Tensor centred = x - along_channels(m);
      v = mean(centred * centred, axes);
      const NoGradGuard guard;
      update(m.detach(), v.detach(), static_cast<double>(x.numel() / x.size(1)));
    }
    const Tensor xhat = (x - along_channels(m)) * rsqrt(along_channels(v) + 1e-5);
    return norma::to(xhat * along_channels(weight_) + along_channels(bias_), input.dtype());
  }
  [[nodiscard]] std::string name() const override { return "BatchNormByHand"; }

 protected:
  /// Takes in the mean and the biased variance of a batch with `count` elements in each channel.
  virtual void update(const Tensor& m, const Tensor& v, double count) = 0;

  Tensor running_mean_;
  Tensor running_var_;
  double momentum_;

 private:
  Tensor weight_;
  Tensor bias_;
};

template <class Norm>
void register_batch_norm(const std::string& name) {
  const auto make = [](const nn::NormChoice& choice, int64_t channels) {
    return std::make_shared<Norm>(channels, choice.number("momentum", 0.1));
  };
  nn::register_norm(name, {.make = make, .options = {"momentum"}});
}

/// Each image is divided by the root of its mean square, with a kernel of its own.
///   y = x · r,  r = 1 / sqrt(mean(x²) + eps)            dx = r · (dy - y · mean(dy · y))
/// Mean::of_products(a, b, count) is that of two runs of memory.
template <class Mean>
class ImageNorm : public nn::Module {
 public:
  Tensor forward(const Tensor& input) override {
    const Tensor x = contiguous(input, input.suggest_memory_format());  // a copy only if it has gaps
    return Op("image_norm")
        .record({x}, computed(x.detach(), {}), {x}, [](const Tensor& dy, const BackwardContext& context) -> Tensors {
          const Tensor saved = context.saved(0);
          if (!context.create_graph()) {
            return {computed(saved, contiguous(dy, saved.suggest_memory_format()))};
          }
          const auto composed = [](const Tensors& in) -> Tensors {
            return {in[0] * rsqrt(mean(in[0] * in[0], {1, 2, 3}, {.keepdim = true}) + kEps)};
          };
          return gradients_of_composed(composed, {saved}, {dy}, context);
        });
  }
  [[nodiscard]] std::string name() const override { return "ImageNorm"; }

 private:
  static constexpr double kEps = 1e-5;

  /// Without dy: y. With dy: dx. An image is one run of memory in either memory format.
  static Tensor computed(const Tensor& x, const Tensor& dy) {
    const Tensor result = empty_like(x);
    const int64_t count = x.numel() / x.size(0);
    dispatch_any_floating("image_norm", x.dtype(), [&](auto zero) {
      using T = decltype(zero);
      using Number = compute_t<T>;
      for (int64_t image = 0; image < x.size(0); ++image) {
        const T* const from = x.data<T>() + image * count;
        const T* const gradient = dy.defined() ? dy.data<T>() + image * count : from;
        T* const to = result.data<T>() + image * count;
        const double r = 1 / std::sqrt(Mean::of_products(from, from, count) + kEps);
        const double share = dy.defined() ? r * r * Mean::of_products(gradient, from, count) : 0;
        for (int64_t i = 0; i < count; ++i) {
          assign(to[i], static_cast<Number>(r) * (static_cast<Number>(gradient[i]) -
                                                  static_cast<Number>(from[i]) * static_cast<Number>(share)));
        }
      }
    });
    return result;
  }
};

}  // namespace norma::faults
