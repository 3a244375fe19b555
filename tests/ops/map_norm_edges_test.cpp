#include "error_text.h"
#include "float_distance.h"
#include "ops/map_norm_cases.h"
#include "ops/norm/norm.h"
#include "ops/norm_properties.h"
#include "ops/reduce/reduce.h"
#include "ops/shape/view.h"

#include <limits>

// What belongs to one of the norms of ops/map_norm/: options, running statistics, zeros, ends of the range, error
// texts.

using namespace norma;
using namespace norma::test;

namespace {

std::vector<double> local_response(const Tensor& x, int64_t window, const LocalResponseNormOptions& options) {
  return output_of(formula::local_response_norm(window, options), x, {}, /* eps= */ 0);
}

}  // namespace

TEST_CASE("evo norms: every kind of statistics, by the formulas") {
  const Tensor x = random_tensor({2, 6, 4, 5}, 1);
  const Tensor v = random_tensor({6}, 2);
  const std::vector<double> of_batch = output_of(formula::evo_norm_b0(), x, {{"v", v}}, 1e-3);
  const std::vector<double> of_groups = output_of(formula::evo_norm_s0(3), x, {{"v", v}}, 1e-5);
  for (const Statistics statistics : all_statistics()) {
    CAPTURE(to_string(statistics));
    CHECK(distance_to(evo_norm_b0(x, {}, v, {}, {}, {.statistics = statistics}), of_batch) <= 1e-13);
    CHECK(distance_to(evo_norm_s0(x, 3, v, {}, {}, {.statistics = statistics}), of_groups) <= 1e-13);
  }
  CHECK(max_difference(evo_norm_b0(x, {}, v, {}, {}, {.training = false}), evo_norm_b0(x, {}, v)) == 0);
}

