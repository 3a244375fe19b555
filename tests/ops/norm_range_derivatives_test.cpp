#include "core/factory.h"
#include "core/tape.h"
#include "ops/map_norm/norms.h"
#include "ops/norm/norm.h"
#include "ops/pointwise/pointwise.h"
#include "ops/shape/copy.h"
#include "support.h"

#include <algorithm>
#include <cmath>
#include <vector>

// Gradients by the kernels, with create_graph, and their derivatives, where the squares of x leave float32: they are
// those of the same numbers in float64.

using namespace norma;
using namespace norma::test;

namespace {

struct RangeCase {
  std::string name;
  Sizes sizes;
  std::vector<Sizes> parameters;
  double dy_scale;  ///< as a power of the scale of x: 1 where y does not grow with x, so that derivatives fit float32
  std::function<Tensor(const Tensors& inputs, double eps)> run;  ///< x, then parameters
};

std::vector<RangeCase> cases() {
  const auto spec = [](NormSpec with, double eps) {
    with.eps = eps;
    return with;
  };
  std::vector<RangeCase> all;
  const auto add_norm = [&](std::string name, const Sizes& sizes, int64_t weights, const NormSpec& with) {
    all.push_back({std::move(name), sizes, {{weights}, {weights}}, 1, [spec, with](const Tensors& in, double eps) {
                     return normalize(in[0], spec(with, eps), in[1], in[2]);
                   }});
  };
  add_norm("rows", {6, 40}, 40, {.reduce = {1}, .affine = {1}});
  add_norm("columns", {40, 7}, 7, {.reduce = {0}, .affine = {1}});
  add_norm("groups", {3, 8, 5, 7}, 8, {.reduce = {1, 2, 3}, .affine = {1}, .groups = 4});
  add_norm("root mean square", {3, 8, 5, 7}, 8, {.reduce = {1}, .affine = {1}, .centring = Centring::none});
  add_norm("deviation", {3, 8, 5, 7}, 8,
           {.reduce = {2, 3}, .affine = {1}, .centring = Centring::deviation, .correction = 1});
  all.push_back({"evo_norm_b0", {3, 8, 5, 7}, {{8}, {8}, {8}}, 1, [](const Tensors& in, double eps) {
                   return evo_norm_b0(in[0], {}, in[1], in[2], in[3], {.eps = eps});
                 }});
  all.push_back({"filter_response_norm", {3, 8, 5, 7}, {{8}, {8}, {8}}, 1, [](const Tensors& in, double eps) {
                   return filter_response_norm(in[0], in[1], in[2], in[3], {.eps = eps});
                 }});
  all.push_back({"global_response_norm", {3, 8, 5, 7}, {{8}, {8}}, 0, [](const Tensors& in, double eps) {
                   return global_response_norm(in[0], in[1], in[2], {.eps = eps});
                 }});
  return all;
}

Tensors leaves(const RangeCase& norm, double scale, DType dtype) {
  Tensors inputs{to(to(mul(random_tensor(norm.sizes, 1), scale), DType::float32), dtype)};
  for (size_t i = 0; i < norm.parameters.size(); ++i) {
    inputs.push_back(to(to(add(mul(random_tensor(norm.parameters[i], 2 + i), 0.2), 1), DType::float32), dtype));
  }
  for (Tensor& input : inputs) {
    input = input.detach();
    input.set_requires_grad();
  }
  return inputs;
}

/// The gradients by the kernels, those with create_graph, and the derivatives of dx · direction.
Tensors derivatives(const RangeCase& norm, double scale, double eps, DType dtype) {
  Tensors inputs = leaves(norm, scale, dtype);
  const Tensor y = norm.run(inputs, eps);
  const double of_dy = std::pow(scale, norm.dy_scale);
  Tensor dy = to(to(mul(random_tensor(y.sizes(), 8), of_dy), DType::float32), dtype).detach();
  dy.set_requires_grad();
  Tensors results = grad({y}, inputs, {dy}, {.retain_graph = true});
  const Tensors with_graph = grad({y}, inputs, {dy}, {.create_graph = true});
  for (const Tensor& gradient : with_graph) {
    results.push_back(gradient.detach());
  }
  inputs.push_back(dy);
  const Tensor direction = to(to(random_tensor(norm.sizes, 9), DType::float32), dtype);
  for (const Tensor& second : grad({with_graph[0]}, inputs, {direction})) {
    results.push_back(second);
  }
  return results;
}

double largest(const Tensor& x) {
  double most = 0;
  for (const double value : x.to_vector<double>()) {
    most = std::max(most, std::abs(value));
  }
  return most;
}

void check_like_float64(const RangeCase& norm, double scale, double eps) {
  CAPTURE(norm.name);
  CAPTURE(scale);
  const Tensors narrow = derivatives(norm, scale, eps, DType::float32);
  const Tensors wide = derivatives(norm, scale, eps, DType::float64);
  REQUIRE(narrow.size() == wide.size());
  for (size_t i = 0; i < narrow.size(); ++i) {
    CAPTURE(i);
    REQUIRE(narrow[i].defined() == wide[i].defined());
    if (wide[i].defined()) {
      CHECK(max_difference(to(narrow[i], DType::float64), wide[i]) <= 2e-5 * largest(wide[i]));
    }
  }
}

}  // namespace

