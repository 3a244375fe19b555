#include "core/parallel.h"
#include "float_distance.h"
#include "ops/pointwise/pointwise.h"
#include "support.h"

#include <bit>
#include <limits>
#include <string>

using namespace norma;
using namespace norma::test;

namespace {

using Function = Tensor (*)(const Tensor& x);

struct Accuracy {
  std::string name;
  Function f;
  double (*reference)(double x);
  double units;  // allowed distance in units of the last place of the exact result
  double low = -std::numeric_limits<double>::infinity();
  double high = std::numeric_limits<double>::infinity();
  double units_on_cuda = 0;  // where they are more: CUDA has the functions of the compiler's library
};

double normal_distribution(double x) {
  return 0.5 * std::erfc(-x * 0.70710678118654752440);
}
double gelu_tanh(double x) {
  return x / (1 + std::exp(-2 * std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
}

const Accuracy kAccuracies[] = {
    {"exp", [](const Tensor& x) { return exp(x); }, [](double x) { return std::exp(x); }, 1.1,
     -std::numeric_limits<double>::infinity(), std::numeric_limits<double>::infinity(), 2},
    {"log", [](const Tensor& x) { return log(x); }, [](double x) { return std::log(x); }, 1},
    {"sqrt", [](const Tensor& x) { return sqrt(x); }, [](double x) { return std::sqrt(x); }, 0.5},
    {"rsqrt", [](const Tensor& x) { return rsqrt(x); }, [](double x) { return 1 / std::sqrt(x); }, 1.5},
    {"abs", [](const Tensor& x) { return abs(x); }, [](double x) { return std::fabs(x); }, 0},
    {"neg", [](const Tensor& x) { return neg(x); }, [](double x) { return -x; }, 0},
    {"relu", [](const Tensor& x) { return relu(x); }, [](double x) { return x <= 0 ? 0 : x; }, 0},
    {"clamp", [](const Tensor& x) { return clamp(x, -2, 3); },
     [](double x) { return std::isnan(x) ? x : std::fmin(std::fmax(x, -2), 3); }, 0},
    {"tanh", [](const Tensor& x) { return tanh(x); }, [](double x) { return std::tanh(x); }, 1.5,
     -std::numeric_limits<double>::infinity(), std::numeric_limits<double>::infinity(), 2},
    {"erf", [](const Tensor& x) { return erf(x); }, [](double x) { return std::erf(x); }, 1.5},
    {"sigmoid", [](const Tensor& x) { return sigmoid(x); }, [](double x) { return 1 / (1 + std::exp(-x)); }, 2.5, -88,
     std::numeric_limits<double>::infinity(), 3.5},
    {"silu", [](const Tensor& x) { return silu(x); }, [](double x) { return x / (1 + std::exp(-x)); }, 3, -88,
     std::numeric_limits<double>::infinity(), 3.5},
    {"gelu", [](const Tensor& x) { return gelu(x); }, [](double x) { return x * normal_distribution(x); }, 3.5, -1,
     std::numeric_limits<double>::infinity(), 4},
    // In the tail the rounding error of x^2 / 2 stands in the exponent.
    {"gelu, tail", [](const Tensor& x) { return gelu(x); }, [](double x) { return x * normal_distribution(x); }, 70,
     -12.5, -1, 200},
    {"gelu tanh", [](const Tensor& x) { return gelu(x, GeluApproximation::tanh); }, gelu_tanh, 8, -1},
    {"pow 2", [](const Tensor& x) { return pow(x, 2); }, [](double x) { return x * x; }, 0.5},
    {"pow 1.7", [](const Tensor& x) { return pow(x, 1.7); },
     [](double x) { return std::pow(x, static_cast<double>(1.7F)); }, 1},
};

/// Floats over the whole range: all exponents and both signs, and densely where the functions bend.
std::vector<float> arguments() {
  std::vector<float> values{0.0F,
                            -0.0F,
                            std::numeric_limits<float>::infinity(),
                            -std::numeric_limits<float>::infinity(),
                            std::numeric_limits<float>::quiet_NaN(),
                            std::numeric_limits<float>::denorm_min(),
                            -std::numeric_limits<float>::denorm_min(),
                            std::numeric_limits<float>::max(),
                            std::numeric_limits<float>::lowest()};
  for (uint64_t bits = 0; bits < (uint64_t{1} << 32); bits += 50021) {
    values.push_back(std::bit_cast<float>(static_cast<uint32_t>(bits)));
  }
  for (float x = -20; x < 20; x += 0.000317F) {
    values.push_back(x);
  }
  for (float x = -104; x < 89; x += 0.0131F) {
    values.push_back(x);
  }
  return values;
}

}  // namespace

TEST_CASE("pointwise: float32 functions against float64, from subnormal numbers to infinity and NaN") {
  const std::vector<float> in = arguments();
  const Tensor x = from_vector<float>(in, {static_cast<int64_t>(in.size())});
  for (const Accuracy& test : kAccuracies) {
    const std::vector<float> out = test.f(x).to_vector<float>();
    double worst = 0;
    float worst_at = 0;
    for (size_t i = 0; i < in.size(); ++i) {
      if (in[i] < test.low || in[i] > test.high) {
        continue;
      }
      const double d = float_distance(out[i], test.reference(in[i]));
      if (!(d <= worst)) {
        worst = d;
        worst_at = in[i];
      }
    }
    const bool on_cpu = x.device() == kCpu;
    CHECK_MESSAGE(worst <= (on_cpu ? test.units : std::max(test.units, test.units_on_cuda)),
                  test.name << ": " << worst << " units at " << worst_at);
  }
}

TEST_CASE("pointwise: NaN stays NaN, in float32 and float64, for any place in a vector") {
  for (const DType dtype : {DType::float32, DType::float64}) {
    for (const Accuracy& test : kAccuracies) {
      for (const int64_t at : {0, 7, 16, 32}) {
        Tensor x = full({33}, 0.75, {.dtype = dtype});
        fill_(alias(x, {}, {}, at), std::numeric_limits<double>::quiet_NaN());
        const std::vector<double> y = test.f(x).to_vector<double>();
        for (int64_t i = 0; i < 33; ++i) {
          CHECK_MESSAGE(std::isnan(y[static_cast<size_t>(i)]) == (i == at), test.name << ", element " << i);
        }
      }
    }
  }
}

TEST_CASE("pointwise: far negative numbers give the limits of sigmoid, silu and gelu") {
  const Tensor x = from_vector<float>({-100, -1e4F, -1e30F}, {3});
  CHECK(max_difference(sigmoid(x), zeros({3})) <= 1e-38);
  CHECK(max_difference(silu(x), zeros({3})) <= 1e-36);
  CHECK(max_difference(gelu(x), zeros({3})) == 0);
  CHECK(max_difference(gelu(x, GeluApproximation::tanh), zeros({3})) == 0);
}

// x = torch.tensor([-math.inf, math.inf], dtype=…)
// for f in (torch.exp, torch.sigmoid, torch.tanh, torch.erf, F.silu, F.gelu, lambda x: F.gelu(x, approximate='tanh'),
//           torch.relu, torch.abs, torch.log, torch.sqrt, torch.rsqrt): print(f(x))
// silu and both gelus of -inf are NaN there, too: -inf * 0. Its gelu of inf is NaN in float32 and inf in float64.
// (2.15)
TEST_CASE("pointwise: infinities give the limits that PyTorch has, in lanes and tails, every dtype") {
  struct Limits {
    std::string name;
    Function f;
    double below, above;
  };
  const double none = std::nan("");
  const std::vector<Limits> all = {
      {"exp", [](const Tensor& x) { return exp(x); }, 0, INFINITY},
      {"sigmoid", [](const Tensor& x) { return sigmoid(x); }, 0, 1},
      {"tanh", [](const Tensor& x) { return tanh(x); }, -1, 1},
      {"erf", [](const Tensor& x) { return erf(x); }, -1, 1},
      {"silu", [](const Tensor& x) { return silu(x); }, none, INFINITY},
      {"gelu", [](const Tensor& x) { return gelu(x); }, none, INFINITY},
      {"gelu, tanh", [](const Tensor& x) { return gelu(x, GeluApproximation::tanh); }, none, INFINITY},
      {"relu", [](const Tensor& x) { return relu(x); }, 0, INFINITY},
      {"abs", [](const Tensor& x) { return abs(x); }, INFINITY, INFINITY},
      {"log", [](const Tensor& x) { return log(x); }, none, INFINITY},
      {"sqrt", [](const Tensor& x) { return sqrt(x); }, none, INFINITY},
      {"rsqrt", [](const Tensor& x) { return rsqrt(x); }, none, 0},
  };
  const auto is = [](double got, double expected) { return std::isnan(expected) ? std::isnan(got) : got == expected; };
  for (const DType dtype : {DType::float32, DType::float64, DType::float16, DType::bfloat16}) {
    for (const int64_t size : {1, 7, 8, 15, 16, 17, 31, 32, 33, 100}) {
      for (const Limits& test : all) {
        CAPTURE(test.name);
        CAPTURE(to_string(dtype));
        CAPTURE(size);
        bool right = true;
        for (const double value : test.f(full({size}, -INFINITY, {.dtype = dtype})).to_vector<double>()) {
          right = right && is(value, test.below);
        }
        for (const double value : test.f(full({size}, INFINITY, {.dtype = dtype})).to_vector<double>()) {
          right = right && is(value, test.above);
        }
        CHECK(right);
      }
    }
  }
}

TEST_CASE("pointwise: odd functions keep the sign of zero") {
  const Tensor x = from_vector<float>({-0.0F, 0.0F}, {2});
  for (const Function f :
       {Function([](const Tensor& v) { return tanh(v); }), Function([](const Tensor& v) { return erf(v); })}) {
    const std::vector<float> y = f(x).to_vector<float>();
    CHECK(std::signbit(y[0]));
    CHECK_FALSE(std::signbit(y[1]));
  }
}

TEST_CASE("gelu: float32 gradients against float64 from -15 to 15") {
  std::vector<float> in;
  for (float x = -15; x < 15; x += 0.00731F) {
    in.push_back(x);
  }
  for (const GeluApproximation approximate : {GeluApproximation::none, GeluApproximation::tanh}) {
    Tensor x = from_vector<float>(in, {static_cast<int64_t>(in.size())});
    Tensor x64 = copy_of(x, MemoryFormat::contiguous, DType::float64).set_requires_grad();
    x.set_requires_grad();
    gelu(x, approximate).backward(ones_like(x));
    gelu(x64, approximate).backward(ones_like(x64));
    CHECK(max_difference(x.grad(), x64.grad()) <= 3e-7);
  }
}

TEST_CASE("silu and gelu: float32 second derivatives against float64 from -15 to 15") {
  std::vector<float> in{0, -0.0F, 5, -5};
  for (float x = -15; x < 15; x += 0.00731F) {
    in.push_back(x);
  }
  const std::vector<std::pair<std::string, Function>> functions = {
      {"silu", [](const Tensor& x) { return silu(x); }},
      {"gelu", [](const Tensor& x) { return gelu(x); }},
      {"gelu, tanh", [](const Tensor& x) { return gelu(x, GeluApproximation::tanh); }},
  };
  for (const auto& [name, f] : functions) {
    const auto derivative = [&f = f](const Tensor& x, int order) {
      Tensor y = f(x);
      for (int i = 0; i < order; ++i) {
        y = grad({y}, {x}, {ones_like(y)}, {.create_graph = true})[0];
      }
      return y.detach();
    };
    Tensor x = from_vector<float>(in, {static_cast<int64_t>(in.size())});
    Tensor x64 = copy_of(x, MemoryFormat::contiguous, DType::float64).set_requires_grad();
    x.set_requires_grad();
    CAPTURE(name);
    CHECK(max_difference(derivative(x, 1), derivative(x64, 1)) <= 4e-7);
    CHECK(max_difference(derivative(x, 2), derivative(x64, 2)) <= 8e-7);
  }
}

TEST_CASE("pointwise: the same bits for any number of threads and any place in memory") {
  const Tensor x = random_tensor({100'003}, 3, DType::float32);
  const int threads = num_threads();
  for (const Accuracy& test : kAccuracies) {
    set_num_threads(1);
    const std::vector<float> one = test.f(x).to_vector<float>();
    const std::vector<float> shifted = test.f(alias(x, {99'998}, {1}, 5)).to_vector<float>();
    const std::vector<float> gaps = test.f(alias(x, {33'334}, {3}, 0)).to_vector<float>();
    set_num_threads(3);
    const std::vector<float> three = test.f(x).to_vector<float>();
    set_num_threads(threads);
    CAPTURE(test.name);
    size_t different = 0;
    const auto count = [&](float a, float b) { different += std::bit_cast<uint32_t>(a) != std::bit_cast<uint32_t>(b); };
    for (size_t i = 0; i < one.size(); ++i) {
      count(one[i], three[i]);
    }
    for (size_t i = 0; i < shifted.size(); ++i) {
      count(one[i + 5], shifted[i]);
    }
    for (size_t i = 0; i < gaps.size(); ++i) {
      count(one[i * 3], gaps[i]);
    }
    CHECK(different == 0);
  }
}
