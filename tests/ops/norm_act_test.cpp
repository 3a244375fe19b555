#include "core/tape.h"
#include "norm_reference.h"
#include "ops/shape/copy.h"

using namespace norma;
using namespace norma::test;

namespace {

constexpr Activation kActivations[] = {Activation::identity, Activation::relu, Activation::gelu, Activation::silu};

/// Specs of all three walks, with weights along sets, runs and both.
std::vector<NormSpec> specs() {
  return {{.reduce = {0, 2, 3}, .affine = {1}},
          {.reduce = {1}, .affine = {1}},
          {.reduce = {2, 3}, .affine = {2, 3}},
          {.reduce = {1, 2, 3}, .affine = {1}, .groups = 3},
          {.reduce = {1, 2, 3}, .affine = {1, 3}, .centring = Centring::none},
          {.reduce = {1, 2}, .affine = {2, 3}},
          {.reduce = {2, 3}, .affine = {1}, .centring = Centring::deviation, .correction = 1}};
}

}  // namespace

TEST_CASE("norm_act: values and gradients are those of norm, addition and activation one after the other") {
  for (const Sizes& sizes : {Sizes{3, 6, 5, 7}, Sizes{2, 33, 1, 3}, Sizes{2, 3, 20, 17}}) {
    for (NormSpec spec : specs()) {
      for (const DType dtype : {DType::float64, DType::float32}) {
        for (const Layout layout : kLayouts) {
          for (const Activation f : kActivations) {
            for (const bool with_residual : {false, true}) {
              CAPTURE(to_string(sizes));
              CAPTURE(to_string(spec.reduce));
              CAPTURE(to_string(dtype));
              CAPTURE(to_string(layout));
              CAPTURE(to_string(f));
              CAPTURE(with_residual);
              Tensor x = in_layout(random_tensor(sizes, 1, dtype), layout);
              Sizes affine;
              for (const int64_t axis : spec.affine) {
                affine.push_back(sizes[axis]);
              }
              Tensor weight = random_tensor(affine, 2, dtype);
              Tensor bias = random_tensor(affine, 3, dtype);
              // Of another layout than x.
              Tensor residual = to(random_tensor(sizes, 4, dtype), MemoryFormat::channels_last);
              Tensors inputs{x, weight, bias};
              if (with_residual) {
                inputs.push_back(residual);
              }
              for (Tensor& input : inputs) {
                input.set_requires_grad();
              }
              const ActOptions then{.activation = f, .residual = with_residual ? residual : Tensor{}};
              const Tensor fused = norm_act(x, spec, weight, bias, then);
              const Tensor z = normalize(x, spec, weight, bias);
              const Tensor separate = activate(with_residual ? add(z, residual) : z, f);
              const double tolerance = dtype == DType::float64 ? 1e-12 : 1e-5;
              CHECK(max_difference(fused, separate) <= tolerance);
              CHECK(fused.strides() == z.strides());

              const Tensor dy = random_tensor(sizes, 5, dtype);
              const Tensors got = grad({fused}, inputs, {dy}, {.retain_graph = true});
              const Tensors expected = grad({separate}, inputs, {dy});
              const Tensors composed = grad({fused}, inputs, {dy}, {.create_graph = true});
              for (size_t i = 0; i < inputs.size(); ++i) {
                CAPTURE(i);
                CHECK(max_difference(got[i], expected[i]) <= 100 * tolerance);  // sets of 3 elements may vary little
                CHECK(max_difference(composed[i], expected[i]) <= 100 * tolerance);
                CHECK(got[i].sizes() == inputs[i].sizes());
              }
            }
          }
        }
      }
    }
  }
}

