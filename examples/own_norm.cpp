// A norm layer of your own: written from plain ops, checked by finite differences, and put into ResNet by its name.
//
// This one divides by the mean absolute deviation of the channels at each pixel instead of the standard deviation:
//   y = (x - mean(x)) / (mean |x - mean(x)| + eps) * weight + bias

#include <norma/norma.h>

#include <cstdio>
#include <memory>
#include <string>

using namespace norma;  // NOLINT: an example reads better without prefixes

namespace {

Tensor absolute_norm(const Tensor& x, const Tensor& weight, const Tensor& bias, double eps = 1e-5) {
  const Tensor centred = x - mean(x, {1}, {.keepdim = true});
  const Tensor deviation = mean(abs(centred), {1}, {.keepdim = true});
  const Sizes along_channels{1, x.size(1), 1, 1};
  return centred / (deviation + eps) * view(weight, along_channels) + view(bias, along_channels);
}

class AbsoluteNorm : public nn::Module {
 public:
  explicit AbsoluteNorm(int64_t channels)
      : weight_(register_parameter("weight", ones({channels}))), bias_(register_parameter("bias", zeros({channels}))) {}

  Tensor forward(const Tensor& x) override { return absolute_norm(x, weight_, bias_); }
  [[nodiscard]] std::string name() const override { return "AbsoluteNorm"; }

 private:
  Tensor weight_;
  Tensor bias_;
};

}  // namespace

int main() {
  // 1. The gradients of input, weight and bias, against central differences.
  manual_seed(1);
  const TensorOptions float64{.dtype = DType::float64};
  const GradcheckResult checked =
      gradcheck([](const Tensors& in) { return Tensors{absolute_norm(in[0], in[1], in[2])}; },
                {randn({2, 5, 3, 4}, float64).set_requires_grad(), randn({5}, float64).set_requires_grad(),
                 randn({5}, float64).set_requires_grad()});
  std::printf("gradcheck: %s\n", checked ? "passed" : checked.message.c_str());

  // 2. A name makes it known to every network.
  nn::register_norm("absolute", [](int64_t channels) { return std::make_shared<AbsoluteNorm>(channels); });
  const auto model = models::create_model("resnet18", {.num_classes = 10, .norm = "absolute"});
  std::printf("resnet18 with it: %lld parameters\n", static_cast<long long>(model->parameter_count()));

  // 3. A few steps on one batch: the loss must fall.
  const Tensor images = randn({8, 3, 32, 32});
  const Tensor labels = arange(8);
  nn::AdamW optimizer(nn::parameter_groups(*model, /* weight_decay= */ 0.05), {.lr = 1e-3});
  float first = 0;
  float last = 0;
  for (int step = 0; step < 6; ++step) {
    optimizer.zero_grad();
    const Tensor loss = cross_entropy((*model)(images), labels);
    loss.backward();
    optimizer.step();
    last = loss.item<float>();
    first = step == 0 ? last : first;
    std::printf("step %d: loss %.3f\n", step, last);
  }
  return checked && last < first ? 0 : 1;
}
