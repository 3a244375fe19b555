#include "lab/telemetry/sharpness.h"

#include "core/copy.h"
#include "core/device.h"
#include "core/factory.h"
#include "core/op.h"
#include "core/random.h"
#include "error_text.h"
#include "nn/conv.h"
#include "nn/layers.h"
#include "nn/norm/batch_norm.h"
#include "nn/norm/factory.h"
#include "nn/sequential.h"
#include "ops/loss/loss.h"
#include "ops/pointwise/pointwise.h"
#include "ops/reduce/reduce.h"
#include "ops/shape/copy.h"
#include "session/interrupt.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <csignal>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

using namespace norma;
using namespace norma::lab;

namespace {

constexpr PowerIteration kThorough{.tolerance = 1e-8, .most_products = 1000};

using Matrix = std::vector<std::vector<double>>;

/// The dense Hessian of a loss by central differences of its first gradient.
Matrix dense_hessian(const Tensors& parameters, const std::function<Tensor()>& loss) {
  const auto gradient = [&] {
    std::vector<double> all;
    const Tensors parts = grad({loss()}, parameters);
    for (size_t i = 0; i < parts.size(); ++i) {  // undefined: the loss does not depend on it
      const Tensor part = parts[i].defined() ? parts[i] : zeros_like(parameters[i]);
      const std::vector<double> values = part.to_vector<double>();
      all.insert(all.end(), values.begin(), values.end());
    }
    return all;
  };
  constexpr double kStep = 1e-5;
  Matrix rows;
  for (const Tensor& x : parameters) {
    const Tensor values = x.detach();
    auto* elements = values.data<double>();
    for (int64_t i = 0; i < values.numel(); ++i) {
      const double before = elements[i];
      elements[i] = before + kStep;
      std::vector<double> row = gradient();
      elements[i] = before - kStep;
      const std::vector<double> below = gradient();
      elements[i] = before;
      for (size_t column = 0; column < row.size(); ++column) {
        row[column] = (row[column] - below[column]) / (2 * kStep);
      }
      rows.push_back(std::move(row));
    }
  }
  return rows;
}

/// The largest eigenvalue of a symmetric matrix by Jacobi's rotations, each of which makes one element 0.
double largest_of(Matrix a) {
  const size_t n = a.size();
  for (size_t i = 0; i < n; ++i) {
    for (size_t j = 0; j < i; ++j) {
      a[i][j] = a[j][i] = (a[i][j] + a[j][i]) / 2;
    }
  }
  for (int sweep = 0; sweep < 30; ++sweep) {
    for (size_t p = 0; p < n; ++p) {
      for (size_t q = p + 1; q < n; ++q) {
        const double angle = 0.5 * std::atan2(2 * a[p][q], a[q][q] - a[p][p]);
        const double c = std::cos(angle);
        const double s = std::sin(angle);
        for (size_t k = 0; k < n; ++k) {
          const double kp = a[k][p];
          a[k][p] = c * kp - s * a[k][q];
          a[k][q] = s * kp + c * a[k][q];
        }
        for (size_t k = 0; k < n; ++k) {
          const double pk = a[p][k];
          a[p][k] = c * pk - s * a[q][k];
          a[q][k] = s * pk + c * a[q][k];
        }
      }
    }
  }
  double largest = a[0][0];
  double rest = 0;
  for (size_t i = 0; i < n; ++i) {
    largest = std::max(largest, a[i][i]);
    for (size_t j = 0; j < i; ++j) {
      rest = std::max(rest, std::abs(a[i][j]));
    }
  }
  REQUIRE(rest < 1e-9);
  return largest;
}

std::shared_ptr<nn::Sequential> small_network(const std::string& norm) {
  manual_seed(4);
  auto model = std::make_shared<nn::Sequential>();
  model->push_back(std::make_shared<nn::Conv2d>(2, 4, 1));
  model->push_back(nn::make_norm(norm, 4));
  model->push_back(std::make_shared<nn::GELU>());
  model->push_back(std::make_shared<nn::Conv2d>(4, 3, 1));
  model->push_back(std::make_shared<nn::AdaptiveAvgPool2d>(1));
  model->push_back(std::make_shared<nn::Flatten>());
  return model;
}

/// The loss of a fixed batch, each time with the buffers that the network has now.
std::function<Tensor()> loss_of(nn::Module& model, DType dtype) {
  Generator random(6);
  const Tensor x = to(randn({6, 2, 4, 3}, {}, random), dtype);
  const Tensor labels = from_vector<int64_t>({0, 1, 2, 0, 1, 2}, {6});
  std::vector<std::pair<Tensor, Tensor>> kept;
  for (const auto& [name, buffer] : model.named_buffers()) {
    kept.emplace_back(buffer.detach(), copy_of(buffer.detach(), MemoryFormat::contiguous));
  }
  return [&model, x, labels, kept] {
    for (const auto& [buffer, before] : kept) {
      copy_into(before, buffer);
    }
    return cross_entropy(model(x), labels);
  };
}

std::vector<float> numbers_of(nn::Module& model) {
  std::vector<float> all;
  for (const auto& [name, x] : model.state_dict()) {
    const std::vector<float> values = x.to_vector<float>();
    all.insert(all.end(), values.begin(), values.end());
  }
  return all;
}

/// x², whose gradient is made by a kernel even when it ought to be recorded.
Tensor square_once(const Tensor& x) {
  const Tensor y = mul(x.detach(), x.detach());
  return Op("square_once").record({x}, y, {x}, [](const Tensor& dy, const BackwardContext& c) -> Tensors {
    const NoGradGuard kernel;
    return {mul(mul(dy, c.saved(0)), 2)};
  });
}

}  // namespace

