// A layer around your norm, and a small network to try it in.
#include "layer.h"

#include <norma/norma.h>

#include <memory>
#include <string>

#include "exercise.h"

using namespace norma;  // NOLINT: a lesson reads better without prefixes

namespace {

class MyDesign : public nn::Module {
 public:
  explicit MyDesign(int64_t channels)
      : weight_(register_parameter("weight", ones({channels}))), bias_(register_parameter("bias", zeros({channels}))) {}

  Tensor forward(const Tensor& x) override { return my_design(x, weight_, bias_); }
  [[nodiscard]] std::string name() const override { return "MyDesign"; }

 private:
  Tensor weight_;
  Tensor bias_;
};

std::shared_ptr<nn::Module> convolution(int64_t from, int64_t to) {
  return std::make_shared<nn::Conv2d>(from, to, 3, nn::Conv2dOptions{.stride = 2, .padding = 1, .bias = false});
}

}  // namespace

void register_my_design() {
  nn::register_norm("my_design", [](int64_t channels) { return std::make_shared<MyDesign>(channels); });
}

double accuracy_with(const std::string& norm, uint64_t seed) {
  constexpr int64_t kSteps = 40;
  constexpr double kRate = 1e-2;
  static const auto images = data::make_dataset("fashion_mnist", {});
  static const auto test_images = data::make_dataset("fashion_mnist", {.split = data::Split::test});
  manual_seed(seed);
  nn::Sequential model{convolution(3, 16),
                       nn::make_norm(norm, 16),
                       std::make_shared<nn::ReLU>(),
                       convolution(16, 32),
                       nn::make_norm(norm, 32),
                       std::make_shared<nn::ReLU>(),
                       convolution(32, 64),
                       nn::make_norm(norm, 64),
                       std::make_shared<nn::ReLU>(),
                       std::make_shared<nn::AdaptiveAvgPool2d>(1),
                       std::make_shared<nn::Flatten>(),
                       std::make_shared<nn::Linear>(64, 10)};
  model.to(MemoryFormat::channels_last);
  nn::AdamW optimizer(nn::parameter_groups(model, /* weight_decay= */ 0.05), {.lr = kRate});
  const nn::Schedule schedule = nn::one_cycle_schedule({.steps = kSteps});
  data::Loader batches(images, data::Transform(images->info()),
                       {.batch_size = 32, .shuffle = true, .seed = seed, .format = MemoryFormat::channels_last});
  for (int64_t step = 0; step < kSteps; ++step) {
    const auto batch = batches.next();
    optimizer.set_lr(kRate * schedule(step));
    optimizer.zero_grad();
    cross_entropy(model(batch->images), batch->labels).backward();
    optimizer.step();
  }
  model.eval();
  const NoGradGuard no_gradients;
  data::Loader tests(test_images, data::Transform(images->info()),
                     {.batch_size = 500, .format = MemoryFormat::channels_last});
  const auto batch = tests.next();
  return 100 * mean(norma::to(equal(argmax(model(batch->images), 1), batch->labels), DType::float32)).item<float>();
}
