#include "nn/optim/optimizers.h"

#include "core/factory.h"
#include "error_text.h"
#include "support.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <string>
#include <tuple>
#include <vector>

using namespace norma;
using namespace norma::nn;
using norma::test::error_of;
using norma::test::Layout;
using norma::test::random_tensor;

namespace {

constexpr int kSteps = 20;

/// One parameter of the reference: plain numbers.
struct Plain {
  std::vector<double> p, g, first, second;
  double weight_decay;
  double lr_scale;
};

double norm(const std::vector<double>& x) {
  double sum = 0;
  for (const double value : x) {
    sum += value * value;
  }
  return std::sqrt(sum);
}

void lamb_reference(std::vector<Plain>& all, const LambOptions& o, int step) {
  double total = 0;
  for (const Plain& x : all) {
    total += norm(x.g) * norm(x.g);
  }
  const double clip = o.max_grad_norm > 0 ? std::max(1.0, std::sqrt(total) / o.max_grad_norm) : 1;
  for (Plain& x : all) {
    std::vector<double> u(x.p.size());
    for (size_t i = 0; i < u.size(); ++i) {
      const double g = x.g[i] / clip;
      x.first[i] = o.beta1 * x.first[i] + (1 - o.beta1) * g;
      x.second[i] = o.beta2 * x.second[i] + (1 - o.beta2) * g * g;
      const double m = x.first[i] / (1 - std::pow(o.beta1, step));
      const double v = x.second[i] / (1 - std::pow(o.beta2, step));
      u[i] = m / (std::sqrt(v) + o.eps) + x.weight_decay * x.p[i];
    }
    double ratio = 1;
    if (x.weight_decay != 0 && norm(x.p) > 0 && norm(u) > 0) {
      ratio = norm(x.p) / norm(u);
    }
    for (size_t i = 0; i < u.size(); ++i) {
      x.p[i] -= o.lr * x.lr_scale * ratio * u[i];
    }
  }
}

void rmsprop_reference(std::vector<Plain>& all, const RmsPropTfOptions& o, int step) {
  for (Plain& x : all) {
    for (size_t i = 0; i < x.p.size(); ++i) {
      const double g = x.g[i] + x.weight_decay * x.p[i];
      const double before = step == 1 ? 1 : x.first[i];
      x.first[i] = before + (1 - o.alpha) * (g * g - before);
      x.second[i] = o.momentum * x.second[i] + o.lr * x.lr_scale * g / std::sqrt(x.first[i] + o.eps);
      x.p[i] -= x.second[i];
    }
  }
}

/// Runs both on w (decaying, in a layout), b and z, which begins at 0 and decays, and compares them after each step.
template <class Opt, class Options, class Reference>
void check_run(const Options& options, Layout layout, const Reference& reference) {
  const Tensor start = random_tensor({4, 3, 2, 5}, 1);
  Tensor w = in_layout(start, layout).set_requires_grad();
  Tensor b = random_tensor({6}, 2).set_requires_grad();
  Tensor z = zeros({3}, {.dtype = DType::float64}).set_requires_grad();
  Opt optimizer({{.parameters = {{"w", w}, {"z", z}}, .weight_decay = 0.1}, {.parameters = {{"b", b}}, .lr_scale = 2}},
                options);
  std::vector<Plain> plain;
  for (const auto& [x, decay, scale] : {std::tuple(w, 0.1, 1.0), {z, 0.1, 1.0}, {b, 0.0, 2.0}}) {
    const std::vector<double> p = x.detach().template to_vector<double>();
    plain.push_back({p, {}, std::vector<double>(p.size()), std::vector<double>(p.size()), decay, scale});
  }
  for (int step = 1; step <= kSteps; ++step) {
    size_t i = 0;
    for (Tensor x : {w, z, b}) {
      const Tensor gradient = random_tensor(x.sizes(), static_cast<uint64_t>(100 * step) + i);
      plain[i++].g = gradient.to_vector<double>();
      x.set_grad(gradient);
    }
    optimizer.step();
    reference(plain, options, step);
    i = 0;
    for (const Tensor& x : {w, z, b}) {
      const std::vector<double> values = x.detach().to_vector<double>();
      for (size_t at = 0; at < values.size(); ++at) {
        REQUIRE(std::abs(values[at] - plain[i].p[at]) <= 1e-12 * std::max(1.0, std::abs(plain[i].p[at])));
      }
      ++i;
    }
  }
}

}  // namespace

TEST_CASE("lamb: twenty steps are those of plain loops") {
  for (const Layout layout : test::kLayouts) {
    CAPTURE(to_string(layout));
    check_run<Lamb>(LambOptions{.lr = 0.05, .beta1 = 0.8, .beta2 = 0.95}, layout, lamb_reference);
    check_run<Lamb>(LambOptions{.lr = 0.05, .max_grad_norm = 0}, layout, lamb_reference);
  }
}

TEST_CASE("rmsprop_tf: twenty steps are those of plain loops") {
  for (const Layout layout : test::kLayouts) {
    CAPTURE(to_string(layout));
    check_run<RmsPropTf>(RmsPropTfOptions{.lr = 0.05, .eps = 1e-3, .momentum = 0.9}, layout, rmsprop_reference);
    check_run<RmsPropTf>(RmsPropTfOptions{.lr = 0.05, .alpha = 0.99}, layout, rmsprop_reference);
  }
}

TEST_CASE("lamb, rmsprop_tf: state out and in continues with the same bits, and gradients stay") {
  for (const bool lamb : {true, false}) {
    CAPTURE(lamb);
    const auto make = [&](const Tensor& x) -> std::unique_ptr<Optimizer> {
      const std::vector<ParameterGroup> groups = {{.parameters = {{"x", x}}, .weight_decay = 0.1}};
      if (lamb) {
        return std::make_unique<Lamb>(groups);
      }
      return std::make_unique<RmsPropTf>(groups, RmsPropTfOptions{.momentum = 0.9});
    };
    Tensor x = random_tensor({5, 3}, 1, DType::float32).set_requires_grad();
    const auto first = make(x);
    const Tensor gradient = random_tensor({5, 3}, 2, DType::float32);
    x.set_grad(copy_of(gradient));
    first->step();
    first->step();
    Tensor y = copy_of(x.detach()).set_requires_grad();
    const auto second = make(y);
    second->load_state_dict(first->state_dict());
    y.set_grad(copy_of(gradient));
    first->step();
    second->step();
    CHECK(test::max_difference(x.detach(), y.detach()) == 0);
    CHECK(test::max_difference(x.grad(), gradient) == 0);
    CHECK(second->steps() == 3);
  }
}

TEST_CASE("lamb, rmsprop_tf: error texts") {
  CHECK(error_of([] { Lamb({}, {.beta2 = 1}); }) == "lamb: beta1, beta2: expected values in [0, 1), got 0.9, 1");
  CHECK(error_of([] { Lamb({}, {.max_grad_norm = -1}); }) ==
        "lamb: max_grad_norm: expected a finite number of at least 0, got -1");
  CHECK(error_of([] { RmsPropTf({}, {.alpha = 2}); }) == "rmsprop_tf: alpha: expected a value in [0, 1], got 2");
  CHECK(error_of([] { RmsPropTf({}, {.eps = NAN}); }) ==
        "rmsprop_tf: eps: expected a finite number of at least 0, got nan");
}
