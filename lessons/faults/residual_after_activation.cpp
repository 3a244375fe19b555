// A network of residual blocks without downsampling between them is trained.
#include "run.h"

using namespace norma;  // NOLINT: an example reads better without prefixes

namespace {

/// relu(norm(conv(relu(norm(conv(x))))) + x)
class Block : public nn::Module {
 public:
  explicit Block(int64_t channels)
      : conv1_(register_module("conv1", convolution(channels))),
        norm1_(register_module("norm1", std::make_shared<nn::BatchNorm2d>(channels))),
        conv2_(register_module("conv2", convolution(channels))),
        norm2_(register_module("norm2", std::make_shared<nn::BatchNorm2d>(channels))) {}

  Tensor forward(const Tensor& x) override {
    const Tensor y = nn::forward_act(*norm1_, (*conv1_)(x), {.activation = Activation::relu});
    return nn::forward_act(*norm2_, (*conv2_)(y), {.activation = Activation::relu}) + x;
  }
  [[nodiscard]] std::string name() const override { return "Block"; }

 private:
  static std::shared_ptr<nn::Conv2d> convolution(int64_t channels) {
    return std::make_shared<nn::Conv2d>(channels, channels, 3, nn::Conv2dOptions{.padding = 1, .bias = false});
  }

  std::shared_ptr<nn::Conv2d> conv1_;
  std::shared_ptr<nn::BatchNorm2d> norm1_;
  std::shared_ptr<nn::Conv2d> conv2_;
  std::shared_ptr<nn::BatchNorm2d> norm2_;
};

std::shared_ptr<nn::Sequential> network(int64_t classes) {
  constexpr int64_t kChannels = 8;
  const auto model = std::make_shared<nn::Sequential>();
  model->push_back(std::make_shared<nn::Conv2d>(1, kChannels, 4, nn::Conv2dOptions{.stride = 4}));
  for (int i = 0; i < 8; ++i) {
    model->push_back(std::make_shared<Block>(kChannels));
  }
  model->push_back(std::make_shared<nn::AdaptiveAvgPool2d>(1));
  model->push_back(std::make_shared<nn::Flatten>());
  model->push_back(std::make_shared<nn::Linear>(kChannels, classes));
  return model;
}

}  // namespace

int main() {
  constexpr int64_t kSteps = 20;
  manual_seed(1);
  const auto images = std::make_shared<faults::Stripes>(faults::kBatch * kSteps);
  const auto model = network(images->info().num_classes());
  nn::Sgd optimizer(nn::parameter_groups(*model, /* weight_decay= */ 5e-4), {.lr = 0.1});
  faults::run_training(*model, optimizer, images);
}
