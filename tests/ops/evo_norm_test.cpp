#include "ops/map_norm/norms.h"

#include "error_text.h"
#include "norm_properties.h"
#include "ops/reduce/reduce.h"

using namespace norma;
using namespace norma::test;

namespace {

struct Parameters {
  explicit Parameters(int64_t channels)
      : v(random_tensor({channels}, 2)), weight(random_tensor({channels}, 3)), bias(random_tensor({channels}, 4)) {}
  Tensor v;
  Tensor weight;
  Tensor bias;
};

/// The values of image n (or of all) in channels [first, last).
std::vector<double> gather(Maps& x, size_t first_image, size_t last_image, size_t first, size_t last) {
  std::vector<double> values;
  for (size_t n = first_image; n < last_image; ++n) {
    for (size_t c = first; c < last; ++c) {
      for (size_t p = 0; p < x.p; ++p) {
        values.push_back(x.at(n, c, p));
      }
    }
  }
  return values;
}

/// With running_var: evaluation.
std::vector<double> reference_b0(const Tensor& x, const Tensor& running_var, const Parameters& parameters, double eps) {
  Maps in(x);
  Maps out(x);
  const auto v = parameters.v.to_vector<double>();
  const auto w = parameters.weight.to_vector<double>();
  const auto b = parameters.bias.to_vector<double>();
  for (size_t c = 0; c < in.c; ++c) {
    const double batch =
        running_var.defined() ? running_var.to_vector<double>()[c] : variance_of(gather(in, 0, in.n, c, c + 1));
    for (size_t n = 0; n < in.n; ++n) {
      const double instance = variance_of(gather(in, n, n + 1, c, c + 1));
      for (size_t p = 0; p < in.p; ++p) {
        const double value = in.at(n, c, p);
        out.at(n, c, p) =
            value / std::max(std::sqrt(batch + eps), v[c] * value + std::sqrt(instance + eps)) * w[c] + b[c];
      }
    }
  }
  return out.values;
}

std::vector<double> reference_s0(const Tensor& x, size_t groups, const Parameters& parameters, double eps) {
  Maps in(x);
  Maps out(x);
  const auto v = parameters.v.to_vector<double>();
  const auto w = parameters.weight.to_vector<double>();
  const auto b = parameters.bias.to_vector<double>();
  const size_t per_group = in.c / groups;
  for (size_t n = 0; n < in.n; ++n) {
    for (size_t c = 0; c < in.c; ++c) {
      const size_t first = c / per_group * per_group;
      const double var = variance_of(gather(in, n, n + 1, first, first + per_group));
      for (size_t p = 0; p < in.p; ++p) {
        const double value = in.at(n, c, p);
        out.at(n, c, p) = value / (1 + std::exp(-v[c] * value)) / std::sqrt(var + eps) * w[c] + b[c];
      }
    }
  }
  return out.values;
}

}  // namespace

TEST_CASE("evo_norm_b0: values by the definition, training and evaluation") {
  for (const Sizes& sizes : {Sizes{2, 3, 4, 5}, Sizes{3, 33, 1, 2}, Sizes{3, 1, 4, 2}, Sizes{1, 3, 2, 5},
                             Sizes{4, 3, 1, 1}, Sizes{2, 3, 7}}) {
    const Parameters own(sizes[1]);
    const Tensor running_var = add(abs(random_tensor({sizes[1]}, 5)), 0.2);
    for (const Layout layout : kLayouts) {
      CAPTURE(to_string(sizes));
      CAPTURE(to_string(layout));
      const Tensor x = in_layout(random_tensor(sizes, 1), layout);
      for (const Statistics statistics : all_statistics()) {
        CHECK(distance_to(evo_norm_b0(x, {}, own.v, own.weight, own.bias, {.statistics = statistics}),
                          reference_b0(x, {}, own, 1e-3)) <= 1e-13);
      }
      CHECK(distance_to(evo_norm_b0(x, running_var, own.v, own.weight, own.bias, {.training = false, .eps = 0.1}),
                        reference_b0(x, running_var, own, 0.1)) <= 1e-13);
      CHECK(distance_to(evo_norm_b0(x, {}, own.v, own.weight, own.bias, {.training = false}),
                        reference_b0(x, {}, own, 1e-3)) <= 1e-13);
    }
  }
}

