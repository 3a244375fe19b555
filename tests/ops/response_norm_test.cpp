#include "ops/map_norm/norms.h"

#include "error_text.h"
#include "float_distance.h"
#include "norm_properties.h"
#include "ops/reduce/reduce.h"

#include <limits>

using namespace norma;
using namespace norma::test;

namespace {

std::vector<double> reference_local(const Tensor& x, int64_t size, const LocalResponseNormOptions& options) {
  Maps in(x);
  Maps out(x);
  const auto channels = static_cast<int64_t>(in.c);
  for (size_t n = 0; n < in.n; ++n) {
    for (int64_t c = 0; c < channels; ++c) {
      for (size_t p = 0; p < in.p; ++p) {
        double sum = 0;
        for (int64_t other = c - size / 2; other <= c + (size - 1) / 2; ++other) {
          if (other >= 0 && other < channels) {
            sum += std::pow(in.at(n, static_cast<size_t>(other), p), 2);
          }
        }
        out.at(n, static_cast<size_t>(c), p) /=
            std::pow(options.k + options.alpha / static_cast<double>(size) * sum, options.beta);
      }
    }
  }
  return out.values;
}

std::vector<double> reference_filter(const Tensor& x, const Tensor& weight, const Tensor& bias, const Tensor& tau,
                                     double eps) {
  Maps out(x);
  const auto w = weight.to_vector<double>();
  const auto b = bias.to_vector<double>();
  for (size_t n = 0; n < out.n; ++n) {
    for (size_t c = 0; c < out.c; ++c) {
      double squares = 0;
      for (size_t p = 0; p < out.p; ++p) {
        squares += out.at(n, c, p) * out.at(n, c, p);
      }
      for (size_t p = 0; p < out.p; ++p) {
        double& y = out.at(n, c, p);
        y = y / std::sqrt(squares / static_cast<double>(out.p) + eps) * w[c] + b[c];
        y = tau.defined() ? std::max(y, tau.to_vector<double>()[c]) : y;
      }
    }
  }
  return out.values;
}

std::vector<double> reference_global(const Tensor& x, const Tensor& weight, const Tensor& bias, double eps) {
  Maps out(x);
  const auto w = weight.to_vector<double>();
  const auto b = bias.to_vector<double>();
  for (size_t n = 0; n < out.n; ++n) {
    std::vector<double> g(out.c);
    double total = 0;
    for (size_t c = 0; c < out.c; ++c) {
      for (size_t p = 0; p < out.p; ++p) {
        g[c] += out.at(n, c, p) * out.at(n, c, p);
      }
      g[c] = std::sqrt(g[c]);
      total += g[c];
    }
    for (size_t c = 0; c < out.c; ++c) {
      for (size_t p = 0; p < out.p; ++p) {
        double& y = out.at(n, c, p);
        y += w[c] * (y * g[c] / (total / static_cast<double>(out.c) + eps)) + b[c];
      }
    }
  }
  return out.values;
}

}  // namespace

TEST_CASE("local_response_norm: values of PyTorch") {
  // x = torch.linspace(-2, 3, 10, dtype=torch.float64).view(1, 5, 2)
  // torch.nn.functional.local_response_norm(x, size, alpha=0.5, beta=0.75, k=2)     (PyTorch 1.13)
  std::vector<double> values;
  for (int i = 0; i < 10; ++i) {
    values.push_back(-2 + 5 * static_cast<double>(i) / 9);
  }
  Tensor x = from_vector(values, {1, 5, 2});
  const LocalResponseNormOptions options{.alpha = 0.5, .beta = 0.75, .k = 2};
  CHECK(distance_to(local_response_norm(x, 4, options),
                    {-0.977135259049567, -0.7798462437148039, -0.433510279708437, -0.17560427006546322,
                     0.10192357273782814, 0.3596815325090954, 0.5743187438610111, 0.7137590910259148,
                     1.0790241219970296, 1.1368540620838594}) <= 1e-14);
  CHECK(distance_to(local_response_norm(x, 3, options),
                    {-0.9243852698215307, -0.7571024726211614, -0.40993396364620804, -0.16933298333158234,
                     0.11395959873826587, 0.36783168436224184, 0.5445185327357555, 0.6443483111365472,
                     1.0001551748149287, 1.0422181915634134}) <= 1e-14);
  // the gradient of (y * torch.arange(10).view(1, 5, 2)).sum() for size 4
  x.set_requires_grad();
  const Tensor weights = from_vector<double>({0, 1, 2, 3, 4, 5, 6, 7, 8, 9}, {1, 5, 2});
  CHECK(distance_to(grad({local_response_norm(x, 4, options)}, {x}, {weights})[0],
                    {-0.07073662454190933, 0.560519372223758, 1.1307862088758598, 1.6705062881953954, 1.674890769506153,
                     1.6429022988814803, 1.542823789635079, 0.9401915104454566, 1.6878268600278887,
                     1.0645206631429962}) <= 1e-14);
}