TEST_CASE("norms: derivatives with create_graph, and second ones, where squares overflow float32") {
  for (const RangeCase& norm : cases()) {
    for (const double scale : {1.0, 1e19, 1e21}) {
      check_like_float64(norm, scale, 1e-5);
    }
  }
}

TEST_CASE("norms: derivatives with create_graph, and second ones, where squares underflow float32") {
  for (const RangeCase& norm : cases()) {
    if (norm.name != "global_response_norm") {  // whose eps is not that of a variance
      check_like_float64(norm, 1e-20, 0);
    }
  }
}

TEST_CASE("global_response_norm: a map of zeros has no gradient through its response, with create_graph and twice") {
  const Sizes sizes{2, 3, 4, 5};
  std::vector<double> values = random_tensor(sizes, 1).to_vector<double>();
  std::fill_n(values.begin() + 20, 20, 0.0);  // the second map of the first image
  Tensor x = from_vector(values, sizes, {.dtype = DType::float64});
  x.set_requires_grad();
  Tensor weight = random_tensor({3}, 2);
  const Tensor y = global_response_norm(x, weight, {});
  const Tensor dy = random_tensor(x.sizes(), 3);
  const Tensor by_kernels = grad({y}, {x}, {dy}, {.retain_graph = true})[0];
  const Tensor with_graph = grad({y}, {x}, {dy}, {.create_graph = true})[0];
  CHECK(max_difference(by_kernels, with_graph.detach()) <= 1e-12);
  const Tensor second = grad({with_graph}, {x}, {random_tensor(x.sizes(), 4)})[0];
  for (const double value : second.to_vector<double>()) {
    CHECK(std::isfinite(value));
  }
}

TEST_CASE("local_response_norm: float32 above 1e19 and in its gradients above 1e11") {
  for (const double beta : {0.75, 0.5}) {
    for (const double scale : {1.0, 1e12, 1e16, 1e20, 1e30}) {
      const RangeCase norm{"local_response_norm", {2, 8, 5, 7}, {}, 1, [beta](const Tensors& in, double) {
                             return local_response_norm(in[0], 5, {.alpha = 0.5, .beta = beta});
                           }};
      CAPTURE(beta);
      if (scale < 1e30) {  // there dx leaves float32
        check_like_float64(norm, scale, 0);
      }
      const Tensors narrow = leaves(norm, scale, DType::float32);
      const Tensor y = norm.run(narrow, 0);
      const Tensor expected = norm.run(leaves(norm, scale, DType::float64), 0);
      CHECK(max_difference(to(y.detach(), DType::float64), expected.detach()) <= 1e-5 * largest(expected));
    }
  }
}
