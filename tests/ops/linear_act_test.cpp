#include "core/autocast.h"
#include "core/op_profile.h"
#include "error_text.h"
#include "ops/matmul/matmul.h"
#include "ops/pointwise/pointwise.h"
#include "ops/shape/copy.h"
#include "ops/shape/view.h"
#include "support.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace norma::test {
namespace {

struct Product {
  std::string_view name;
  Sizes x;
  int64_t outputs;
};

/// All sizes that a library treats differently, odd ones, and rows whose order in memory is not that of the axes.
std::vector<Product> products() {
  return {{"a vector", {33}, 31},        {"few rows", {3, 40}, 17},         {"many rows", {1100, 96}, 130},
          {"pixels", {2, 9, 7, 24}, 65}, {"a number for a row", {5, 6}, 1}, {"small", {2, 3}, 4}};
}

constexpr Activation kActivations[] = {Activation::identity, Activation::relu, Activation::gelu, Activation::silu};

/// What the documentation says, in ops of their own.
Tensor expected_of(const Tensor& x, const Tensor& weight, const Tensor& bias, const LinearActOptions& then) {
  Tensor y = linear(x, weight, bias);
  y = then.scale.defined() ? mul(y, then.scale) : y;
  y = then.residual.defined() ? add(y, then.residual) : y;
  return activate(y, then.activation);
}

bool has_onednn(const Tensor& x) {
  return x.device().type != DeviceType::cuda && std::ranges::count(matmul_implementations(), "onednn") == 1;
}

}  // namespace

TEST_CASE("linear_act: as product, scale, addition and activation one after the other, recorded or not") {
  for (const Product& p : products()) {
    for (const DType dtype : {DType::float32, DType::float64}) {
      for (const Layout layout : kLayouts) {
        CAPTURE(p.name);
        CAPTURE(to_string(dtype));
        CAPTURE(to_string(layout));
        const int64_t features = p.x.back();
        const Tensor x = in_layout(random_tensor(p.x, 1, dtype), layout);
        const Tensor weight = in_layout(random_tensor({p.outputs, features}, 2, dtype), layout);
        const Tensor bias = random_tensor({p.outputs}, 3, dtype);
        const Tensor scale = in_layout(random_tensor({p.outputs}, 4, dtype), layout);
        Sizes sizes = p.x;
        sizes[sizes.size() - 1] = p.outputs;
        const Tensor residual = in_layout(random_tensor(sizes, 5, dtype), layout);
        for (int wanted = 0; wanted < 8; ++wanted) {
          for (const Activation activation : kActivations) {
            CAPTURE(wanted);
            CAPTURE(to_string(activation));
            const Tensor with_bias = (wanted & 1) != 0 ? bias : Tensor();
            const LinearActOptions then{.scale = (wanted & 2) != 0 ? scale : Tensor(),
                                        .activation = activation,
                                        .residual = (wanted & 4) != 0 ? residual : Tensor()};
            const Tensor expected = expected_of(x, weight, with_bias, then);
            const double tolerance = dtype == DType::float64 ? 1e-12 : 1e-4;  // values of up to 100
            for (const bool recorded : {true, false}) {
              const GradModeGuard mode(recorded);
              Tensor trained = weight.detach();
              trained.set_requires_grad();
              for (int call = 0; call < 2; ++call) {  // the second meets what the first has kept
                const Tensor y = linear_act(x, trained, with_bias, then);
                CHECK(max_difference(y, expected) <= tolerance);
                CHECK((p.outputs == 1 || y.strides() == linear(x, weight).strides()));
                CHECK(y.requires_grad() == recorded);
              }
            }
          }
        }
      }
    }
  }
}

TEST_CASE("linear_act: gelu and silu in one kernel against float64") {
  // One input feature of weight 1: the results are those of the activation alone.
  constexpr int64_t kRows = 40001;
  const Tensor x = add(mul(arange(kRows, DType::float32), 1e-3), -20);
  const Tensor column = view(x, {kRows, 1});
  const Tensor weight = ones({1, 1});
  for (const Activation activation : {Activation::gelu, Activation::silu}) {
    CAPTURE(to_string(activation));
    const Tensor y = view(linear_act(column, weight, {}, {.activation = activation}), {kRows});
    const Tensor exact = activate(to(x, DType::float64), activation);
    CHECK(max_difference(to(y, DType::float64), exact) <= 2e-6);
  }
}

TEST_CASE("linear_act: gradients are those of separate ops") {
  for (const Activation activation : kActivations) {
    CAPTURE(to_string(activation));
    Tensors inputs{random_tensor({2, 3, 5}, 1), random_tensor({4, 5}, 2), random_tensor({4}, 3), random_tensor({4}, 4),
                   random_tensor({2, 3, 4}, 5)};
    for (Tensor& input : inputs) {
      input.set_requires_grad();
    }
    CHECK(gradcheck(
        [&](const Tensors& in) -> Tensors {
          return {linear_act(in[0], in[1], in[2], {.scale = in[3], .activation = activation, .residual = in[4]})};
        },
        inputs));
  }
}