TEST_CASE("local_response_norm: values by the definition, any rank, window and layout") {
  const LocalResponseNormOptions strong{.alpha = 2, .beta = 0.6, .k = 0.5};
  for (const Sizes& sizes : {Sizes{2, 7, 3}, Sizes{2, 3, 4, 5}, Sizes{2, 1, 3, 2}, Sizes{1, 33, 1, 1},
                             Sizes{2, 5, 2, 1, 3}, Sizes{1, 4, 2, 2, 1, 2}}) {
    for (const Layout layout : kLayouts) {
      const Tensor x = in_layout(random_tensor(sizes, 4), layout);
      for (const int64_t size : {1, 2, 3, 4, 5, 9, 100}) {
        CAPTURE(to_string(sizes));
        CAPTURE(to_string(layout));
        CAPTURE(size);
        CHECK(distance_to(local_response_norm(x, size, strong), reference_local(x, size, strong)) <= 1e-14);
        CHECK(distance_to(local_response_norm(x, size), reference_local(x, size, {})) <= 1e-14);
      }
    }
  }
}

TEST_CASE("local_response_norm: gradients, once and twice") {
  for (const Sizes& sizes : {Sizes{2, 5, 3}, Sizes{2, 3, 2, 4}, Sizes{2, 6, 1, 1}}) {
    for (const int64_t size : {2, 3, 11}) {
      check_gradients(
          "local_response_norm " + to_string(sizes),
          [size](const Tensors& in) {
            return Tensors{local_response_norm(in[0], size, {.alpha = 2, .beta = 0.6, .k = 0.5})};
          },
          {random_tensor(sizes, 11)}, /* twice= */ true);
    }
  }
}

TEST_CASE("global_response_norm: gradients of an empty map are 0, once and twice") {
  for (const Sizes& sizes : {Sizes{2, 3, 0}, Sizes{2, 3, 4, 0}, Sizes{0, 3, 2}}) {
    CAPTURE(to_string(sizes));
    const Tensor x = zeros(sizes, {.dtype = DType::float64}).set_requires_grad();
    const Tensor weight = ones({3}, {.dtype = DType::float64}).set_requires_grad();
    const Tensor bias = ones({3}, {.dtype = DType::float64}).set_requires_grad();
    for (const bool create_graph : {false, true}) {
      const Tensor y = global_response_norm(x, weight, bias);
      const Tensors once = grad({y}, {x, weight, bias}, {zeros_like(y)}, {.create_graph = create_graph});
      CHECK(once[0].sizes() == sizes);
      CHECK(max_difference(once[1], zeros({3}, {.dtype = DType::float64})) == 0);
      CHECK(max_difference(once[2], zeros({3}, {.dtype = DType::float64})) == 0);
      if (create_graph) {
        const Tensors twice = grad({once[0], once[1]}, {weight}, {zeros_like(x), ones({3}, {.dtype = DType::float64})});
        CHECK(max_difference(twice[0], zeros({3}, {.dtype = DType::float64})) == 0);
      }
    }
  }
}

TEST_CASE("local_response_norm: memory formats, float32, 16 bits, empty input") {
  const TensorFunction f = [](const Tensors& in) { return Tensors{local_response_norm(in[0], 3, {.alpha = 2})}; };
  check_formats("local_response_norm", f, [](int64_t) { return Tensors{}; });
  check_float32("local_response_norm", f, {random_tensor({2, 5, 3, 4}, 5)});
  check_sixteen_bits("local_response_norm", f, {random_tensor({2, 5, 3, 4}, 5)});
  for (const Sizes& sizes : {Sizes{0, 3, 4, 5}, Sizes{2, 0, 4, 5}, Sizes{2, 3, 0, 5}}) {
    Tensor x = zeros(sizes).set_requires_grad();
    const Tensor y = local_response_norm(x, 5);
    CHECK(y.sizes() == sizes);
    CHECK(grad({y}, {x}, {zeros(sizes)})[0].sizes() == sizes);
  }
}

