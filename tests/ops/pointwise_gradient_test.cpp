#include "ops/pointwise/pointwise.h"
#include "ops/reduce/reduce.h"
#include "ops/shape/copy.h"
#include "support.h"

#include <string>

using namespace norma;
using namespace norma::test;

namespace {

struct UnaryCase {
  std::string name;
  Tensor (*f)(const Tensor& x);
  bool positive = false;  // defined for positive numbers only
  double kink = NAN;      // where the slope jumps: inputs keep away from it
};

const UnaryCase kUnaryCases[] = {
    {"neg", [](const Tensor& x) { return neg(x); }},
    {"exp", [](const Tensor& x) { return exp(x); }},
    {"log", [](const Tensor& x) { return log(x); }, true},
    {"sqrt", [](const Tensor& x) { return sqrt(x); }, true},
    {"rsqrt", [](const Tensor& x) { return rsqrt(x); }, true},
    {"pow 2", [](const Tensor& x) { return pow(x, 2); }},
    {"pow 3", [](const Tensor& x) { return pow(x, 3); }},
    {"pow 1", [](const Tensor& x) { return pow(x, 1); }},
    {"pow -1", [](const Tensor& x) { return pow(x, -1); }, true},
    {"pow 0.5", [](const Tensor& x) { return pow(x, 0.5); }, true},
    {"pow -0.5", [](const Tensor& x) { return pow(x, -0.5); }, true},
    {"pow 1.7", [](const Tensor& x) { return pow(x, 1.7); }, true},
    {"abs", [](const Tensor& x) { return abs(x); }, false, 0},
    {"tanh", [](const Tensor& x) { return tanh(x); }},
    {"sigmoid", [](const Tensor& x) { return sigmoid(x); }},
    {"erf", [](const Tensor& x) { return erf(x); }},
    {"relu", [](const Tensor& x) { return relu(x); }, false, 0},
    {"silu", [](const Tensor& x) { return silu(x); }},
    {"gelu", [](const Tensor& x) { return gelu(x); }},
    {"gelu, tanh", [](const Tensor& x) { return gelu(x, GeluApproximation::tanh); }},
    {"clamp", [](const Tensor& x) { return clamp(x, -0.5, 0.5); }, false, 0.5},
    {"add a number", [](const Tensor& x) { return x + 1.5; }},
    {"sub a number", [](const Tensor& x) { return x - 1.5; }},
    {"mul by a number", [](const Tensor& x) { return x * -2.5; }},
    {"div by a number", [](const Tensor& x) { return x / -2.5; }},
    {"sub from a number", [](const Tensor& x) { return 1.5 - x; }},
    {"div a number", [](const Tensor& x) { return 1.5 / x; }, true},
};

/// Random numbers, further than 0.05 from +-kink; above 0.3 if `positive`.
Tensor input_for(const UnaryCase& test, const Sizes& sizes) {
  std::vector<double> values = random_tensor(sizes, 7).to_vector<double>();
  for (double& v : values) {
    if (test.positive) {
      v = std::abs(v) + 0.3;
    } else if (std::abs(std::abs(v) - test.kink) < 0.05) {
      v += 0.2;
    }
  }
  return from_vector(values, sizes);
}

struct BinaryCase {
  std::string name;
  Tensor (*f)(const Tensor& a, const Tensor& b);
};

const BinaryCase kBinaryCases[] = {
    {"add", [](const Tensor& a, const Tensor& b) { return add(a, b); }},
    {"sub", [](const Tensor& a, const Tensor& b) { return sub(a, b); }},
    {"mul", [](const Tensor& a, const Tensor& b) { return mul(a, b); }},
    {"div", [](const Tensor& a, const Tensor& b) { return div(a, b); }},
    {"maximum", [](const Tensor& a, const Tensor& b) { return maximum(a, b); }},
    {"pow", [](const Tensor& a, const Tensor& b) { return pow(abs(a), b); }},
    {"where",
     [](const Tensor& a, const Tensor& b) {
       const Tensor condition = greater(random_tensor({2, 1, 2, 3}, 5), 0);
       return where(condition, a, b);
     }},
};

/// Operand sizes that broadcast to (2, 3, 2, 3) in every position.
const std::pair<Sizes, Sizes> kBroadcasts[] = {
    {{2, 3, 2, 3}, {2, 3, 2, 3}}, {{2, 3, 2, 3}, {1, 3, 1, 1}}, {{1, 3, 1, 1}, {2, 3, 2, 3}}, {{2, 3, 2, 3}, {3}},
    {{2, 1, 1, 1}, {2, 3, 2, 3}}, {{2, 3, 2, 3}, {}},           {{2, 3, 1, 3}, {1, 1, 2, 1}}, {{3, 1, 3}, {2, 1, 2, 1}},
};

/// Away from 0, so that div is tame; no two elements of operands with different seeds are close.
Tensor operand(const Sizes& sizes, uint64_t seed) {
  const Tensor x = random_tensor(sizes, seed);
  return where(greater(x, 0), x + 0.4, x - 0.4);
}

Tensor leaf(const std::vector<double>& values) {
  return from_vector(values, {static_cast<int64_t>(values.size())}).set_requires_grad();
}

std::vector<double> gradient_of(const Tensor& x) {
  return x.grad().to_vector<double>();
}

/// What the op that made y keeps for backward.
size_t saved_bytes(const Tensor& y) {
  size_t bytes = 0;
  for (const SavedTensor& saved : y.impl().node->saved) {
    const Tensor& x = saved.value();
    bytes += x.defined() ? static_cast<size_t>(x.numel()) * size_of(x.dtype()) : 0;
  }
  return bytes;
}

}  // namespace