TEST_CASE("evo_norm_b0: running_var takes the unbiased variance, and only in training") {
  const Tensor x = random_tensor({3, 2, 2, 2}, 1);
  Maps maps(x);
  const Tensor running_var = full({2}, 2, {.dtype = DType::float64});
  const Tensor v = ones({2}, {.dtype = DType::float64});
  evo_norm_b0(x, running_var, v, {}, {}, {.training = false});
  CHECK(distance_to(running_var, {2, 2}) == 0);
  evo_norm_b0(x, running_var, v, {}, {}, {.momentum = 0.25});
  std::vector<double> expected;
  for (size_t c = 0; c < 2; ++c) {
    expected.push_back(0.75 * 2 + 0.25 * variance_of(gather(maps, 0, 3, c, c + 1)) * 12 / 11);
  }
  CHECK(distance_to(running_var, expected) <= 1e-15);
  const int64_t version = running_var.version();
  const Tensor none = evo_norm_b0(zeros({0, 2, 2, 2}, {.dtype = DType::float64}), running_var, v);
  CHECK(none.sizes() == Sizes{0, 2, 2, 2});
  CHECK(running_var.version() == version);
}

TEST_CASE("evo_norm_b0: gradients, once and twice, training and evaluation") {
  for (const Sizes& sizes : {Sizes{2, 3, 2, 3}, Sizes{4, 2, 1, 1}, Sizes{2, 2, 5}, Sizes{1, 2, 3, 2}}) {
    const Parameters own(sizes[1]);
    const Tensor running_var = add(abs(random_tensor({sizes[1]}, 5)), 0.2);
    for (const bool training : {true, false}) {
      const std::string name = "evo_norm_b0 " + to_string(sizes) + (training ? " training" : " evaluation");
      check_gradients(
          name,
          [&](const Tensors& in) {
            return Tensors{evo_norm_b0(in[0], training ? Tensor() : running_var, in[1], in[2], in[3],
                                       {.training = training, .eps = 0.1})};
          },
          {random_tensor(sizes, 11), own.v, own.weight, own.bias}, /* twice= */ true);
    }
  }
}

TEST_CASE("evo_norm_b0: third derivative") {
  Tensor x = random_tensor({3, 2, 2}, 31);
  x.set_requires_grad();
  const Tensor v = random_tensor({2}, 33);
  const Tensor direction = random_tensor({3, 2, 2}, 32);
  const auto second = [&](const Tensors& in) {
    const Tensor y = evo_norm_b0(in[0], {}, v, {}, {}, {.eps = 0.1});
    const Tensor first = grad({sum(mul(mul(y, y), direction))}, {in[0]}, {}, {.create_graph = true})[0];
    return Tensors{grad({sum(mul(first, first))}, {in[0]}, {}, {.create_graph = true})[0]};
  };
  const GradcheckResult result = gradcheck(second, {x});
  CHECK_MESSAGE(result.passed, result.message);
}

TEST_CASE("evo_norm_b0: exact variances far from 0") {
  // At 1e4 a float32 mean is off by up to 5e-4, which a gradient taken from x - mean would show. v = 0 and a small
  // batch variance leave the instance variance alone in the result.
  const Tensor x = random_tensor({2, 3, 8, 8}, 1);
  const Tensor far32 = to(add(x, 1e4), DType::float32);
  const Tensor far64 = to(far32, DType::float64);
  Tensors results;
  for (const Tensor& values : {far32, far64}) {
    Tensor in = values.detach();
    in.set_requires_grad();
    const Tensor zero = zeros({3}, {.dtype = in.dtype()});
    const Tensor running_var = full({3}, 1e-3, {.dtype = in.dtype()});
    const Tensor y = evo_norm_b0(in, running_var, zero, {}, {}, {.training = false});
    results.push_back(div(y, 1e4));
    results.push_back(grad({y}, {in}, {ones(x.sizes(), {.dtype = in.dtype()})})[0]);
  }
  CHECK(max_difference(results[0], results[2]) <= 1e-6);
  // dy/dx = 1 / s - sum(x) (x - mean) / (n s³), about 1e4
  CHECK(max_difference(results[1], results[3]) <= 1e-2);
  CHECK(max_difference(results[3], zeros_like(results[3])) > 1e3);
}