TEST_CASE("local_response_norm: float32 to 4 units, around the vector width and beyond the range of squares") {
  const LocalResponseNormOptions plain{.alpha = 0.5, .k = 2};
  const LocalResponseNormOptions without_k{.alpha = 0.5, .k = 0};
  for (const int64_t channels : {1, 15, 16, 17, 31, 33}) {
    for (const Sizes& sizes : {Sizes{2, channels, 3, 5}, Sizes{1, channels, 19, 29}}) {
      for (const MemoryFormat format : {MemoryFormat::contiguous, MemoryFormat::channels_last}) {
        for (const double factor : {1.0, 1e25, 1e-25}) {
          CAPTURE(to_string(sizes));
          CAPTURE(factor);
          const Tensor x = copy_of(mul(add(random_tensor(sizes, 5), 3.0), factor), format, DType::float32);
          const LocalResponseNormOptions& options = factor == 1e-25 ? without_k : plain;
          const std::vector<float> y = local_response_norm(x, 4, options).to_vector<float>();
          const std::vector<double> exact = reference_local(x, 4, options);
          double most = 0;
          for (size_t i = 0; i < y.size(); ++i) {
            most = std::max(most, float_distance(y[i], exact[i]));
          }
          CHECK(most <= 4);
        }
      }
    }
  }
}

TEST_CASE("local_response_norm: NaN reaches its window alone, and 0 over nothing is NaN") {
  std::vector<double> values(40, 0.5);
  values[7] = std::numeric_limits<double>::quiet_NaN();
  const Tensor x = copy_of(from_vector(values, {1, 40, 1, 1}), MemoryFormat::channels_last, DType::float32);
  const std::vector<float> y = local_response_norm(x, 3).to_vector<float>();
  for (size_t c = 0; c < y.size(); ++c) {
    CHECK(std::isnan(y[c]) == (c >= 6 && c <= 8));
  }
  const Tensor zeros = full({1, 3, 2, 2}, 0, {.dtype = DType::float32});
  CHECK(std::isnan(local_response_norm(zeros, 3, {.k = 0}).to_vector<float>()[0]));
}

TEST_CASE("local_response_norm: error texts") {
  CHECK(error_of([] { local_response_norm({}, 5); }) == "local_response_norm: input: expected a tensor, got none");
  CHECK(error_of([] {
          local_response_norm(ones({2, 3}), 5);
        }) == "local_response_norm: input: expected rank 3 to 8, got rank 2 (sizes [2, 3])");
  CHECK(error_of([] {
          local_response_norm(ones({2, 3, 4}, {.dtype = DType::int64}), 5);
        }) == "local_response_norm: input: expected dtype float32, float64, bfloat16 or float16, got int64");
  CHECK(error_of([] {
          local_response_norm(ones({2, 3, 4}), 0);
        }) == "local_response_norm: size: expected at least 1, got 0");
}

TEST_CASE("filter_response_norm: values by the definition") {
  for (const Sizes& sizes : {Sizes{2, 3, 4, 5}, Sizes{2, 33, 3, 2}, Sizes{3, 1, 4, 2}, Sizes{2, 3, 1, 1},
                             Sizes{2, 3, 7}, Sizes{2, 3, 2, 2, 3}}) {
    const Tensor weight = random_tensor({sizes[1]}, 2);
    const Tensor bias = random_tensor({sizes[1]}, 3);
    const Tensor tau = random_tensor({sizes[1]}, 4);
    for (const Layout layout : kLayouts) {
      CAPTURE(to_string(sizes));
      CAPTURE(to_string(layout));
      const Tensor x = in_layout(random_tensor(sizes, 1), layout);
      const Tensor one = ones({sizes[1]});
      const Tensor zero = zeros({sizes[1]});
      CHECK(distance_to(filter_response_norm(x, weight, bias, tau), reference_filter(x, weight, bias, tau, 1e-5)) <=
            1e-14);
      CHECK(distance_to(filter_response_norm(x, weight, bias, tau, {.eps = 0.5}),
                        reference_filter(x, weight, bias, tau, 0.5)) <= 1e-14);
      CHECK(distance_to(filter_response_norm(x), reference_filter(x, one, zero, {}, 1e-5)) <= 1e-14);
      CHECK(distance_to(filter_response_norm(x, {}, {}, tau), reference_filter(x, one, zero, tau, 1e-5)) <= 1e-14);
    }
  }
}