TEST_CASE("pointwise: gradients of functions of one tensor, once and twice") {
  for (const UnaryCase& test : kUnaryCases) {
    const auto f = [&](const Tensors& in) -> Tensors { return {test.f(in[0])}; };
    check_gradients(test.name, f, {input_for(test, {2, 3, 2, 4})}, /* twice= */ true);
  }
}

TEST_CASE("pointwise: gradients of functions of two tensors, once and twice, broadcast in every position") {
  for (const BinaryCase& test : kBinaryCases) {
    for (const auto& [a, b] : kBroadcasts) {
      const auto f = [&](const Tensors& in) -> Tensors { return {test.f(in[0], in[1])}; };
      const std::string name = test.name + " " + to_string(a) + " " + to_string(b);
      check_gradients(name, f, {operand(a, 1), operand(b, 2)}, /* twice= */ true);
    }
  }
}

TEST_CASE("pointwise: gradients around the vector width") {
  for (const int64_t size : {1, 7, 8, 9, 31, 32, 33}) {
    for (const UnaryCase& test : kUnaryCases) {
      Tensor x = input_for(test, {size}).set_requires_grad();
      const GradcheckResult result = gradcheck([&](const Tensors& in) -> Tensors { return {test.f(in[0])}; }, {x});
      CHECK_MESSAGE(result.passed, test.name << " of " << size << " elements: " << result.message);
    }
  }
}

TEST_CASE("pointwise: the same tensor twice in one op gets both gradients") {
  Tensor x = leaf({3, -2});
  (x * x + x / x).backward(from_vector<double>({1, 1}, {2}));
  CHECK(gradient_of(x) == std::vector<double>{6, -4});
}

// a = torch.tensor([1., 2., 3.], requires_grad=True); b = torch.tensor([2., 2., 2.], requires_grad=True)
// torch.maximum(a, b).backward(torch.tensor([1., 2., 3.])); a.grad, b.grad → [0, 1, 3], [1, 1, 0]
TEST_CASE("maximum: the gradient is halved where both are equal") {
  Tensor a = leaf({1, 2, 3});
  Tensor b = leaf({2, 2, 2});
  maximum(a, b).backward(from_vector<double>({1, 2, 3}, {3}));
  CHECK(gradient_of(a) == std::vector<double>{0, 1, 3});
  CHECK(gradient_of(b) == std::vector<double>{1, 1, 0});
}

