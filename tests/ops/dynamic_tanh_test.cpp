#include "ops/map_norm/norms.h"

#include "error_text.h"
#include "norm_properties.h"

using namespace norma;
using namespace norma::test;

namespace {

/// No constant, as a GPU's kernels are not there before main().
Tensor alpha() {
  return full({1}, 0.7, {.dtype = DType::float64});
}

}  // namespace

TEST_CASE("dynamic_tanh: values by the definition, weight along any axis") {
  for (const Sizes& sizes : {Sizes{2, 3, 4, 5}, Sizes{2, 33, 3, 1}, Sizes{3, 1, 1, 1}, Sizes{7, 31}, Sizes{5}}) {
    for (int64_t axis = -sizes.size(); axis < sizes.size(); ++axis) {
      const int64_t along = axis < 0 ? axis + sizes.size() : axis;
      const Tensor weight = random_tensor({sizes[along]}, 2);
      const Tensor bias = random_tensor({sizes[along]}, 3);
      int64_t inner = 1;
      for (int64_t i = along + 1; i < sizes.size(); ++i) {
        inner *= sizes[i];
      }
      for (const Layout layout : kLayouts) {
        CAPTURE(to_string(sizes));
        CAPTURE(axis);
        CAPTURE(to_string(layout));
        const Tensor x = in_layout(random_tensor(sizes, 1), layout);
        std::vector<double> expected = x.to_vector<double>();
        for (size_t i = 0; i < expected.size(); ++i) {
          const auto at = static_cast<size_t>(static_cast<int64_t>(i) / inner % sizes[along]);
          expected[i] = std::tanh(0.7 * expected[i]) * weight.to_vector<double>()[at] + bias.to_vector<double>()[at];
        }
        CHECK(distance_to(dynamic_tanh(x, alpha(), weight, bias, {.axis = axis}), expected) <= 1e-15);
      }
    }
  }
  const Tensor x = random_tensor({2, 3}, 1);
  const Tensor scalar = full({}, 0.7, {.dtype = DType::float64});
  CHECK(max_difference(dynamic_tanh(x, scalar), tanh(mul(x, 0.7))) == 0);
}

TEST_CASE("dynamic_tanh: gradients, once and twice") {
  for (const Sizes& sizes : {Sizes{2, 3, 2, 4}, Sizes{3, 5}, Sizes{2, 3, 1, 1}}) {
    check_gradients(
        "dynamic_tanh " + to_string(sizes),
        [](const Tensors& in) { return Tensors{dynamic_tanh(in[0], in[1], in[2], in[3])}; },
        {random_tensor(sizes, 11), alpha(), random_tensor({sizes[1]}, 12), random_tensor({sizes[1]}, 13)},
        /* twice= */ true);
    check_gradients(
        "dynamic_tanh alone " + to_string(sizes), [](const Tensors& in) { return Tensors{dynamic_tanh(in[0], in[1])}; },
        {random_tensor(sizes, 11), alpha()},
        /* twice= */ true);
  }
}

TEST_CASE("dynamic_tanh: memory formats, float32 and 16 bits") {
  const TensorFunction f = [](const Tensors& in) { return Tensors{dynamic_tanh(in[0], in[1], in[2], in[3])}; };
  check_formats("dynamic_tanh", f, [](int64_t channels) {
    return Tensors{alpha(), random_tensor({channels}, 2), random_tensor({channels}, 3)};
  });
  check_float32("dynamic_tanh", f,
                {random_tensor({2, 5, 3, 4}, 5), alpha(), random_tensor({5}, 2), random_tensor({5}, 3)});
  check_sixteen_bits("dynamic_tanh", f,
                     {random_tensor({2, 5, 3, 4}, 5), alpha(), random_tensor({5}, 2), random_tensor({5}, 3)});
}

TEST_CASE("dynamic_tanh: error texts") {
  const Tensor x = ones({2, 3, 4, 5});
  const Tensor alpha = ones({1});
  CHECK(error_of([&] { dynamic_tanh({}, alpha); }) == "dynamic_tanh: input: expected a tensor, got none");
  CHECK(error_of([&] { dynamic_tanh(x, {}); }) == "dynamic_tanh: alpha: expected a tensor, got none");
  CHECK(error_of([&] { dynamic_tanh(x, ones({3})); }) == "dynamic_tanh: alpha: expected sizes [1] or [], got [3]");
  CHECK(error_of([&] { dynamic_tanh(x, ones({1}, {.dtype = DType::float64})); }) ==
        "dynamic_tanh: alpha: expected dtype float32, got float64");
  CHECK(error_of([&] { dynamic_tanh(x, alpha, ones({4})); }) == "dynamic_tanh: weight: expected sizes [3], got [4]");
  CHECK(error_of([&] { dynamic_tanh(x, alpha, {}, ones({3}), {.axis = -1}); }) ==
        "dynamic_tanh: bias: expected sizes [5], got [3]");
  CHECK(error_of([&] { dynamic_tanh(x, alpha, {}, {}, {.axis = 4}); }) ==
        "dynamic_tanh: axis: expected a value in [-4, 4), got 4");
}