TEST_CASE("filter_response_norm: gradients, once and twice") {
  for (const Sizes& sizes : {Sizes{2, 3, 2, 4}, Sizes{2, 4, 5}, Sizes{3, 2, 1, 1}}) {
    const Tensor weight = random_tensor({sizes[1]}, 12);
    const Tensor bias = random_tensor({sizes[1]}, 13);
    const Tensor tau = random_tensor({sizes[1]}, 14);
    const std::string name = "filter_response_norm " + to_string(sizes);
    check_gradients(
        name, [](const Tensors& in) { return Tensors{filter_response_norm(in[0], in[1], in[2], in[3], {.eps = 0.1})}; },
        {random_tensor(sizes, 11), weight, bias, tau}, /* twice= */ true);
    check_gradients(
        name + " alone",
        [](const Tensors& in) { return Tensors{filter_response_norm(in[0], {}, {}, {}, {.eps = 0.1})}; },
        {random_tensor(sizes, 11)}, /* twice= */ true);
  }
}

TEST_CASE("filter_response_norm: memory formats, float32 and 16 bits") {
  const TensorFunction f = [](const Tensors& in) { return Tensors{filter_response_norm(in[0], in[1], in[2], in[3])}; };
  const auto parameters = [](int64_t channels) {
    return Tensors{random_tensor({channels}, 2), random_tensor({channels}, 3), random_tensor({channels}, 4)};
  };
  check_formats("filter_response_norm", f, parameters);
  Tensors inputs = parameters(5);
  inputs.insert(inputs.begin(), random_tensor({2, 5, 3, 4}, 5));
  check_float32("filter_response_norm", f, inputs);
  check_sixteen_bits("filter_response_norm", f, inputs);
}

TEST_CASE("filter_response_norm: error texts") {
  const Tensor x = ones({2, 3, 4, 5});
  CHECK(error_of([] {
          filter_response_norm(ones({2, 3}));
        }) == "filter_response_norm: input: expected rank 3 to 5, got rank 2 (sizes [2, 3])");
  CHECK(error_of([&] { filter_response_norm(x, ones({4})); }) ==
        "filter_response_norm: weight: expected sizes [3], got [4]");
  CHECK(error_of([&] { filter_response_norm(x, {}, ones({4})); }) ==
        "filter_response_norm: bias: expected sizes [3], got [4]");
  CHECK(error_of([&] { filter_response_norm(x, {}, {}, ones({1})); }) ==
        "filter_response_norm: tau: expected sizes [3], got [1]");
  CHECK(error_of([&] { filter_response_norm(x, {}, {}, ones({3}, {.dtype = DType::float64})); }) ==
        "filter_response_norm: tau: expected dtype float32, got float64");
  CHECK(error_of([&] { filter_response_norm(x, {}, {}, {}, {.eps = -1}); }) ==
        "filter_response_norm: eps: expected a value >= 0, got -1");
}

TEST_CASE("global_response_norm: values by the definition") {
  for (const Sizes& sizes : {Sizes{2, 3, 4, 5}, Sizes{2, 33, 3, 2}, Sizes{3, 1, 4, 2}, Sizes{2, 3, 1, 1},
                             Sizes{2, 3, 7}, Sizes{2, 3, 2, 2, 3}}) {
    const Tensor weight = random_tensor({sizes[1]}, 2);
    const Tensor bias = random_tensor({sizes[1]}, 3);
    const Tensor zero = zeros({sizes[1]}, {.dtype = DType::float64});
    for (const Layout layout : kLayouts) {
      CAPTURE(to_string(sizes));
      CAPTURE(to_string(layout));
      const Tensor x = in_layout(random_tensor(sizes, 1), layout);
      CHECK(distance_to(global_response_norm(x, weight, bias), reference_global(x, weight, bias, 1e-6)) <= 1e-13);
      CHECK(distance_to(global_response_norm(x, weight, bias, {.eps = 2}), reference_global(x, weight, bias, 2)) <=
            1e-13);
      CHECK(distance_to(global_response_norm(x), reference_global(x, ones({sizes[1]}), zeros({sizes[1]}), 1e-6)) <=
            1e-13);
      CHECK(distance_to(global_response_norm(x, zero, zero), x.to_vector<double>()) == 0);
    }
  }
}

TEST_CASE("global_response_norm: gradients, once and twice") {
  for (const Sizes& sizes : {Sizes{2, 3, 2, 4}, Sizes{2, 4, 5}, Sizes{3, 2, 1, 1}, Sizes{2, 1, 3, 2}}) {
    const std::string name = "global_response_norm " + to_string(sizes);
    check_gradients(
        name, [](const Tensors& in) { return Tensors{global_response_norm(in[0], in[1], in[2], {.eps = 0.1})}; },
        {random_tensor(sizes, 11), random_tensor({sizes[1]}, 12), random_tensor({sizes[1]}, 13)}, /* twice= */ true);
    check_gradients(
        name + " alone", [](const Tensors& in) { return Tensors{global_response_norm(in[0], {}, {}, {.eps = 0.1})}; },
        {random_tensor(sizes, 11)}, /* twice= */ true);
  }
}