// x = torch.tensor([-2., -1., 0., 1., 2.], requires_grad=True)
// torch.autograd.grad(x.clamp(-1, 1).sum(), x), with clamp(min=-1), clamp(max=1), clamp(1, 1), clamp(2, -2)
// (torch 2.15)
TEST_CASE("clamp: the gradient does not pass on the bounds, and an open side has none") {
  const auto gradient = [](double low, double high, std::vector<double> values = {-2, -1, 0, 1, 2}) {
    const Tensor x = leaf(values);
    Tensor in_place = x * 1.0;
    clamp_(in_place, low, high);
    const std::vector<double> found = grad({sum(clamp(x, low, high))}, {x})[0].to_vector<double>();
    CHECK(grad({sum(in_place)}, {x})[0].to_vector<double>() == found);
    return found;
  };
  CHECK(gradient(-1, 1) == std::vector<double>{0, 0, 1, 0, 0});
  CHECK(gradient(-1, INFINITY) == std::vector<double>{0, 0, 1, 1, 1});
  CHECK(gradient(-INFINITY, 1) == std::vector<double>{1, 1, 1, 0, 0});
  CHECK(gradient(1, 1) == std::vector<double>{0, 0, 0, 0, 0});
  CHECK(gradient(2, -2) == std::vector<double>{0, 0, 0, 0, 0});
  // torch.tensor([-math.inf, math.inf, math.nan]).clamp(min=-1)
  CHECK(gradient(-1, INFINITY, {-INFINITY, INFINITY, NAN}) == std::vector<double>{0, 1, 0});
  CHECK(gradient(-INFINITY, 1, {-INFINITY, INFINITY, NAN}) == std::vector<double>{1, 0, 0});
}

// x = torch.tensor([-1., 0., 2.], requires_grad=True); x.relu().sum().backward(); x.abs().sum().backward(); x.grad
TEST_CASE("relu and abs: the gradient at 0 is 0") {
  Tensor x = leaf({-1, 0, 2});
  sum(relu(x)).backward();
  CHECK(gradient_of(x) == std::vector<double>{0, 0, 1});
  sum(abs(x)).backward();
  CHECK(gradient_of(x) == std::vector<double>{-1, 0, 2});
}

// x = torch.tensor([-1., 0., -0., 2., math.nan], requires_grad=True); g = torch.full((5,), math.nan)
// torch.autograd.grad(f(x), x, g) for f = abs, relu, lambda x: x.clamp(-0.5, 0.5), lambda x: torch.where(x > 0, x, 1.)
TEST_CASE("pointwise: a NaN gradient passes where PyTorch passes it, and a NaN input is seen") {
  const double nan = std::nan("");
  const auto nan_mask = [&](const TensorFunction& f, const std::vector<double>& gradient) {
    Tensor x = leaf({-1, 0, -0.0, 2, nan});
    std::string mask;
    for (const double value : grad(f({x}), {x}, {from_vector(gradient, {5})})[0].to_vector<double>()) {
      mask += std::isnan(value) ? 'n' : value == 0 ? '0' : value > 0 ? '+' : '-';
    }
    return mask;
  };
  const std::vector<double> nans(5, nan);
  const std::vector<double> ones(5, 1);
  const TensorFunction of_abs = [](const Tensors& in) -> Tensors { return {abs(in[0])}; };
  const TensorFunction of_relu = [](const Tensors& in) -> Tensors { return {relu(in[0])}; };
  const TensorFunction of_clamp = [](const Tensors& in) -> Tensors { return {clamp(in[0], -0.5, 0.5)}; };
  const TensorFunction of_where = [](const Tensors& in) -> Tensors {
    return {where(greater(in[0], 0), in[0], ones_like(in[0]))};
  };
  const TensorFunction of_max = [](const Tensors& in) -> Tensors { return {maximum(in[0], zeros_like(in[0]))}; };
  CHECK(nan_mask(of_abs, nans) == "nnnnn");
  CHECK(nan_mask(of_abs, ones) == "-00+0");
  CHECK(nan_mask(of_relu, nans) == "000nn");
  CHECK(nan_mask(of_relu, ones) == "000++");
  CHECK(nan_mask(of_clamp, nans) == "0nn00");
  CHECK(nan_mask(of_where, nans) == "000n0");
  CHECK(nan_mask(of_max, nans) == "0nnnn");
  // An infinite gradient times a slope of 0 is no number.
  CHECK(nan_mask(of_abs, std::vector<double>(5, INFINITY)) == "-nn+n");
}

