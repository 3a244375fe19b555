#include "lab/judge/convolutions.h"

#include "base/error.h"
#include "core/copy.h"
#include "core/factory.h"
#include "core/random.h"
#include "core/tape.h"
#include "models/registry.h"
#include "ops/conv/conv.h"
#include "ops/loss/loss.h"
#include "ops/optimizer/optimizer.h"
#include "ops/pointwise/pointwise.h"
#include "session/interrupt.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <span>

namespace norma::lab::judge {

namespace {

struct Layer {
  int64_t n, channels, size;
};

/// They are the 3x3 layers of ResNet-50 at batch 8.
constexpr Layer kLayers[] = {{8, 64, 56}, {8, 128, 28}, {8, 256, 14}, {8, 512, 7}};

struct Step {
  const char* model;
  const char* norm;
};

constexpr Step kSteps[] = {{"resnet18", "batch"}, {"resnet18", "group:32"}};
constexpr int64_t kImages = 8;
constexpr int64_t kPixels = 64;
constexpr int64_t kClasses = 10;

Tensor in(const Tensor& x, MemoryFormat format, DType dtype) {
  return copy_of(x, format, dtype).set_requires_grad();
}

/// Sums of squares of the differences and of `expected`, tensor by tensor.
std::vector<std::array<double, 2>> squares_of(const Tensors& actual, const Tensors& expected) {
  std::vector<std::array<double, 2>> squares;
  for (size_t i = 0; i < actual.size(); ++i) {
    const Tensor error = sub(copy_of(actual[i], MemoryFormat::preserve, DType::float64), expected[i]);
    const std::vector<double> sums = sums_of_squares({error, expected[i]}, kCpu).to_vector<double>();
    squares.push_back({sums[0], sums[1]});
  }
  return squares;
}

double ratio(const std::array<double, 2>& squares) {
  return std::sqrt(squares[0] / squares[1]);
}

/// y, dx and dweight.
Tensors run_layer(const Tensor& x, const Tensor& weight, const Tensor& dy, MemoryFormat format, DType dtype) {
  const Tensor x_in = in(x, format, dtype);
  const Tensor weight_in = in(weight, format, dtype);
  const Tensor y = conv2d(x_in, weight_in, {}, {.padding = 1});
  y.backward(copy_of(dy, format, dtype));
  return {y.detach(), x_in.grad(), weight_in.grad()};
}

/// The logits, and the gradient of each parameter.
Tensors run_step(const Step& step, uint64_t seed, DType dtype) {
  const auto model = models::create_model(step.model, {.num_classes = kClasses, .norm = step.norm, .seed = seed});
  model->to(dtype);
  model->to(MemoryFormat::channels_last);
  manual_seed(seed);
  const Tensor images =
      copy_of(randn({kImages, 3, kPixels, kPixels}, {.dtype = DType::float32}), MemoryFormat::channels_last, dtype);
  std::vector<int64_t> labels;
  for (int64_t i = 0; i < kImages; ++i) {
    labels.push_back(i % kClasses);
  }
  const Tensor logits = model->forward(images);
  cross_entropy(logits, from_vector(labels, {kImages})).backward();
  Tensors results = {logits.detach()};
  for (const auto& [name, parameter] : model->named_parameters()) {
    results.push_back(parameter.grad());
  }
  return results;
}

std::array<double, 3> step_errors(const Tensors& actual, const Tensors& expected) {
  const std::vector<std::array<double, 2>> squares = squares_of(actual, expected);
  std::array<double, 2> all = {0, 0};
  for (size_t i = 1; i < squares.size(); ++i) {
    all[0] += squares[i][0];
    all[1] += squares[i][1];
  }
  double worst = 0;
  for (size_t i = 1; i < squares.size(); ++i) {
    // Some gradients are 0 but for rounding, such as that of a bias before batch norm: their ratio says nothing.
    if (squares[i][1] > 1e-20 * all[1]) {
      worst = std::max(worst, ratio(squares[i]));
    }
  }
  return {ratio(squares[0]), ratio(all), worst};
}

}  // namespace

const std::vector<std::string>& convolution_implementations() {
  static const std::vector<std::string> names = {"exact", "winograd_2x2", "winograd_4x4", "fast"};
  return names;
}

const std::array<std::string, 3>& layer_quantities() {
  static const std::array<std::string, 3> names = {"output", "dx", "dweight"};
  return names;
}

const std::array<std::string, 3>& step_quantities() {
  static const std::array<std::string, 3> names = {"logits", "dparameters", "dparameter_worst"};
  return names;
}

void check_convolutions() {
  const std::vector<std::string> known = conv2d_implementations();
  check(std::find(known.begin(), known.end(), "winograd_4x4") != known.end(), "audit",
        "convolutions: expected a device with Winograd's convolutions, got {}", to_string(default_device()));
}

std::vector<ConvolutionErrors> measure_convolutions(bool quick,
                                                    const std::function<void(const std::string&)>& progress) {
  check_convolutions();
  std::vector<MemoryFormat> formats = {MemoryFormat::channels_last, MemoryFormat::contiguous};
  formats.resize(quick ? 1 : 2);
  std::vector<ConvolutionErrors> found;
  for (const Layer& layer : kLayers) {
    if (train::interrupted()) {
      break;
    }
    const Sizes sizes = {layer.n, layer.channels, layer.size, layer.size};
    const std::string what = fmt::format("{}x{}x{}x{}", layer.n, layer.channels, layer.size, layer.size);
    progress(what);
    manual_seed(0);
    const Tensor x = relu(randn(sizes, {.dtype = DType::float32}));
    const Tensor weight = randn({layer.channels, layer.channels, 3, 3}, {.dtype = DType::float32});
    const Tensor dy = randn(sizes, {.dtype = DType::float32});
    const Tensors expected = run_layer(x, weight, dy, MemoryFormat::channels_last, DType::float64);
    for (const MemoryFormat format : formats) {
      for (const std::string& implementation : convolution_implementations()) {
        const Conv2dImplementationGuard guard(implementation, kCpu);
        const auto squares = squares_of(run_layer(x, weight, dy, format, DType::float32), expected);
        found.push_back({what, format, implementation, {ratio(squares[0]), ratio(squares[1]), ratio(squares[2])}});
      }
    }
  }
  return found;
}

std::vector<ConvolutionErrors> measure_steps(bool quick, const std::function<void(const std::string&)>& progress) {
  check_convolutions();
  std::vector<ConvolutionErrors> found;
  for (const Step& step : std::span(kSteps).first(quick ? 1 : std::size(kSteps))) {
    const std::string what = fmt::format("{} {} {}x3x{}x{}", step.model, step.norm, kImages, kPixels, kPixels);
    progress(what);
    const std::vector<std::string>& implementations = convolution_implementations();
    std::vector<std::array<std::vector<double>, 3>> errors(implementations.size());
    for (uint64_t seed = 0; seed < (quick ? 5 : 9); ++seed) {
      if (train::interrupted()) {
        return found;
      }
      const Tensors expected = run_step(step, seed, DType::float64);
      for (size_t i = 0; i < implementations.size(); ++i) {
        const Conv2dImplementationGuard guard(implementations[i], kCpu);
        const std::array<double, 3> of_seed = step_errors(run_step(step, seed, DType::float32), expected);
        for (size_t quantity = 0; quantity < 3; ++quantity) {
          errors[i][quantity].push_back(of_seed[quantity]);
        }
      }
    }
    for (size_t i = 0; i < implementations.size(); ++i) {
      found.push_back({what, MemoryFormat::channels_last, implementations[i], {}});
      for (size_t quantity = 0; quantity < 3; ++quantity) {
        std::vector<double>& of_seeds = errors[i][quantity];
        std::sort(of_seeds.begin(), of_seeds.end());
        found.back().errors[quantity] = of_seeds[of_seeds.size() / 4];
      }
    }
  }
  return found;
}

}  // namespace norma::lab::judge