TEST_CASE("linear_act: one op where nothing is recorded") {
  const Tensor x = random_tensor({64, 32}, 1, DType::float32);
  Tensor weight = random_tensor({48, 32}, 2, DType::float32);
  const LinearActOptions then{.scale = random_tensor({48}, 3, DType::float32),
                              .activation = Activation::gelu,
                              .residual = random_tensor({64, 48}, 4, DType::float32)};
  const auto ops = [&] {
    const OpProfile profile;
    linear_act(x, weight, {}, then);
    return profile.records().size();
  };
  CHECK(ops() == (has_onednn(x) ? 1 : 4));
  weight.set_requires_grad();
  CHECK(ops() == 4);
}

TEST_CASE("linear_act: NaN stays one behind scale, addition, gelu and silu") {
  Tensor x = ones({32, 32}, {.dtype = DType::float32});
  set_element<float>(x, 0, std::numeric_limits<float>::quiet_NaN());
  const Tensor weight = ones({32, 32});
  for (const Activation activation : {Activation::identity, Activation::gelu, Activation::silu}) {
    CAPTURE(to_string(activation));
    const std::vector<float> y =
        linear_act(x, weight, {}, {.scale = ones({32}), .activation = activation, .residual = ones({32, 32})})
            .to_vector<float>();
    CHECK(std::isnan(y[0]));
    CHECK(y[32] == doctest::Approx(33));
  }
}

TEST_CASE("linear_act: under an Autocast as the ops one after the other") {
  const Tensor x = random_tensor({6, 8}, 1, DType::float32);
  const Tensor weight = random_tensor({5, 8}, 2, DType::float32);
  const Autocast autocast(DType::bfloat16);
  const Tensor y = linear_act(x, weight, {}, {.activation = Activation::gelu});
  CHECK(y.dtype() == DType::bfloat16);
  CHECK(max_difference(to(y, DType::float64), to(gelu(linear(x, weight)), DType::float64)) == 0);
}

TEST_CASE("linear_act: what follows costs no conversions, and follows the policy of its op") {
  Tensor weight = to(random_tensor({5, 8}, 2, DType::float32), DType::bfloat16).detach();
  weight.set_requires_grad();
  const Tensor x = to(random_tensor({6, 8}, 1, DType::float32), DType::bfloat16);
  const Tensor residual = to(random_tensor({6, 5}, 3, DType::float32), DType::bfloat16);
  const auto ops = [](const auto& f) {
    const OpProfile profile;
    f();
    return profile.records().size();
  };
  CHECK(ops([&] { linear_act(x, weight, {}, {.activation = Activation::gelu}); }) ==
        ops([&] { gelu(linear(x, weight)); }));
  CHECK(ops([&] { linear_act(x, weight, {}, {.residual = residual}); }) ==
        ops([&] { add(linear(x, weight), residual); }));

  CastPolicy policy;
  policy.set("gelu", CastRule::float32);
  const Autocast autocast(DType::bfloat16, policy);
  CHECK(linear_act(to(x, DType::float32), weight, {}, {.activation = Activation::gelu}).dtype() ==
        gelu(linear(to(x, DType::float32), weight)).dtype());
}

TEST_CASE("linear_act: empty operands") {
  CHECK(linear_act(zeros({0, 5}), zeros({3, 5}), {}, {.activation = Activation::gelu}).sizes() == Sizes{0, 3});
  const Tensor no_features = linear_act(zeros({2, 0}), zeros({3, 0}), ones({3}), {.residual = ones({2, 3})});
  CHECK(max_difference(no_features, full({2, 3}, 2)) == 0);
}

TEST_CASE("linear_act: errors") {
  const Tensor x = ones({2, 4});
  const Tensor weight = ones({3, 4});
  const auto with = [&](const LinearActOptions& then) { return error_of([&] { linear_act(x, weight, {}, then); }); };
  CHECK(with({.residual = ones({2, 4})}) == "linear_act: residual: expected sizes [2, 3], got [2, 4]");
  CHECK(with({.residual = ones({2, 3}, {.dtype = DType::float64})}) ==
        "linear_act: residual: expected dtype float32, got float64");
  CHECK(with({.scale = ones({1})}) == "linear_act: scale: expected sizes [3], got [1]");
  CHECK(error_of([&] {
          linear_act(x, ones({3, 5}), {}, {});
        }) == "linear: x: expected 5 features in the last axis, as weight [3, 5] has, got 4 (sizes [2, 4])");
  const Autocast autocast(DType::bfloat16);
  CHECK(with({.scale = ones({1})}) == "linear_act: scale: expected sizes [3], got [1]");
}

}  // namespace norma::test