TEST_CASE("evo_norm_b0: memory formats, float32 and 16 bits") {
  const TensorFunction f = [](const Tensors& in) { return Tensors{evo_norm_b0(in[0], {}, in[1], in[2], in[3])}; };
  check_formats("evo_norm_b0", f, [](int64_t channels) {
    const Parameters own(channels);
    return Tensors{own.v, own.weight, own.bias};
  });
  const Parameters own(5);
  check_float32("evo_norm_b0", f, {random_tensor({2, 5, 3, 4}, 5), own.v, own.weight, own.bias});
  check_sixteen_bits("evo_norm_b0", f, {random_tensor({2, 5, 3, 4}, 5), own.v, own.weight, own.bias});
}

TEST_CASE("evo_norm_b0: error texts") {
  const Tensor x = ones({2, 3, 4, 5});
  const Tensor three = ones({3});
  CHECK(error_of([&] {
          evo_norm_b0(ones({2, 3}), {}, three);
        }) == "evo_norm_b0: input: expected rank 3 to 5, got rank 2 (sizes [2, 3])");
  CHECK(error_of([&] { evo_norm_b0(x, {}, {}); }) == "evo_norm_b0: v: expected a tensor, got none");
  CHECK(error_of([&] { evo_norm_b0(x, {}, ones({4})); }) == "evo_norm_b0: v: expected sizes [3], got [4]");
  CHECK(error_of([&] { evo_norm_b0(x, ones({4}), three); }) == "evo_norm_b0: running_var: expected sizes [3], got [4]");
  CHECK(error_of([&] { evo_norm_b0(x, {}, three, ones({4})); }) == "evo_norm_b0: weight: expected sizes [3], got [4]");
  CHECK(error_of([&] { evo_norm_b0(x, {}, three, {}, ones({4})); }) ==
        "evo_norm_b0: bias: expected sizes [3], got [4]");
  CHECK(error_of([&] { evo_norm_b0(x, {}, three, {}, {}, {.eps = -1}); }) ==
        "evo_norm_b0: eps: expected a value >= 0, got -1");
  CHECK(error_of([&] { evo_norm_b0(x, {}, three, {}, {}, {.momentum = 1.5}); }) ==
        "evo_norm_b0: momentum: expected a value in [0, 1], got 1.5");
  CHECK(error_of([&] {
          evo_norm_b0(ones({1, 3, 1, 1}), {}, three);
        }) == "evo_norm_b0: input: expected more than 1 value per channel when training, got sizes [1, 3, 1, 1]");
}

TEST_CASE("evo_norm_s0: values by the definition") {
  for (const auto& [sizes, groups] :
       {std::pair(Sizes{2, 4, 3, 5}, 2), std::pair(Sizes{2, 33, 2, 1}, 3), std::pair(Sizes{2, 3, 2, 4}, 1),
        std::pair(Sizes{2, 3, 2, 4}, 3), std::pair(Sizes{3, 6, 1, 1}, 2), std::pair(Sizes{2, 4, 7}, 2)}) {
    const Parameters own(sizes[1]);
    for (const Layout layout : kLayouts) {
      CAPTURE(to_string(sizes));
      CAPTURE(groups);
      CAPTURE(to_string(layout));
      const Tensor x = in_layout(random_tensor(sizes, 1), layout);
      for (const Statistics statistics : all_statistics()) {
        CHECK(distance_to(evo_norm_s0(x, groups, own.v, own.weight, own.bias, {.statistics = statistics}),
                          reference_s0(x, static_cast<size_t>(groups), own, 1e-5)) <= 1e-13);
      }
      CHECK(distance_to(evo_norm_s0(x, groups, own.v, own.weight, own.bias, {.eps = 0.1}),
                        reference_s0(x, static_cast<size_t>(groups), own, 0.1)) <= 1e-13);
    }
  }
}

