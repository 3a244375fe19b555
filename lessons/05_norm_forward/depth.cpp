// What a norm is for: the scale of numbers and gradients in a deep network, and the learning rates that train.
#include "depth.h"

#include <norma/norma.h>

#include <fmt/format.h>

#include <cmath>
#include <memory>
#include <vector>

#include "m1_own_tape/training.h"
#include "picture.h"

using namespace norma;  // NOLINT: a lesson reads better without prefixes

namespace {

double deviation(const Tensor& x) {
  return std::sqrt(var(x.detach(), {0, 1}, {.correction = 0}).item<double>());
}

/// The network of milestone 1, without biases: with a layer norm after each hidden layer, or with nothing there.
std::shared_ptr<nn::Sequential> network(bool with_norm) {
  auto model = std::make_shared<nn::Sequential>();
  const std::vector<int64_t> sizes = {784, 128, 64};
  for (size_t i = 0; i + 1 < sizes.size(); ++i) {
    model->push_back(std::make_shared<nn::Linear>(sizes[i], sizes[i + 1], nn::LinearOptions{.bias = false}));
    if (with_norm) {
      model->push_back(std::make_shared<nn::LayerNorm>(Sizes{sizes[i + 1]}));
    }
    model->push_back(std::make_shared<nn::ReLU>());
  }
  model->push_back(std::make_shared<nn::Linear>(64, 10, nn::LinearOptions{.bias = false}));
  return model;
}

}  // namespace

void drift(const std::string& folder) {
  constexpr int64_t kWidth = 64;
  std::vector<lessons::Curve> curves;
  fmt::print("0.2 · √64 = {:.1f}\n", 0.2 * std::sqrt(kWidth));
  for (const double scale : {0.2, 0.125}) {
    for (const bool with_norm : {false, true}) {
      Generator generator(1);
      const TensorOptions float64{.dtype = DType::float64};
      const Tensor x = randn({1, kWidth}, float64, generator).set_requires_grad();
      const std::string name = fmt::format("{:g}, {}", scale, with_norm ? "a norm" : "no norm");
      lessons::Curve curve{.name = name, .points = {}, .color = static_cast<lessons::Color>(3 + curves.size())};
      fmt::print("{:<15} deviation after layer", name);
      Tensor y = x;
      for (int layer = 1; layer <= 20; ++layer) {
        y = matmul(y, randn({kWidth, kWidth}, float64, generator) * scale);
        y = with_norm ? layer_norm(y, {kWidth}) : y;
        curve.points.emplace_back(layer, deviation(y));
        if (layer % 10 == 0) {
          fmt::print(" {}: {:.1f},", layer, deviation(y));
        }
      }
      const Tensor dy = randn({1, kWidth}, float64, generator);
      sum(y * dy).backward();
      fmt::print(" gradient: {:.1f} times\n", deviation(x.grad()) / deviation(dy));
      curves.push_back(curve);
    }
  }
  lessons::curve_chart("The deviation of the numbers after each layer",
                       "With weights of deviation 0.2 it grows to thousands in 20 layers, with a norm it stays at 1",
                       {.label = "layer"}, {.label = "deviation", .logarithmic = true}, curves)
      .save(folder, "drift");
}

void rates() {
  const Images images = load_images(data::Split::train, 3000);
  const Images tests = load_images(data::Split::test, 1000);
  for (const bool with_norm : {false, true}) {
    manual_seed(1);
    const auto model = network(with_norm);
    const auto loss = [&] {
      const Tensor scores = (*model)(images.pixels);
      return mean(scores * scores).item<float>();
    };
    const float before = loss();
    const NoGradGuard guard;
    Tensor weight = model->parameters()[0];
    mul_(weight, 10);
    fmt::print("{:<7} norm: the first weights times 10 change the mean square of the scores by a factor of {:.1f}\n",
               with_norm ? "with" : "without", loss() / before);
  }
  for (const double rate : {0.01, 0.1, 1.0, 3.0}) {
    fmt::print("rate {:4}, measured:", rate);
    for (const bool with_norm : {false, true}) {
      manual_seed(1);
      const auto model = network(with_norm);
      nn::Sgd optimizer(nn::parameter_groups(*model, /* weight_decay= */ 0), {.lr = rate});
      constexpr int64_t kBatch = 50;
      for (int64_t step = 0; step < 120; ++step) {
        const int64_t first = step * kBatch % images.pixels.size(0);
        optimizer.zero_grad();
        const Tensor scores = (*model)(narrow(images.pixels, 0, first, kBatch));
        cross_entropy(scores, narrow(images.labels, 0, first, kBatch)).backward();
        optimizer.step();
      }
      model->eval();
      const Tensor hits = equal(argmax((*model)(tests.pixels), 1), tests.labels);
      fmt::print(" {} {:4.1f} %", with_norm ? "with a norm" : "without",
                 100 * mean(to(hits, DType::float32)).item<float>());
    }
    fmt::print("\n");
  }
}
