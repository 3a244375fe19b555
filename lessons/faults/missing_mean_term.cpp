// Layer norm over the channels of each pixel, with a backward pass of its own.
//   y = x̂ · weight + bias,  x̂ = (x - mean) · r,  r = 1 / sqrt(variance + eps)
#include <norma/norma.h>

using namespace norma;  // NOLINT: an example reads better without prefixes

namespace {

constexpr double kEps = 1e-6;

/// Tensors in 16 bits are computed in float32.
Tensor wide(const Tensor& x) {
  return x.dtype() == DType::float64 ? x : to(x, DType::float32);
}

struct Normalized {
  Tensor xhat;  // (N, C, H, W)
  Tensor r;     // (N, 1, H, W), 1 / deviation
};
Normalized normalized(const Tensor& x) {
  const Tensor centred = x - mean(x, {1}, {.keepdim = true});
  const Tensor r = rsqrt(mean(centred * centred, {1}, {.keepdim = true}) + kEps);
  return {centred * r, r};
}

Tensor layer_norm_by_hand(const Tensor& input, const Tensor& gamma, const Tensor& beta) {
  const auto per_channel = [](const Tensor& w) { return view(w, {w.size(0), 1, 1}); };
  const auto forward = [&] {
    const NoGradGuard guard;
    return to(normalized(wide(input)).xhat * per_channel(gamma) + per_channel(beta), input.dtype());
  };
  return Op("layer_norm_by_hand")
      .record({input, gamma, beta}, forward(), {input, gamma},
              [per_channel](const Tensor& dy, const BackwardContext& context) -> Tensors {
                const Tensor x = context.saved(0);
                const Tensor weight = context.saved(1);
                const auto [xhat, r] = normalized(wide(x));
                const Tensor g = wide(dy) * per_channel(weight);
                const Tensor dx = to(r * (g - mean(g, {1}, {.keepdim = true})), x.dtype());
                const Tensor dweight = to(sum(wide(dy) * xhat, {0, 2, 3}), weight.dtype());
                const Tensor dbias = to(sum(wide(dy), {0, 2, 3}), weight.dtype());
                return {dx, dweight, dbias};
              });
}

class LayerNormByHand : public nn::Module {
 public:
  explicit LayerNormByHand(int64_t channels)
      : weight_(register_parameter("weight", ones({channels}))), bias_(register_parameter("bias", zeros({channels}))) {}

  Tensor forward(const Tensor& x) override { return layer_norm_by_hand(x, weight_, bias_); }
  [[nodiscard]] std::string name() const override { return "LayerNormByHand"; }

 private:
  Tensor weight_;
  Tensor bias_;
};

}  // namespace

NORMA_PLUGIN {
  nn::register_norm("missing_mean_term", [](int64_t channels) { return std::make_shared<LayerNormByHand>(channels); });
}