TEST_CASE("evo_norm_s0: gradients, once and twice") {
  for (const Sizes& sizes : {Sizes{2, 4, 2, 3}, Sizes{2, 4, 1, 1}, Sizes{2, 2, 5}}) {
    const Parameters own(sizes[1]);
    const Tensor x = random_tensor(sizes, 11);
    const std::string name = "evo_norm_s0 " + to_string(sizes);
    check_gradients(
        name, [](const Tensors& in) { return Tensors{evo_norm_s0(in[0], 2, in[1], in[2], in[3], {.eps = 0.1})}; },
        {x, own.v, own.weight, own.bias}, /* twice= */ true);
    check_gradients(
        name + " without weight and bias",
        [](const Tensors& in) { return Tensors{evo_norm_s0(in[0], 2, in[1], {}, {}, {.eps = 0.1})}; }, {x, own.v},
        /* twice= */ true);
  }
}

TEST_CASE("evo_norm_s0: third derivative") {
  Tensor x = random_tensor({3, 2, 2}, 31);
  x.set_requires_grad();
  const Tensor v = random_tensor({2}, 33);
  const Tensor direction = random_tensor({3, 2, 2}, 32);
  const auto second = [&](const Tensors& in) {
    const Tensor y = evo_norm_s0(in[0], 1, v, {}, {}, {.eps = 0.1});
    const Tensor first = grad({sum(mul(mul(y, y), direction))}, {in[0]}, {}, {.create_graph = true})[0];
    return Tensors{grad({sum(mul(first, first))}, {in[0]}, {}, {.create_graph = true})[0]};
  };
  const GradcheckResult result = gradcheck(second, {x});
  CHECK_MESSAGE(result.passed, result.message);
}

TEST_CASE("evo_norm_s0: memory formats, float32 and 16 bits") {
  const TensorFunction f = [](const Tensors& in) { return Tensors{evo_norm_s0(in[0], 1, in[1], in[2], in[3])}; };
  check_formats("evo_norm_s0", f, [](int64_t channels) {
    const Parameters own(channels);
    return Tensors{own.v, own.weight, own.bias};
  });
  const Parameters own(5);
  check_float32("evo_norm_s0", f, {random_tensor({2, 5, 3, 4}, 5), own.v, own.weight, own.bias});
  check_sixteen_bits("evo_norm_s0", f, {random_tensor({2, 5, 3, 4}, 5), own.v, own.weight, own.bias});
}

TEST_CASE("evo_norm_s0: error texts") {
  const Tensor x = ones({2, 4, 3, 5});
  const Tensor four = ones({4});
  CHECK(error_of([&] {
          evo_norm_s0(ones({2, 3}), 1, four);
        }) == "evo_norm_s0: input: expected rank 3 to 5, got rank 2 (sizes [2, 3])");
  CHECK(error_of([&] { evo_norm_s0(x, 0, four); }) == "evo_norm_s0: num_groups: expected at least 1, got 0");
  CHECK(error_of([&] { evo_norm_s0(x, 3, four); }) ==
        "evo_norm_s0: num_channels must be divisible by num_groups, got num_channels 4, num_groups 3");
  CHECK(error_of([&] { evo_norm_s0(x, 2, {}); }) == "evo_norm_s0: v: expected a tensor, got none");
  CHECK(error_of([&] { evo_norm_s0(x, 2, four, ones({3})); }) == "evo_norm_s0: weight: expected sizes [4], got [3]");
  CHECK(error_of([&] { evo_norm_s0(x, 2, four, {}, ones({3})); }) == "evo_norm_s0: bias: expected sizes [4], got [3]");
  CHECK(error_of([&] { evo_norm_s0(x, 2, four, {}, {}, {.eps = -1}); }) ==
        "evo_norm_s0: eps: expected a value >= 0, got -1");
}