// b = torch.tensor([0., 0., 0., 2., -2., 1.5, -1.5], dtype=torch.float64, requires_grad=True)
// e = torch.tensor([0., 2., -1., 3., 2., -0.5, 0.5], dtype=torch.float64, requires_grad=True)
// p = b ** e; torch.autograd.grad(p.sum(), (b, e))     (torch 2.15)
TEST_CASE("pow: values and gradients of a tensor exponent are those of PyTorch") {
  const Tensor b = leaf({0, 0, 0, 2, -2, 1.5, -1.5});
  const Tensor e = leaf({0, 2, -1, 3, 2, -0.5, 0.5});
  const auto same = [](const Tensor& got, const std::vector<double>& expected) {
    const std::vector<double> values = got.to_vector<double>();
    for (size_t i = 0; i < expected.size(); ++i) {
      CAPTURE(i);
      CHECK((std::isnan(expected[i]) ? std::isnan(values[i])
                                     : values[i] == expected[i] || std::abs(values[i] - expected[i]) <= 1e-14));
    }
  };
  const Tensor p = pow(b, e);
  same(p, {1, 0, INFINITY, 8, 4, 0.816496580927726, NAN});
  for (const bool create_graph : {false, true}) {
    const Tensors found = grad({sum(p)}, {b, e}, {}, {.retain_graph = true, .create_graph = create_graph});
    same(found[0], {0, 0, -INFINITY, 12, -4, -0.2721655269759087, NAN});
    same(found[1], {0, 0, -INFINITY, 5.545177444479562, NAN, 0.331060874455807, NAN});
  }
}

TEST_CASE("pow: dtypes and formats of a tensor exponent, and second derivatives at 0") {
  const Tensor x = from_vector<float>({2, 3}, {2});
  CHECK(max_difference(pow(x, from_vector<double>({0.5, 2}, {2, 1})),
                       from_vector<double>({std::sqrt(2.0), std::sqrt(3.0), 4, 9}, {2, 2})) <= 1e-15);
  CHECK(pow(x, scalar(2, DType::float64)).dtype() == DType::float32);
  CHECK(pow(to(x, DType::bfloat16), to(x, DType::bfloat16)).to_vector<float>() == std::vector<float>{4, 27});
  CHECK(pow(x, from_vector<int64_t>({3, 2}, {2})).to_vector<float>() == std::vector<float>{8, 9});
  const Tensor image = copy_of(ones({2, 3, 4, 5}), MemoryFormat::channels_last);
  CHECK(pow(image, ones({3, 1, 1})).suggest_memory_format() == MemoryFormat::channels_last);
  CHECK_THROWS_WITH_AS(pow(from_vector<int64_t>({1}, {1}), from_vector<int64_t>({1}, {1})),
                       "pow: expected dtype float32, float64, bfloat16 or float16, got int64", Error);
  // d2/dx2 of x^2 and x^3 at 0, with an exponent that wants a gradient: nothing infinite meets a 0.
  const Tensor zero = leaf({0, 0, 0});
  const Tensor exponent = leaf({2, 3, 4});
  const Tensor slope = grad({sum(pow(zero, exponent))}, {zero}, {}, {.create_graph = true})[0];
  CHECK(grad({sum(slope)}, {zero})[0].to_vector<double>() == std::vector<double>{2, 0, 0});
}

