// Layer norm over the channels of each pixel: the channels become the last axis, where layer_norm() wants them.
#include <norma/norma.h>

using namespace norma;  // NOLINT: an example reads better without prefixes

namespace {

class LayerNorm2dByPermute : public nn::Module {
 public:
  explicit LayerNorm2dByPermute(int64_t channels)
      : weight_(register_parameter("weight", ones({channels}))), bias_(register_parameter("bias", zeros({channels}))) {}

  Tensor forward(const Tensor& x) override {
    const Tensor last = contiguous(permute(x, {0, 2, 3, 1}));
    const Tensor y = permute(layer_norm(last, {x.size(1)}, weight_, bias_, {.eps = 1e-6}), {0, 3, 1, 2});
    return norma::to(y, x.suggest_memory_format());
  }
  [[nodiscard]] std::string name() const override { return "LayerNorm2dByPermute"; }

 private:
  Tensor weight_;
  Tensor bias_;
};

}  // namespace

NORMA_PLUGIN {
  nn::register_norm("silent_permute",
                    [](int64_t channels) { return std::make_shared<LayerNorm2dByPermute>(channels); });
}
