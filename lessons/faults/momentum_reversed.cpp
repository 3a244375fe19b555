// Batch norm, made of ops, with running statistics for evaluation.
//   running = (1 - momentum) · running + momentum · that of the batch
#include <norma/norma.h>

using namespace norma;  // NOLINT: an example reads better without prefixes

namespace {

/// Tensors in 16 bits are computed in float32.
Tensor wide(const Tensor& x) {
  return x.dtype() == DType::float64 ? x : to(x, DType::float32);
}

Tensor along_channels(const Tensor& numbers) {
  return view(numbers, {numbers.size(0), 1, 1});
}

class BatchNormByHand : public nn::Module {
 public:
  BatchNormByHand(int64_t channels, double momentum)
      : weight_(register_parameter("weight", ones({channels}))),
        bias_(register_parameter("bias", zeros({channels}))),
        running_mean_(register_buffer("running_mean", zeros({channels}))),
        running_var_(register_buffer("running_var", ones({channels}))),
        momentum_(momentum) {}

  Tensor forward(const Tensor& input) override {
    const Tensor x = wide(input);
    const Axes axes{0, 2, 3};
    Tensor m = running_mean_;
    Tensor v = running_var_;
    if (is_training()) {
      m = mean(x, axes);
      const Tensor centred = x - along_channels(m);
      v = mean(centred * centred, axes);
      update(m.detach(), v.detach(), x.numel() / x.size(1));
    }
    const Tensor xhat = (x - along_channels(m)) * rsqrt(along_channels(v) + 1e-5);
    return norma::to(xhat * along_channels(weight_) + along_channels(bias_), input.dtype());
  }
  [[nodiscard]] std::string name() const override { return "BatchNormByHand"; }

 private:
  /// Takes in the mean and the (biased) variance of a batch with `count` elements in each channel.
  void update(const Tensor& m, const Tensor& v, int64_t count) {
    const NoGradGuard guard;
    const double unbiased = static_cast<double>(count) / static_cast<double>(count - 1);
    add_(mul_(running_mean_, momentum_), m * (1 - momentum_));
    add_(mul_(running_var_, momentum_), v * (unbiased * (1 - momentum_)));
  }

  Tensor weight_;
  Tensor bias_;
  Tensor running_mean_;
  Tensor running_var_;
  double momentum_;
};

}  // namespace

NORMA_PLUGIN {
  const auto make = [](const nn::NormChoice& choice, int64_t channels) {
    return std::make_shared<BatchNormByHand>(channels, choice.number("momentum", 0.1));
  };
  nn::register_norm("momentum_reversed", {.make = make, .options = {"momentum"}});
}