TEST_CASE("sharpness: the largest eigenvalue of a dense Hessian, with each norm") {
  for (const auto& known : nn::built_in_norms()) {
    const std::string& norm = known.first;
    CAPTURE(norm);
    if (norm == "batch_renorm") {
      continue;  // its gradient takes r and d for numbers, so that it is not that of any loss, and has no Hessian
    }
    const auto model = small_network(norm == "group" ? "group:2" : norm);
    nn::make_lazy_parameters(*model, {1, 2, 4, 3});
    model->to(DType::float64);
    const auto loss = loss_of(*model, DType::float64);
    const Tensors parameters = model->parameters();
    const double expected = largest_of(dense_hessian(parameters, loss));
    REQUIRE(expected > 1e-3);
    const Sharpness found = largest_eigenvalue(parameters, loss, kThorough);
    CHECK(found.value == doctest::Approx(expected).epsilon(1e-4));  // eigenvalues may lie near each other
    CHECK(found.products > 1);
    CHECK(found.seconds > 0);
    // Few products come near it.
    const Sharpness near = largest_eigenvalue(parameters, loss);
    CHECK(near.products <= 2 * PowerIteration{}.most_products);
    CHECK(near.value == doctest::Approx(expected).epsilon(0.2));
  }
}

TEST_CASE("sharpness: eigenvalues of quadratic losses, whatever their signs") {
  const auto sharpness = [](const std::vector<double>& eigenvalues, const PowerIteration& options = kThorough) {
    const auto n = static_cast<int64_t>(eigenvalues.size());
    Tensor x = full({n}, 0.5, {.dtype = DType::float64});
    x.set_requires_grad();
    const Tensor d = from_vector(eigenvalues, {n}, {.dtype = DType::float64});
    return largest_eigenvalue(
        {x}, [&] { return div(sum(mul(d, mul(x, x))), 2); }, options);
  };
  CHECK(sharpness({3, 1, 0.5}).value == doctest::Approx(3).epsilon(1e-6));
  CHECK(sharpness({-5, 1, 2}).value == doctest::Approx(2).epsilon(1e-6));
  CHECK(sharpness({-5, -1, -2}).value == doctest::Approx(-1).epsilon(1e-6));
  CHECK(sharpness({-5, 0}).value == doctest::Approx(0).scale(1).epsilon(1e-6));
  CHECK(sharpness({0, 0}).value == 0);
  const Sharpness stopped = sharpness({3, 2.999}, {.tolerance = 0, .most_products = 3});
  CHECK(stopped.products == 3);
  CHECK(stopped.change > 0);
  CHECK(stopped.change < 1);
  CHECK(std::isnan(sharpness({3, 1}, {.most_products = 1}).change));
  CHECK(sharpness({-2}).value == doctest::Approx(-2));
  CHECK(sharpness({-2}).problem.empty());
  CHECK(std::isnan(sharpness({NAN, 1}).value));

  Tensor x = ones({3}, {.dtype = DType::float64});
  x.set_requires_grad();
  CHECK(largest_eigenvalue({x}, [&] { return sum(x); }).value == 0);  // its gradient is a number
}

