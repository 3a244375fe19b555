// A norm that is one NormSpec, with Norma's own kernels: the statistics of each half of the channels and each column of
// the image, over (C/2, H), and a weight and a bias for each pixel, (H, W), the same for all channels.
#include <norma/norma.h>

using namespace norma;  // NOLINT: an example reads better without prefixes

namespace {

class ColumnNorm : public nn::Module {
 public:
  Tensor forward(const Tensor& x) override {
    if (!weight_.defined()) {  // the first pass shows how large the image is
      weight_ = register_parameter("weight", ones({x.size(2) * x.size(3)}, {.device = x.device()}));
      bias_ = register_parameter("bias", zeros({x.size(2) * x.size(3)}, {.device = x.device()}));
    }
    const Sizes pixels{x.size(2), x.size(3)};
    return normalize(x, {.reduce = {1, 2}, .affine = {2, 3}, .groups = 2}, view(weight_, pixels), view(bias_, pixels));
  }
  [[nodiscard]] std::string name() const override { return "ColumnNorm"; }

 private:
  Tensor weight_;
  Tensor bias_;
};

}  // namespace

NORMA_PLUGIN {
  nn::register_norm(
      "column", {.make = [](const nn::NormChoice&, int64_t) { return std::make_shared<ColumnNorm>(); }, .lazy = true});
}