TEST_CASE("global_response_norm: third derivative") {
  Tensor x = random_tensor({3, 2, 2}, 31);
  x.set_requires_grad();
  const Tensor direction = random_tensor({3, 2, 2}, 32);
  const auto second = [&](const Tensors& in) {
    const Tensor y = global_response_norm(in[0], {}, {}, {.eps = 0.1});
    const Tensor first = grad({sum(mul(mul(y, y), direction))}, {in[0]}, {}, {.create_graph = true})[0];
    return Tensors{grad({sum(mul(first, first))}, {in[0]}, {}, {.create_graph = true})[0]};
  };
  const GradcheckResult result = gradcheck(second, {x});
  CHECK_MESSAGE(result.passed, result.message);
}

TEST_CASE("global_response_norm: finite gradients, once and twice, where maps are 0") {
  for (const DType dtype : {DType::float32, DType::float64}) {
    for (const bool all : {true, false}) {
      CAPTURE(to_string(dtype));
      CAPTURE(all);
      Tensor x = all ? zeros({2, 3, 2, 2}, {.dtype = dtype}) : random_tensor({2, 3, 2, 2}, 1, dtype);
      for (const double eps : {1e-6, 0.0}) {
        if (all && eps == 0) {
          continue;  // 0 / 0 in the definition itself
        }
        for (int64_t p = 0; p < 4; ++p) {
          if (dtype == DType::float32) {
            set_element(x, 4 + p, 0.0F);
          } else {
            set_element(x, 4 + p, 0.0);
          }
        }
        Tensors in{x.detach(), random_tensor({3}, 2, dtype), random_tensor({3}, 3, dtype)};
        for (Tensor& input : in) {
          input.set_requires_grad();
        }
        const Tensor y = global_response_norm(in[0], in[1], in[2], {.eps = eps});
        const Tensors first = grad({y}, in, {random_tensor({2, 3, 2, 2}, 4, dtype)}, {.create_graph = true});
        Tensors seconds_of{first[0]};
        const Tensors second = grad(seconds_of, {in[0], in[1]}, {random_tensor({2, 3, 2, 2}, 5, dtype)});
        for (const Tensors& gradients : {first, second}) {
          for (const Tensor& gradient : gradients) {
            for (const double value : gradient.to_vector<double>()) {
              CHECK(std::isfinite(value));
            }
          }
        }
        // A map of zeros: x * n does not move with x, so that only the plain path is left.
        const std::vector<double> dx = first[0].to_vector<double>();
        const std::vector<double> dy = random_tensor({2, 3, 2, 2}, 4, dtype).to_vector<double>();
        for (size_t p = 4; p < 8; ++p) {
          CHECK(std::abs(dx[p] - dy[p]) <= 1e-6);
        }
      }
    }
  }
}

TEST_CASE("global_response_norm: memory formats, float32 and 16 bits") {
  const TensorFunction f = [](const Tensors& in) { return Tensors{global_response_norm(in[0], in[1], in[2])}; };
  const auto parameters = [](int64_t channels) {
    return Tensors{random_tensor({channels}, 2), random_tensor({channels}, 3)};
  };
  check_formats("global_response_norm", f, parameters);
  check_float32("global_response_norm", f,
                {random_tensor({2, 5, 3, 4}, 5), random_tensor({5}, 2), random_tensor({5}, 3)});
  check_sixteen_bits("global_response_norm", f,
                     {random_tensor({2, 5, 3, 4}, 5), random_tensor({5}, 2), random_tensor({5}, 3)});
  // In float16 the squares would overflow.
  const Tensor large = full({1, 2, 2, 2}, 6e4, {.dtype = DType::float16});
  CHECK(max_difference(global_response_norm(large, zeros({2}), zeros({2})), large) == 0);
}

TEST_CASE("global_response_norm: error texts") {
  const Tensor x = ones({2, 3, 4, 5});
  CHECK(error_of([] {
          global_response_norm(ones({2, 3}));
        }) == "global_response_norm: input: expected rank 3 to 5, got rank 2 (sizes [2, 3])");
  CHECK(error_of([&] { global_response_norm(x, ones({4})); }) ==
        "global_response_norm: weight: expected sizes [3], got [4]");
  CHECK(error_of([&] { global_response_norm(x, {}, ones({4})); }) ==
        "global_response_norm: bias: expected sizes [3], got [4]");
  CHECK(error_of([&] { global_response_norm(x, {}, {}, {.eps = -1}); }) ==
        "global_response_norm: eps: expected a value >= 0, got -1");
}
