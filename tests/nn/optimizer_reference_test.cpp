#include "core/copy.h"
#include "data/safetensors.h"
#include "nn/optim/optimizers.h"
#include "ops/shape/copy.h"
#include "ops/shape/view.h"
#include "paths.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

using namespace norma;
using namespace norma::nn;

namespace {

constexpr int kSteps = 20;

/// tests/reference/make_optimizers.py made it.
const std::map<std::string, Tensor>& reference() {
  static const std::map<std::string, Tensor> tensors = [] {
    const auto file = data::load_safetensors(test::source_folder() / "tests/reference/optimizers.safetensors");
    std::map<std::string, Tensor> on_device;
    for (const auto& [name, tensor] : file.tensors) {
      on_device[name] = to_device(tensor, default_device());
    }
    return on_device;
  }();
  return tensors;
}

/// The largest difference of two elements, as a share of the largest element.
double relative_difference(const Tensor& x, const Tensor& expected) {
  const std::vector<double> a = x.to_vector<double>();
  const std::vector<double> b = expected.to_vector<double>();
  REQUIRE(a.size() == b.size());
  double difference = 0;
  double largest = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    REQUIRE(std::isfinite(a[i]));
    difference = std::max(difference, std::abs(a[i] - b[i]));
    largest = std::max(largest, std::abs(b[i]));
  }
  return difference / largest;
}

using Make = std::function<std::unique_ptr<Optimizer>(std::vector<ParameterGroup>)>;

template <class Opt, class Options>
Make make(const Options& options) {
  return [options](std::vector<ParameterGroup> groups) { return std::make_unique<Opt>(std::move(groups), options); };
}

struct Case {
  std::string name;
  Make make;
};

std::vector<Case> cases() {
  return {{"sgd", make<Sgd>(SgdOptions{.lr = 0.1, .momentum = 0.9})},
          {"sgd_dampened", make<Sgd>(SgdOptions{.lr = 0.1, .momentum = 0.8, .dampening = 0.25})},
          {"nesterov", make<Sgd>(SgdOptions{.lr = 0.1, .momentum = 0.9, .nesterov = true})},
          {"adamw", make<AdamW>(AdamWOptions{.lr = 0.01})},
          {"adamw_other", make<AdamW>(AdamWOptions{.lr = 0.01, .beta1 = 0.7, .beta2 = 0.95, .eps = 1e-3})},
          {"lamb", make<Lamb>(LambOptions{.lr = 0.01})},
          {"lamb_unclipped",
           make<Lamb>(LambOptions{.lr = 0.01, .beta1 = 0.8, .beta2 = 0.99, .eps = 1e-5, .max_grad_norm = 0})},
          {"rmsproptf", make<RmsPropTf>(RmsPropTfOptions{.lr = 0.01, .momentum = 0.9})},
          {"muon", make<Muon>(MuonOptions{})},
          {"muon_other", make<Muon>(MuonOptions{
                             .momentum = 0.8, .newton_schulz_steps = 7, .eps = 1e-5, .beta1 = 0.8, .beta2 = 0.99})},
          {"rmsproptf_plain", make<RmsPropTf>(RmsPropTfOptions{.lr = 0.01, .alpha = 0.99, .eps = 1e-3})}};
}

/// One run; compares the parameters where the file has them.
void check_case(const Case& of, DType dtype, double tolerance) {
  std::map<std::string, Tensor> parameters;
  for (const char* name : {"matrix", "kernel", "vector"}) {
    parameters[name] = clone(to(reference().at(std::string("start.") + name), dtype)).set_requires_grad();
  }
  const auto optimizer = of.make(
      {{.parameters = {{"matrix", parameters["matrix"]}, {"kernel", parameters["kernel"]}}, .weight_decay = 0.05},
       {.parameters = {{"vector", parameters["vector"]}}, .weight_decay = 0, .lr_scale = 2}});
  const double lr = optimizer->lr();
  int compared = 0;
  for (int k = 0; k < kSteps; ++k) {
    optimizer->set_lr(lr * (1 - k / 40.0));
    for (auto& [name, x] : parameters) {
      x.set_grad(to(select(reference().at("gradients." + name), 0, k), dtype));
    }
    optimizer->step();
    for (const auto& [name, x] : parameters) {
      const auto kept =
          reference().find(of.name + "." + std::string(to_string(dtype)) + "." + name + "." + std::to_string(k + 1));
      if (kept == reference().end()) {
        continue;
      }
      ++compared;
      const double difference = relative_difference(x.detach(), kept->second);
      CHECK_MESSAGE(difference <= tolerance, kept->first, ": ", difference);
    }
  }
  CHECK(compared == 15);  // three parameters at five steps
}

}  // namespace

TEST_CASE("optimizer: 20 steps of PyTorch's and timm's in float64, to 1e-12") {
  for (const Case& of : cases()) {
    check_case(of, DType::float64, 1e-12);
  }
}

TEST_CASE("optimizer: 20 steps of PyTorch's and timm's in float32, to 1e-6") {
  for (const Case& of : cases()) {
    check_case(of, DType::float32, 1e-6);
  }
}
