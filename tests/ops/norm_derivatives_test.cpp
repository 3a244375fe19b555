#include "ops/norm/norm.h"
#include "ops/pointwise/pointwise.h"
#include "ops/reduce/reduce.h"
#include "support.h"

// Derivatives of the norms that norm_gradients_test.cpp leaves out, of norm_act, and third ones.

using namespace norma;
using namespace norma::test;

namespace {

Tensor leaf(const Sizes& sizes, uint64_t seed) {
  Tensor x = random_tensor(sizes, seed);
  x.set_requires_grad();
  return x;
}

/// The gradients of sum(|gradients|²) of f, for finite differences: the third derivatives of f.
void check_third(const std::string& name, const TensorFunction& f, const Tensors& inputs, const Tensor& direction) {
  const auto second = [&](const Tensors& arguments) {
    Tensors in;
    for (const Tensor& x : arguments) {
      in.push_back(identity(x));
    }
    const Tensor y = f(in)[0];
    const Tensors first = grad({sum(mul(mul(y, y), direction))}, in, {}, {.create_graph = true});
    Tensor norm;
    for (const Tensor& gradient : first) {
      const Tensor square = sum(mul(gradient, gradient));
      norm = norm.defined() ? add(norm, square) : square;
    }
    return grad({norm}, in, {}, {.create_graph = true});
  };
  const GradcheckResult result = gradcheck(second, inputs, {.atol = 1e-5});
  CHECK_MESSAGE(result.passed, name << ": " << result.message);
}

}  // namespace

TEST_CASE("norms: gradients of all that normalize() centres otherwise, once and twice") {
  const Tensor weight = random_tensor({4}, 2);
  const Tensor image = random_tensor({2, 4, 3, 2}, 1);
  const Tensor rows = random_tensor({3, 2, 4}, 3);
  const auto with = [](auto f) { return [f](const Tensors& in) { return Tensors{f(in)}; }; };
  check_gradients("rms_norm", with([](const Tensors& in) { return rms_norm(in[0], {4}, in[1]); }), {rows, weight},
                  true);
  check_gradients("rms_norm, two axes", with([](const Tensors& in) { return rms_norm(in[0], {2, 4}); }), {rows}, true);
  check_gradients("rms_norm_2d", with([](const Tensors& in) { return rms_norm_2d(in[0], in[1]); }), {image, weight},
                  true);
  check_gradients("simple_norm", with([](const Tensors& in) { return simple_norm(in[0], {4}, in[1]); }), {rows, weight},
                  true);
  check_gradients("simple_norm, two axes", with([](const Tensors& in) {
                    return simple_norm(in[0], {2, 4});
                  }),
                  {rows}, true);
  check_gradients("simple_norm_2d", with([](const Tensors& in) { return simple_norm_2d(in[0], in[1]); }),
                  {image, weight}, true);
  check_gradients("normalize, correction and groups", with([](const Tensors& in) {
                    return normalize(in[0], {.reduce = {1, 3}, .affine = {1}, .groups = 2, .correction = 1}, in[1]);
                  }),
                  {image, weight}, true);
  check_gradients(
      "normalize, deviation and groups", with([](const Tensors& in) {
        return normalize(in[0], {.reduce = {0, 1}, .affine = {1}, .groups = 2, .centring = Centring::deviation}, in[1]);
      }),
      {image, weight}, true);
}

TEST_CASE("norms: gradients of batch norm's relatives, once and twice") {
  const Tensor image = random_tensor({5, 3, 2, 2}, 1);
  const Tensor weight = random_tensor({3}, 2);
  const Tensor bias = random_tensor({3}, 3);
  const Tensor mean = random_tensor({3}, 4);
  const Tensor var = add(abs(random_tensor({3}, 5)), 0.5);
  for (const int64_t sub_batch : {1, 2, 5}) {  // the last of 2 is one image
    check_gradients(
        fmt::format("ghost_batch_norm {}", sub_batch),
        [&](const Tensors& in) { return Tensors{ghost_batch_norm(in[0], sub_batch, {}, {}, in[1], in[2])}; },
        {image, weight, bias}, true);
  }
  check_gradients(
      "ghost_batch_norm in evaluation",
      [&](const Tensors& in) {
        return Tensors{ghost_batch_norm(in[0], 2, mean, var, in[1], in[2], {.training = false})};
      },
      {image, weight, bias}, true);
  check_gradients(
      "batch_renorm in evaluation",
      [&](const Tensors& in) {
        return Tensors{batch_renorm(in[0], mean, var, in[1], in[2], {.batch_norm = {.training = false}})};
      },
      {image, weight, bias}, true);
  check_gradients(
      "instance_norm in evaluation",
      [&](const Tensors& in) {
        return Tensors{instance_norm(in[0], mean, var, in[1], in[2], TrackedInstanceNormOptions{.training = false})};
      },
      {image, weight, bias}, true);
  check_gradients(
      "instance_norm with running statistics",
      [&](const Tensors& in) {  // fresh ones, as every call changes them
        return Tensors{instance_norm(in[0], copy_of(mean), copy_of(var), in[1], in[2], TrackedInstanceNormOptions{})};
      },
      {image, weight, bias}, true);
}