TEST_CASE("sharpness: float32 on each device gives what float64 gives") {
  const auto on = [](Device device, DType dtype) {
    const DefaultDeviceGuard guard(device);
    const auto model = small_network("batch");
    model->to(dtype);
    return largest_eigenvalue(model->parameters(), loss_of(*model, dtype), {.tolerance = 1e-5, .most_products = 500})
        .value;
  };
  const double expected = on(kCpu, DType::float64);
  REQUIRE(expected > 0);
  CHECK(on(kCpu, DType::float32) == doctest::Approx(expected).epsilon(1e-3));
  CHECK(on(kCudaEmulated, DType::float32) == doctest::Approx(expected).epsilon(1e-3));
}

TEST_CASE("sharpness: the network, its gradients and the random numbers are as before") {
  nn::Sequential model{std::make_shared<nn::Conv2d>(2, 4, 1), std::make_shared<nn::BatchNorm2d>(4),
                       std::make_shared<nn::Dropout>(0.4), std::make_shared<nn::AdaptiveAvgPool2d>(1),
                       std::make_shared<nn::Flatten>()};
  Generator random(6);
  const Tensor x = randn({6, 2, 4, 3}, {}, random);
  const auto loss = [&] { return cross_entropy(model(x), from_vector<int64_t>({0, 1, 2, 3, 1, 2}, {6})); };
  loss().backward();
  const std::vector<float> before = numbers_of(model);
  const std::vector<float> gradient = model.parameters()[0].grad().to_vector<float>();
  const uint64_t offset = default_generator().offset();
  const Sharpness found = sharpness_of(model, loss);
  CHECK(found.problem.empty());
  CHECK(found.value > 0);
  CHECK((numbers_of(model) == before));
  CHECK((model.parameters()[0].grad().to_vector<float>() == gradient));
  CHECK(default_generator().offset() == offset);
  CHECK(sharpness_of(model, loss).value == found.value);  // the same start vector, and the same numbers for dropout
}

TEST_CASE("sharpness: a signal ends it before the next product") {
  nn::Sequential model{std::make_shared<nn::Linear>(3, 2)};
  const Tensor x = ones({2, 3});
  const auto loss = [&] { return sum(mul(model(x), model(x))); };
  CHECK(sharpness_of(model, loss).problem.empty());
  const train::InterruptGuard guard;
  std::raise(SIGINT);
  const Sharpness found = sharpness_of(model, loss);
  CHECK(found.problem == "sharpness: a signal ended it");
  CHECK(found.seconds > 0);
  CHECK(std::isnan(found.value));
}

TEST_CASE(
    "sharpness: an op without a second derivative, numbers too coarse for one, and infinite ones, are problems in "
    "words") {
  nn::Sequential model{std::make_shared<nn::Linear>(3, 2)};
  const Tensor x = ones({2, 3});
  const auto once = [&] {
    const Tensor y = square_once(model(x));
    return sum(mul(y, y));
  };
  const Sharpness found = sharpness_of(model, once);
  CHECK(
      found.problem ==
      "square_once: backward: expected a gradient made by ops that are recorded, got one without a second derivative");
  CHECK(std::isnan(found.value));
  CHECK(sharpness_of(model, [&] { return mul(sum(mul(model(x), model(x))), NAN); }).problem ==
        "sharpness: expected a finite loss and Hessian, got nan");
  model.to(DType::bfloat16);
  CHECK(sharpness_of(model, [&] { return sum(mul(model(x), model(x))); }).problem ==
        "sharpness: parameters: expected float32 or float64, as with the amp precisions, got bfloat16");
  CHECK(test::error_of([] { largest_eigenvalue({}, [] { return Tensor(); }); }) ==
        "sharpness: parameters: expected at least one, got none");
}