TEST_CASE("evo_norm_b0: running_var takes the unbiased variance, and only in training") {
  const Tensor x = random_tensor({3, 2, 2, 2}, 1);
  const Tensor running_var = full({2}, 2, {.dtype = DType::float64});
  const Tensor v = ones({2}, {.dtype = DType::float64});
  evo_norm_b0(x, running_var, v, {}, {}, {.training = false});
  CHECK(distance_to(running_var, {2, 2}) == 0);
  evo_norm_b0(x, running_var, v, {}, {}, {.momentum = 0.25});
  std::vector<double> expected;
  for (size_t c = 0; c < 2; ++c) {
    const Tensor channel = narrow(x, 1, static_cast<int64_t>(c), 1);
    expected.push_back(0.75 * 2 + 0.25 * variance_of(channel.to_vector<double>()) * 12 / 11);
  }
  CHECK(distance_to(running_var, expected) <= 1e-15);
  const int64_t version = running_var.version();
  const Tensor none = evo_norm_b0(zeros({0, 2, 2, 2}, {.dtype = DType::float64}), running_var, v);
  CHECK(none.sizes() == Sizes{0, 2, 2, 2});
  CHECK(running_var.version() == version);
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
  CHECK(largest_number(results[3]) > 1e3);
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
        CHECK(distance_to(local_response_norm(x, size, strong), local_response(x, size, strong)) <= 1e-14);
        CHECK(distance_to(local_response_norm(x, size), local_response(x, size, {})) <= 1e-14);
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

TEST_CASE("local_response_norm: empty input") {
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
          const std::vector<double> exact = local_response(x, 4, options);
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

TEST_CASE("filter_response_norm: a threshold without weight and bias") {
  const Tensor x = random_tensor({2, 3, 4, 5}, 1);
  const Tensor tau = random_tensor({3}, 4);
  const Tensor expected = maximum(filter_response_norm(x), reshape(tau, {3, 1, 1}));
  CHECK(max_difference(filter_response_norm(x, {}, {}, tau), expected) == 0);
}

TEST_CASE("global_response_norm: with weight and bias 0 the output is the input, in float16 too") {
  const Tensor x = random_tensor({2, 3, 4, 5}, 1);
  const Tensor zero = zeros({3}, {.dtype = DType::float64});
  CHECK(max_difference(global_response_norm(x, zero, zero), x) == 0);
  const Tensor large = full({1, 2, 2, 2}, 6e4, {.dtype = DType::float16});  // its squares would overflow
  CHECK(max_difference(global_response_norm(large, zeros({2}), zeros({2})), large) == 0);
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

TEST_CASE("dynamic_tanh: values by the definition, weight along any axis") {
  const Tensor alpha = full({1}, 0.7, {.dtype = DType::float64});
  for (const Sizes& sizes : {Sizes{2, 3, 4, 5}, Sizes{2, 33, 3, 1}, Sizes{3, 1, 1, 1}, Sizes{7, 31}, Sizes{5}}) {
    for (int64_t axis = -sizes.size(); axis < sizes.size(); ++axis) {
      const int64_t along = axis < 0 ? axis + sizes.size() : axis;
      const Tensor weight = random_tensor({sizes[along]}, 2);
      const Tensor bias = random_tensor({sizes[along]}, 3);
      for (const Layout layout : kLayouts) {
        CAPTURE(to_string(sizes));
        CAPTURE(axis);
        CAPTURE(to_string(layout));
        const Tensor x = in_layout(random_tensor(sizes, 1), layout);
        const std::vector<double> expected = output_of(
            formula::dynamic_tanh(), x, {{"alpha", alpha}, {"weight", weight}, {"bias", bias}}, /* eps= */ 0, axis);
        CHECK(distance_to(dynamic_tanh(x, alpha, weight, bias, {.axis = axis}), expected) <= 1e-15);
      }
    }
  }
  const Tensor x = random_tensor({2, 3}, 1);
  const Tensor scalar = full({}, 0.7, {.dtype = DType::float64});
  CHECK(max_difference(dynamic_tanh(x, scalar), tanh(mul(x, 0.7))) == 0);
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

TEST_CASE("dynamic_erf: values by the definition, weight along any axis") {
  const Tensor alpha = full({1}, 0.7, {.dtype = DType::float64});
  const Tensor shift = full({1}, -0.4, {.dtype = DType::float64});
  for (const Sizes& sizes : {Sizes{2, 3, 4, 5}, Sizes{2, 33, 3, 1}, Sizes{7, 31}, Sizes{5}}) {
    for (int64_t axis = 0; axis < sizes.size(); ++axis) {
      const Tensor weight = random_tensor({sizes[axis]}, 2);
      const Tensor bias = random_tensor({sizes[axis]}, 3);
      for (const Layout layout : kLayouts) {
        CAPTURE(to_string(sizes));
        CAPTURE(axis);
        CAPTURE(to_string(layout));
        const Tensor x = in_layout(random_tensor(sizes, 1), layout);
        const NamedParameters parameters{{"alpha", alpha}, {"shift", shift}, {"weight", weight}, {"bias", bias}};
        const std::vector<double> expected = output_of(formula::dynamic_erf(), x, parameters, /* eps= */ 0, axis);
        CHECK(distance_to(dynamic_erf(x, alpha, shift, weight, bias, {.axis = axis}), expected) <= 1e-15);
      }
    }
  }
  const Tensor x = random_tensor({2, 3}, 1);
  const Tensor scalar = full({}, 0.7, {.dtype = DType::float64});
  CHECK(max_difference(dynamic_erf(x, scalar, scalar), erf(add(mul(x, 0.7), 0.7))) <= 2e-16);
}

TEST_CASE("dynamic_erf: error texts") {
  const Tensor x = ones({2, 3, 4, 5});
  const Tensor one = ones({1});
  CHECK(error_of([&] { dynamic_erf({}, one, one); }) == "dynamic_erf: input: expected a tensor, got none");
  CHECK(error_of([&] { dynamic_erf(x, {}, one); }) == "dynamic_erf: alpha: expected a tensor, got none");
  CHECK(error_of([&] { dynamic_erf(x, one, {}); }) == "dynamic_erf: shift: expected a tensor, got none");
  CHECK(error_of([&] { dynamic_erf(x, one, ones({3})); }) == "dynamic_erf: shift: expected sizes [1] or [], got [3]");
  CHECK(error_of([&] { dynamic_erf(x, one, ones({1}, {.dtype = DType::float64})); }) ==
        "dynamic_erf: shift: expected dtype float32, got float64");
  CHECK(error_of([&] { dynamic_erf(x, one, one, ones({4})); }) == "dynamic_erf: weight: expected sizes [3], got [4]");
}

TEST_CASE("seed_norm: values by the definition along any axis, and at its start an rms norm") {
  for (const Sizes& sizes : {Sizes{2, 3, 4, 5}, Sizes{2, 33, 3, 1}, Sizes{7, 31}, Sizes{5}}) {
    for (int64_t axis = 0; axis < sizes.size(); ++axis) {
      const Tensor weight = random_tensor({sizes[axis]}, 2);
      const Tensor alpha = random_tensor({sizes[axis]}, 3);
      const Tensor beta = random_tensor({sizes[axis]}, 4);
      for (const Layout layout : kLayouts) {
        CAPTURE(to_string(sizes));
        CAPTURE(axis);
        CAPTURE(to_string(layout));
        const Tensor x = in_layout(random_tensor(sizes, 1), layout);
        const std::vector<double> expected =
            output_of(formula::seed_norm(), x, {{"weight", weight}, {"alpha", alpha}, {"beta", beta}}, 0.1, axis);
        const Tensor y = seed_norm(x, weight, alpha, beta, {.eps = 0.1, .axis = axis});
        CHECK(distance_to(y, expected) <= 1e-14);
      }
    }
  }
  const Tensor x = random_tensor({2, 6, 3, 5}, 1);
  const Tensor weight = random_tensor({6}, 2);
  const Tensor beta = zeros({6}, {.dtype = DType::float64});
  CHECK(max_difference(seed_norm(x, weight, weight, beta, {.eps = 0.1}), rms_norm_2d(x, weight, {.eps = 0.1})) == 0);
}

TEST_CASE("seed_norm: error texts") {
  const Tensor x = ones({2, 3, 4, 5});
  const Tensor c = ones({3});
  CHECK(error_of([&] { seed_norm({}, c, c, c); }) == "seed_norm: input: expected a tensor, got none");
  CHECK(error_of([&] { seed_norm(x, {}, c, c); }) == "seed_norm: weight: expected a tensor, got none");
  CHECK(error_of([&] { seed_norm(x, c, {}, c); }) == "seed_norm: alpha: expected a tensor, got none");
  CHECK(error_of([&] { seed_norm(x, c, c, ones({4})); }) == "seed_norm: beta: expected sizes [3], got [4]");
  CHECK(error_of([&] { seed_norm(x, c, c, ones({3}, {.dtype = DType::float64})); }) ==
        "seed_norm: beta: expected dtype float32, got float64");
  CHECK(error_of([&] { seed_norm(x, c, c, c, {.axis = 4}); }) == "seed_norm: axis: expected a value in [-4, 4), got 4");
  CHECK(error_of([&] { seed_norm(x, c, c, c, {.eps = -1}); }) == "seed_norm: eps: expected a value >= 0, got -1");
}