TEST_CASE("batch_renorm: r and d are constants of the gradient, once and twice") {
  // With bounds that hold r and d fast, finite differences see them as constants.
  const Tensor image = random_tensor({5, 3, 2, 2}, 1);
  const Tensor mean = full({3}, 20.0, {.dtype = DType::float64});  // d = -d_max
  const Tensor var = full({3}, 100.0, {.dtype = DType::float64});  // r = 1 / r_max
  check_gradients(
      "batch_renorm",
      [&](const Tensors& in) {
        return Tensors{batch_renorm(in[0], copy_of(mean), copy_of(var), in[1], in[2], {.r_max = 1.5, .d_max = 0.5})};
      },
      {image, random_tensor({3}, 2), random_tensor({3}, 3)}, true);
}

TEST_CASE("norm_act: gradients of each activation, with and without a residual, once and twice") {
  struct Norm {
    std::string name;
    NormSpec spec;
  };
  const Norm norms[] = {
      {"batch", {.reduce = {0, 2, 3}, .affine = {1}}},
      {"layer 2d", {.reduce = {1}, .affine = {1}, .eps = 1e-6}},
      {"group", {.reduce = {1, 2, 3}, .affine = {1}, .groups = 2}},
      {"rms 2d", {.reduce = {1}, .affine = {1}, .centring = Centring::none}},
      {"simple", {.reduce = {2, 3}, .affine = {1}, .centring = Centring::deviation, .correction = 1}}};
  for (const Norm& norm : norms) {
    for (const Activation activation : {Activation::identity, Activation::relu, Activation::gelu, Activation::silu}) {
      const std::string name = fmt::format("norm_act {} {}", norm.name, to_string(activation));
      Tensors inputs{random_tensor({1, 4, 2, 2}, 11), random_tensor({4}, 12), random_tensor({4}, 13)};
      check_gradients(
          name,
          [&](const Tensors& in) {
            return Tensors{norm_act(in[0], norm.spec, in[1], in[2], {.activation = activation})};
          },
          inputs, true);
      inputs.push_back(random_tensor({1, 4, 2, 2}, 14));
      check_gradients(
          name + " with a residual",
          [&](const Tensors& in) {
            return Tensors{norm_act(in[0], norm.spec, in[1], in[2], {.activation = activation, .residual = in[3]})};
          },
          inputs, true);
    }
  }
}

TEST_CASE("norms: third derivatives") {
  // PyTorch's batch norm is wrong from the third on, or refuses.
  const Tensor direction = random_tensor({3, 4, 2}, 32);
  const Tensors inputs{leaf({3, 4, 2}, 31), leaf({4}, 33), leaf({4}, 34)};
  check_third(
      "batch_norm", [](const Tensors& in) { return Tensors{batch_norm(in[0], {}, {}, in[1], in[2])}; }, inputs,
      direction);
  check_third(
      "group_norm", [](const Tensors& in) { return Tensors{group_norm(in[0], 2, in[1], in[2])}; }, inputs, direction);
  check_third(
      "layer_norm",
      [](const Tensors& in) {
        return Tensors{layer_norm(in[0], {4, 2}, in[1], in[2])};
      },
      {inputs[0], leaf({4, 2}, 35), leaf({4, 2}, 36)}, direction);
  check_third(
      "rms_norm",
      [](const Tensors& in) {
        return Tensors{rms_norm(in[0], {4, 2}, in[1])};
      },
      {inputs[0], leaf({4, 2}, 35)}, direction);
  check_third(
      "group_norm and silu",
      [](const Tensors& in) {
        return Tensors{group_norm(in[0], 2, in[1], in[2], {}, {.activation = Activation::silu})};
      },
      inputs, direction);
}