TEST_CASE("norm_act: keeps the input and the statistics for backward, and one bit per element behind a residual") {
  Tensor x = random_tensor({4, 16, 9, 7}, 1, DType::float32);
  x.set_requires_grad();
  Tensor base = random_tensor({4, 16, 9, 7}, 2, DType::float32);
  base.set_requires_grad();
  const Tensor residual = mul(base, 2.0);  // its memory is the graph's anyway: mul keeps `base`
  Tensor weight = random_tensor({16}, 3, DType::float32);
  weight.set_requires_grad();
  Tensor bias = random_tensor({16}, 4, DType::float32);
  bias.set_requires_grad();
  const size_t statistics = 3 * 16 * sizeof(float);
  const size_t elements = 4 * 16 * 9 * 7;
  const auto saved = [&](const Tensor& y) { return Tape(y).saved_bytes(); };

  const size_t plain = saved(batch_norm(x, {}, {}, weight, bias));
  CHECK(plain == statistics);  // x is a leaf and does not count
  for (const Activation f : {Activation::relu, Activation::gelu, Activation::silu}) {
    CHECK(saved(batch_norm(x, {}, {}, weight, bias, {}, {.activation = f})) == plain);
  }
  // PyTorch keeps the output for relu.
  CHECK(saved(relu(batch_norm(x, {}, {}, weight, bias))) == plain + elements * sizeof(float));
  const size_t without = saved(add(batch_norm(x, {}, {}, weight, bias), residual));
  CHECK(saved(batch_norm(x, {}, {}, weight, bias, {}, {.activation = Activation::relu, .residual = residual})) ==
        without + elements / 8);
}

TEST_CASE("norm_act: evaluation with running statistics, and nothing saved without gradients") {
  const Tensor x = random_tensor({2, 3, 2, 3}, 1);
  const Tensor mean = random_tensor({3}, 2);
  const Tensor var = add(abs(random_tensor({3}, 3)), 0.5);
  const Tensor weight = random_tensor({3}, 4);
  const Tensor bias = random_tensor({3}, 5);
  const Tensor residual = random_tensor({2, 3, 2, 3}, 6);
  const BatchNormOptions eval{.training = false};
  const Tensor separate = relu(add(batch_norm(x, mean, var, weight, bias, eval), residual));
  const Tensor fused =
      batch_norm(x, mean, var, weight, bias, eval, {.activation = Activation::relu, .residual = residual});
  CHECK(max_difference(fused, separate) <= 1e-14);
  CHECK(!fused.requires_grad());

  for (const Activation f : kActivations) {
    for (const bool with_residual : {false, true}) {
      const ActOptions then{.activation = f};
      check_gradients(
          "batch_norm, evaluation, " + std::string(to_string(f)),
          [&](const Tensors& in) {
            ActOptions options = then;
            options.residual = with_residual ? in[3] : Tensor{};
            return Tensors{batch_norm(in[0], mean, var, in[1], in[2], eval, options)};
          },
          with_residual ? Tensors{x, weight, bias, residual} : Tensors{x, weight, bias}, /* twice= */ true);
    }
  }
}

TEST_CASE("norm_act: NaN reaches the output and the gradient") {
  const std::vector<double> values = {1, 2, NAN, 4, 5, 6, 7, 9};
  for (const Activation f : kActivations) {
    const Tensor y = norm_act(from_vector(values, {2, 4}), {.reduce = {1}}, {}, {}, {.activation = f});
    for (int64_t i = 0; i < 8; ++i) {
      CHECK(std::isnan(y.to_vector<double>()[static_cast<size_t>(i)]) == (i < 4));
    }
  }
}

TEST_CASE("norm_act: error texts") {
  const Tensor x = random_tensor({2, 3, 4, 5}, 1);
  const NormSpec spec{.reduce = {1}};
  CHECK_THROWS_WITH_AS(norm_act(x, spec, {}, {}, {.residual = random_tensor({2, 3, 4, 4}, 2)}),
                       "norm_act: residual: expected sizes [2, 3, 4, 5], got [2, 3, 4, 4]", Error);
  CHECK_THROWS_WITH_AS(norm_act(x, spec, {}, {}, {.residual = random_tensor({2, 3, 4, 5}, 2, DType::float32)}),
                       "norm_act: residual: expected dtype float64, got float32", Error);
}
