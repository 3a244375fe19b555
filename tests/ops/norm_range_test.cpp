#include "core/factory.h"
#include "core/tape.h"
#include "ops/map_norm/norms.h"
#include "ops/norm_table.h"

#include <algorithm>
#include <limits>

// Sets whose squares leave the range of float32: results, gradients and their derivatives are those of the same numbers
// in float64.

using namespace norma;
using namespace norma::test;

namespace {

/// y, dx and dweight of normalize(), with weights of about 0.75.
Tensors run(const Tensor& x, const NormSpec& spec, const Tensor& dy) {
  const Tensor weight = add(mul(random_tensor({x.size(spec.affine[0])}, 3), 0.1), 0.75);
  const Tensors results = norm_results(spec, {.x = x, .weight = to(weight, x.dtype()), .dy = dy});
  return {results[0], results[1], results[2]};
}

/// y, dx and dweight of float32 values are those of the same values in float64.
void check_like_float64(const Tensor& x, const NormSpec& spec) {
  const Tensor dy = random_tensor(x.sizes(), 4, DType::float32);
  const Tensors narrow = run(x, spec, dy);
  const Tensors wide = run(to(x, DType::float64), spec, to(dy, DType::float64));
  CHECK(max_difference(narrow[0], wide[0]) <= 2e-6);
  for (const size_t gradient : {1, 2}) {
    CAPTURE(gradient);
    CHECK(max_difference(narrow[gradient], wide[gradient]) <= 1e-5 * largest(wide[gradient]));
  }
}

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
      CHECK(max_difference(narrow[i], wide[i]) <= 2e-5 * largest(wide[i]));
    }
  }
}

}  // namespace

TEST_CASE("norms: squares that overflow float32") {
  for (const SpecCase& walk : norm_walks()) {
    for (const Statistics statistics :
         {Statistics::stable, Statistics::welford, Statistics::two_pass, Statistics::compensated}) {
      for (const double scale : {1e19, 1e30, 5e37}) {
        CAPTURE(walk.name);
        CAPTURE(to_string(statistics));
        CAPTURE(scale);
        NormSpec spec = walk.spec;
        spec.statistics = statistics;
        check_like_float64(to(mul(random_tensor(walk.sizes, 5), scale), DType::float32).detach(), spec);
      }
    }
  }
}

TEST_CASE("norms: squares that underflow float32 where eps does not cover them") {
  for (const SpecCase& walk : norm_walks()) {
    for (const double scale : {1e-20, 1e-30}) {
      CAPTURE(walk.name);
      CAPTURE(scale);
      NormSpec spec = walk.spec;
      spec.eps = 0;
      check_like_float64(to(mul(random_tensor(walk.sizes, 5), scale), DType::float32).detach(), spec);
    }
  }
}

TEST_CASE("norms: root mean square and deviation of squares that overflow float32") {
  for (const SpecCase& walk : norm_walks()) {
    for (const Centring centring : {Centring::none, Centring::deviation}) {
      CAPTURE(walk.name);
      NormSpec spec = walk.spec;
      spec.centring = centring;
      spec.correction = centring == Centring::deviation ? 1 : 0;
      check_like_float64(to(mul(random_tensor(walk.sizes, 5), 1e25), DType::float32).detach(), spec);
    }
  }
}

TEST_CASE("norms: float64 at 1e200 is what it is at 1") {
  for (const SpecCase& walk : norm_walks()) {
    NormSpec spec = walk.spec;
    spec.eps = 0;
    const Tensor x = random_tensor(walk.sizes, 6);
    const Tensor dy = random_tensor(walk.sizes, 7);
    const Tensors near = run(x, spec, dy);
    const double scale = std::ldexp(1.0, 664);
    const Tensors far = run(mul(x, scale), spec, dy);
    CAPTURE(walk.name);
    CHECK(max_difference(far[0], near[0]) <= 1e-13);
    CHECK(max_difference(mul(far[1], scale), near[1]) <= 1e-11);
  }
}

TEST_CASE("norms: infinities and NaN stay what they are among squares that overflow") {
  Tensor x = to(mul(random_tensor({3, 40}, 8), 1e25), DType::float32).detach();
  set_element(x, 45, std::numeric_limits<float>::infinity());
  set_element(x, 90, std::numeric_limits<float>::quiet_NaN());
  const std::vector<float> y = normalize(x, {.reduce = {1}}).to_vector<float>();
  for (size_t i = 0; i < y.size(); ++i) {
    CHECK(std::isnan(y[i]) == (i >= 40));
  }
}

TEST_CASE("normalize: the gradient of x / std where the mean is large") {
  // dx = (g - (x - mean) * rstd * m) * rstd: x itself in the product would leave its rounding behind, 0.1 at 1e6.
  for (const SpecCase& walk : norm_walks()) {
    NormSpec spec = walk.spec;
    spec.centring = Centring::deviation;
    spec.correction = 1;
    CAPTURE(walk.name);
    const Tensor x = add(random_tensor(walk.sizes, 9, DType::float32), 1e6);
    const Tensor dy = add(random_tensor(walk.sizes, 4, DType::float32), 1.0);
    const Tensor narrow = run(x, spec, dy)[1];
    const Tensor wide = run(to(x, DType::float64), spec, to(dy, DType::float64))[1];
    CHECK(max_difference(narrow, wide) <= 1e-5 * largest(wide));
  }
}

TEST_CASE("normalize: the gradient of x / std where its sum over a set times 1 / std leaves float32") {
  const NormSpec spec{.reduce = {1}, .affine = {1}, .eps = 0, .centring = Centring::deviation, .correction = 1};
  const Tensor noise = random_tensor({3, 1024}, 4);
  const Tensor values = random_tensor({3, 1024}, 5);
  const Tensor x = to(mul(values, 1e-36), DType::float32).detach();
  const Tensor dy = to(add(values, noise), DType::float32).detach();
  const Tensor narrow = run(x, spec, dy)[1];
  const Tensor wide = run(to(x, DType::float64), spec, to(dy, DType::float64))[1];
  CHECK(max_difference(narrow, wide) <= 1e-5 * largest(wide));
}

TEST_CASE("batch_norm: with running statistics a NaN in x does not reach dx") {
  for (const Sizes& sizes : {Sizes{4, 3, 5, 7}, Sizes{2, 3, 20, 20}, Sizes{64, 3}}) {
    Tensor x = copy_of(random_tensor(sizes, 1, DType::float32));
    set_element(x, x.numel() / 2, std::numeric_limits<float>::quiet_NaN());
    x.set_requires_grad();
    const Tensor running_mean = zeros({3});
    const Tensor running_var = full({3}, 4);
    const Tensor y = batch_norm(x, running_mean, running_var, {}, {}, {.training = false, .eps = 0});
    y.backward(ones(sizes));
    CHECK(max_difference(x.grad(), full(sizes, 0.5)) == 0);
  }
}

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
      CHECK(max_difference(y, expected) <= 1e-5 * largest(expected));
    }
  }
}