TEST_CASE("pow: the gradient of x^0 is 0 also where 1 / x is not finite") {
  // torch.tensor(x, requires_grad=True).pow(torch.zeros(3)) has the gradient 0 for x = [1e-40, nan, inf] (PyTorch 2.15)
  const Tensor x =
      from_vector<float>({1e-40F, std::numeric_limits<float>::quiet_NaN(), INFINITY}, {3}).set_requires_grad();
  sum(pow(x, zeros({3}))).backward();
  CHECK(x.grad().to_vector<float>() == std::vector<float>{0, 0, 0});
}

TEST_CASE("pow: the gradient of x^0 and x^1 is finite at 0") {
  Tensor x = leaf({0, 2});
  sum(pow(x, 0) + pow(x, 1)).backward();
  CHECK(gradient_of(x) == std::vector<double>{1, 1});
}

TEST_CASE("pointwise: the gradient of a converted operand comes back in its dtype") {
  Tensor a = from_vector<float>({1, 2, 3}, {3}).set_requires_grad();
  Tensor b = from_vector<double>({4, 5, 6}, {3}).set_requires_grad();
  sum(a * b).backward();
  CHECK(a.grad().dtype() == DType::float32);
  CHECK(b.grad().dtype() == DType::float64);
  CHECK(a.grad().to_vector<float>() == std::vector<float>{4, 5, 6});
  CHECK(b.grad().to_vector<double>() == std::vector<double>{1, 2, 3});
}

TEST_CASE("pointwise: gradients in float32 agree with those in float64") {
  for (const UnaryCase& test : kUnaryCases) {
    for (const int64_t size : {1, 15, 16, 17, 31, 33, 1000}) {
      Tensor x64 = copy_of(copy_of(input_for(test, {size}), MemoryFormat::contiguous, DType::float32),
                           MemoryFormat::contiguous, DType::float64);
      Tensor x32 = copy_of(x64, MemoryFormat::contiguous, DType::float32);
      x64.set_requires_grad();
      x32.set_requires_grad();
      sum(test.f(x64)).backward();
      sum(test.f(x32)).backward();
      CAPTURE(test.name);
      CAPTURE(size);
      // Relative to the largest gradient: rsqrt of 0.3 has slopes near 3, the others near 1.
      CHECK(max_difference(x32.grad(), x64.grad()) <= 2e-6 * (1 + max(abs(x64.grad())).item<double>()));
    }
  }
}

TEST_CASE("pointwise: saves for backward no more than it needs") {
  const Sizes sizes{10, 10};
  Tensor x = random_tensor(sizes, 1).set_requires_grad();
  Tensor w = random_tensor(sizes, 2).set_requires_grad();
  const Tensor constant = random_tensor(sizes, 3);
  const size_t one = 100 * sizeof(double);
  CHECK(saved_bytes(x + w) == 0);
  CHECK(saved_bytes(x - w) == 0);
  CHECK(saved_bytes(x * 2) == 0);
  CHECK(saved_bytes(-x) == 0);
  CHECK(saved_bytes(x * w) == 2 * one);
  CHECK(saved_bytes(x * constant) == one);
  CHECK(saved_bytes(constant * x) == one);
  CHECK(saved_bytes(x / constant) == one);
  CHECK(saved_bytes(constant / x) == 2 * one);
  CHECK(saved_bytes(relu(x)) == one);
  CHECK(saved_bytes(gelu(x)) == one);
  CHECK(saved_bytes(where(greater(constant, 0), x, w)) == 100);
}

TEST_CASE("relu: saves its result, so that the input may go or change") {
  Tensor x = random_tensor({4}, 1).set_requires_grad();
  Tensor shifted = x + 1.0;
  const Tensor y = relu(shifted);
  mul_(shifted, 3);
  CHECK_NOTHROW(sum(y).backward());
}
