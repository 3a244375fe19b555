// A norm composed of differentiable ops, with the mean absolute deviation of the channels at each pixel instead of the
// standard deviation.
//   y = (x - mean(x)) / (mean |x - mean(x)| + eps) * weight + bias
#include <norma/norma.h>

using namespace norma;  // NOLINT: an example reads better without prefixes

namespace {

class AbsoluteNorm : public nn::Module {
 public:
  AbsoluteNorm(int64_t channels, double eps)
      : weight_(register_parameter("weight", ones({channels}))),
        bias_(register_parameter("bias", zeros({channels}))),
        eps_(eps) {}

  Tensor forward(const Tensor& x) override {
    const Tensor centred = x - mean(x, {1}, {.keepdim = true});
    const Tensor deviation = mean(abs(centred), {1}, {.keepdim = true});
    const Sizes along_channels{x.size(1), 1, 1};
    const Tensor y = centred / (deviation + eps_) * view(weight_, along_channels) + view(bias_, along_channels);
    return norma::to(y, x.dtype());  // the parameters may be float32, and x 16 bits
  }
  [[nodiscard]] std::string name() const override { return "AbsoluteNorm"; }

 private:
  Tensor weight_;
  Tensor bias_;
  double eps_;
};

}  // namespace

NORMA_PLUGIN {
  const auto make = [](const nn::NormChoice& choice, int64_t channels) {
    return std::make_shared<AbsoluteNorm>(channels, choice.number("eps", 1e-5));
  };
  nn::register_norm("absolute", {.make = make, .options = {"eps"}});
}
