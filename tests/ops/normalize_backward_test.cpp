#include "core/tape.h"
#include "error_text.h"
#include "ops/norm/norm.h"
#include "ops/pointwise/pointwise.h"
#include "ops/shape/copy.h"
#include "support.h"

using namespace norma;
using namespace norma::test;

namespace {

std::vector<NormSpec> specs() {
  return {{.reduce = {0, 2, 3}, .affine = {1}},
          {.reduce = {1}, .affine = {1}},
          {.reduce = {1, 2, 3}, .affine = {1}, .groups = 2},
          {.reduce = {2, 3}, .affine = {1}, .correction = 1},
          {.reduce = {1, 2, 3}, .affine = {1, 2, 3}, .centring = Centring::none},
          {.reduce = {1}, .affine = {1, 3}, .centring = Centring::deviation}};
}

Sizes along(const Tensor& x, const Axes& axes) {
  Sizes sizes;
  for (const int64_t axis : axes) {
    sizes.push_back(x.size(axis));
  }
  return sizes;
}

}  // namespace

TEST_CASE("normalize_backward: the gradients of normalize, in the order input, weight, bias") {
  for (const NormSpec& spec : specs()) {
    for (const DType dtype : {DType::float64, DType::float32, DType::bfloat16}) {
      for (const Layout layout : kLayouts) {
        CAPTURE(to_string(dtype));
        CAPTURE(to_string(layout));
        Tensor x = in_layout(to(random_tensor({3, 4, 5, 3}, 1), dtype), layout);
        const Tensor dy = in_layout(to(random_tensor(x.sizes(), 2), dtype), layout);
        Tensor weight = to(random_tensor(along(x, spec.affine), 3), dtype);
        Tensor bias = to(random_tensor(along(x, spec.affine), 4), dtype);
        const Tensors apart = normalize_backward(dy, x, spec, weight, bias);
        const Tensors bare = normalize_backward(dy, x, spec);
        for (Tensor* input : {&x, &weight, &bias}) {
          input->set_requires_grad();
        }
        const Tensors expected = grad({normalize(x, spec, weight, bias)}, {x, weight, bias}, {dy});
        REQUIRE(apart.size() == 3);
        for (size_t i = 0; i < 3; ++i) {
          CHECK(max_difference(to(apart[i], DType::float64), to(expected[i], DType::float64)) == 0);
        }
        CHECK(apart[0].strides() == expected[0].strides());
        const Tensors of_x = grad({normalize(x, spec)}, {x}, {dy});
        CHECK(max_difference(to(bare[0], DType::float64), to(of_x[0], DType::float64)) == 0);
        CHECK(!bare[1].defined());
        CHECK(!bare[2].defined());
      }
    }
  }
}

TEST_CASE("normalize_backward: finite differences") {
  for (const NormSpec& spec : specs()) {
    const Tensor x = random_tensor({2, 4, 3, 1}, 1);
    const Sizes sizes = along(x, spec.affine);
    check_gradients(
        "normalize_backward",
        [spec](const Tensors& in) { return normalize_backward(in[0], in[1], spec, in[2], in[3]); },
        {random_tensor(x.sizes(), 2), x, random_tensor(sizes, 3), random_tensor(sizes, 4)}, /* twice= */ true);
  }
}

TEST_CASE("normalize_backward: what does not fit") {
  const Tensor x = random_tensor({2, 4, 3, 2}, 1);
  const NormSpec spec{.reduce = {1}, .affine = {1}};
  CHECK(error_of([&] { normalize_backward({}, x, spec); }).find("normalize_backward: dy: ") == 0);
  CHECK(error_of([&] {
          normalize_backward(random_tensor({2, 4, 3, 3}, 1), x, spec);
        }) == "normalize_backward: dy: expected sizes [2, 4, 3, 2], got [2, 4, 3, 3]");
  CHECK(error_of([&] { normalize_backward(to(x, DType::float32), x, spec); }) ==
        "normalize_backward: dy: expected dtype float64, got float32");
  CHECK(error_of([&] { normalize_backward(x, x, spec, random_tensor({3}, 1)); }) ==
        "normalize_backward: weight: expected sizes [4], got [3]");
  CHECK(error_of([&] { normalize_backward(x, x, {.reduce = {4}}); }) ==
        "normalize_backward: reduce: expected axes in [-4, 4), got [4]");
}

TEST_CASE("normalize: with create_graph the first gradient is that of the kernels, whatever the range") {
  for (const double scale : {1.0, 1e20, 1e30}) {
    for (const NormSpec& spec : specs()) {
      for (const Activation activation : {Activation::identity, Activation::relu, Activation::gelu}) {
        for (const bool with_residual : {false, true}) {
          CAPTURE(scale);
          CAPTURE(to_string(activation));
          Tensor x = mul(to(random_tensor({3, 4, 5, 3}, 1), DType::float32), scale);
          Tensor weight = to(random_tensor(along(x, spec.affine), 3), DType::float32);
          Tensor bias = to(random_tensor(along(x, spec.affine), 4), DType::float32);
          Tensor residual = to(random_tensor(x.sizes(), 5), DType::float32);
          Tensors inputs{x, weight, bias};
          if (with_residual) {
            inputs.push_back(residual);
          }
          for (Tensor& input : inputs) {
            input.set_requires_grad();
          }
          const Tensor y = norm_act(x, spec, weight, bias,
                                    {.activation = activation, .residual = with_residual ? residual : Tensor{}});
          const Tensor dy = to(random_tensor(x.sizes(), 6), DType::float32);
          const Tensors plain = grad({y}, inputs, {dy}, {.retain_graph = true});
          const Tensors recorded = grad({y}, inputs, {dy}, {.create_graph = true});
          for (size_t i = 0; i < inputs.size(); ++i) {
            CHECK(max_difference(plain[i], recorded[i].detach()) == 0);
          }
        }
      }
    }
  }
}
