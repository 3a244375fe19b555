// A layer of your own with layers inside: squeeze and excitation (Hu et al., 2018), which weighs the channels of an
// image by averages over all its pixels. Its gradients are checked, and it is put into a network, trained, saved and
// loaded.

#include <norma/norma.h>

#include <fmt/format.h>

#include <cstdio>
#include <filesystem>
#include <memory>
#include <random>

using namespace norma;  // NOLINT: an example reads better without prefixes

namespace {

class SqueezeExcite : public nn::Module {
 public:
  explicit SqueezeExcite(int64_t channels, int64_t reduction = 4) {
    // Code that looks for parameters finds registered children: "reduce.weight", "expand.bias", …
    reduce_ = register_module("reduce", std::make_shared<nn::Conv2d>(channels, channels / reduction, 1));
    expand_ = register_module("expand", std::make_shared<nn::Conv2d>(channels / reduction, channels, 1));
  }

  Tensor forward(const Tensor& x) override {
    const Tensor squeezed = adaptive_avg_pool2d(x, {1, 1});      // (N, C, 1, 1)
    return x * sigmoid((*expand_)(relu((*reduce_)(squeezed))));  // repeated over the pixels
  }
  [[nodiscard]] std::string name() const override { return "SqueezeExcite"; }

 private:
  std::shared_ptr<nn::Conv2d> reduce_;
  std::shared_ptr<nn::Conv2d> expand_;
};

std::shared_ptr<nn::Sequential> make_network() {
  return std::make_shared<nn::Sequential>(std::initializer_list<std::shared_ptr<nn::Module>>{
      std::make_shared<nn::Conv2d>(3, 16, 3, nn::Conv2dOptions{.stride = 2, .padding = 1}),
      std::make_shared<nn::ReLU>(), std::make_shared<SqueezeExcite>(16), std::make_shared<nn::AdaptiveAvgPool2d>(1),
      std::make_shared<nn::Flatten>(), std::make_shared<nn::Linear>(16, 10)});
}

}  // namespace

int main() {
  manual_seed(1);
  // 1. Gradients of the input against central differences, in float64.
  SqueezeExcite layer(8);
  layer.to(DType::float64);
  const GradcheckResult checked = gradcheck([&](const Tensors& in) { return Tensors{layer(in[0])}; },
                                            {randn({2, 8, 3, 3}, {.dtype = DType::float64}).set_requires_grad()});
  std::printf("gradcheck: %s\n", checked ? "passed" : checked.message.c_str());

  // 2. In a network: a few steps on one batch.
  const auto network = make_network();
  std::printf("%s", nn::to_string(*network).c_str());
  const Tensor images = randn({16, 3, 16, 16});
  const Tensor labels = randint(0, 10, {16});
  nn::Sgd optimizer(nn::parameter_groups(*network, /* weight_decay= */ 0), {.lr = 0.1, .momentum = 0.9});
  float first = 0;
  float last = 0;
  for (int step = 0; step < 20; ++step) {
    optimizer.zero_grad();
    const Tensor loss = cross_entropy((*network)(images), labels);
    loss.backward();
    optimizer.step();
    last = loss.item<float>();
    first = step == 0 ? last : first;
  }
  std::printf("loss %.3f, after 20 steps %.3f\n", first, last);

  // 3. Saved and loaded: the same numbers.
  const std::filesystem::path file =
      std::filesystem::temp_directory_path() / fmt::format("norma_custom_layer_{}", std::random_device()());
  data::save_safetensors(file, network->state_dict());
  const auto copy = make_network();
  copy->load_state_dict(data::load_safetensors(file).tensors);
  std::filesystem::remove(file);
  const bool same = (*copy)(images).to_vector<float>() == (*network)(images).to_vector<float>();
  std::printf("loaded again: %s\n", same ? "the same output" : "ANOTHER output");
  return checked && last < first && same ? 0 : 1;
}
