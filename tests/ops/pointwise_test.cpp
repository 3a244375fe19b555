#include "ops/pointwise/pointwise.h"

#include "cuda_devices.h"
#include "error_text.h"
#include "ops/pointwise/kernels.h"
#include "ops/shape/copy.h"
#include "ops/shape/view.h"

#include <limits>
#include <string>

using namespace norma;
using namespace norma::test;

namespace {

template <class T>
Tensor row(const std::vector<T>& values) {
  return from_vector<T>(values, {static_cast<int64_t>(values.size())});
}
Tensor mask(const std::vector<uint8_t>& values) {
  return to(row(values), DType::boolean);
}

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
constexpr double kInfinity = std::numeric_limits<double>::infinity();

struct UnaryCase {
  std::string name;
  Tensor (*f)(const Tensor& x);
  double (*expected)(double x);
};

const UnaryCase kUnaryCases[] = {
    {"neg", [](const Tensor& x) { return neg(x); }, [](double x) { return -x; }},
    {"exp", [](const Tensor& x) { return exp(x); }, [](double x) { return std::exp(x); }},
    {"log", [](const Tensor& x) { return log(x); }, [](double x) { return std::log(x); }},
    {"sqrt", [](const Tensor& x) { return sqrt(x); }, [](double x) { return std::sqrt(x); }},
    {"rsqrt", [](const Tensor& x) { return rsqrt(x); }, [](double x) { return 1 / std::sqrt(x); }},
    {"pow 3", [](const Tensor& x) { return pow(x, 3); }, [](double x) { return x * x * x; }},
    {"pow -1", [](const Tensor& x) { return pow(x, -1); }, [](double x) { return 1 / x; }},
    {"pow 0.5", [](const Tensor& x) { return pow(x, 0.5); }, [](double x) { return std::sqrt(x); }},
    {"pow -0.5", [](const Tensor& x) { return pow(x, -0.5); }, [](double x) { return 1 / std::sqrt(x); }},
    {"pow 2.3", [](const Tensor& x) { return pow(x, 2.3); }, [](double x) { return std::pow(x, 2.3); }},
    {"abs", [](const Tensor& x) { return abs(x); }, [](double x) { return std::abs(x); }},
    {"tanh", [](const Tensor& x) { return tanh(x); }, [](double x) { return std::tanh(x); }},
    {"sigmoid", [](const Tensor& x) { return sigmoid(x); }, [](double x) { return 1 / (1 + std::exp(-x)); }},
    {"erf", [](const Tensor& x) { return erf(x); }, [](double x) { return std::erf(x); }},
    {"relu", [](const Tensor& x) { return relu(x); }, [](double x) { return std::max(x, 0.0); }},
    {"silu", [](const Tensor& x) { return silu(x); }, [](double x) { return x / (1 + std::exp(-x)); }},
    {"gelu", [](const Tensor& x) { return gelu(x); }, [](double x) { return x * (1 + std::erf(x / M_SQRT2)) / 2; }},
    {"gelu tanh", [](const Tensor& x) { return gelu(x, GeluApproximation::tanh); },
     [](double x) { return x * (1 + std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x))) / 2; }},
    {"clamp", [](const Tensor& x) { return clamp(x, 0.5, 1.25); },
     [](double x) { return std::min(std::max(x, 0.5), 1.25); }},
};

struct BinaryCase {
  std::string name;
  Tensor (*f)(const Tensor& a, const Tensor& b);
  double (*expected)(double a, double b);
};

const BinaryCase kBinaryCases[] = {
    {"add", add, [](double a, double b) { return a + b; }},
    {"sub", sub, [](double a, double b) { return a - b; }},
    {"mul", mul, [](double a, double b) { return a * b; }},
    {"div", div, [](double a, double b) { return a / b; }},
    {"maximum", maximum, [](double a, double b) { return std::max(a, b); }},
    {"equal", [](const Tensor& a, const Tensor& b) { return equal(a, b); },
     [](double a, double b) { return double(a == b); }},
    {"greater", [](const Tensor& a, const Tensor& b) { return greater(a, b); },
     [](double a, double b) { return double(a > b); }},
};

/// Positive numbers for which log and sqrt have values.
Tensor positive(const Sizes& sizes, DType dtype) {
  Tensor x = random_tensor(sizes, 11, dtype);
  return abs(x) + 0.125;
}

/// Element `index` (row-major in `target`) of x seen as broadcast to `target`; the plain meaning of broadcasting.
double broadcast_element(const std::vector<double>& values, const Sizes& sizes, const Sizes& target, int64_t index) {
  int64_t offset = 0;
  int64_t step = 1;
  for (int64_t back = 1; back <= target.size(); ++back) {
    const int64_t coordinate = index % target[target.size() - back];
    index /= target[target.size() - back];
    if (back <= sizes.size()) {
      const int64_t size = sizes[sizes.size() - back];
      offset += (size == 1 ? 0 : coordinate) * step;
      step *= size;
    }
  }
  return values[static_cast<size_t>(offset)];
}

}  // namespace

TEST_CASE(
    "pointwise: functions of one tensor against the standard library, every layout, sizes around the vector width") {
  for (const DType dtype : {DType::float32, DType::float64}) {
    const double tolerance = dtype == DType::float32 ? 1e-6 : 1e-14;
    for (const Sizes& sizes :
         {Sizes{1}, Sizes{31}, Sizes{32}, Sizes{33}, Sizes{2, 3, 5, 7}, Sizes{3, 40, 5}, Sizes{}}) {
      for (const Layout layout : kLayouts) {
        const Tensor x = in_layout(positive(sizes, dtype), layout);
        const std::vector<double> in = x.to_vector<double>();
        for (const UnaryCase& test : kUnaryCases) {
          const Tensor y = test.f(x);
          CHECK(y.dtype() == dtype);
          REQUIRE(y.sizes() == sizes);
          const std::vector<double> out = y.to_vector<double>();
          double worst = 0;
          for (size_t i = 0; i < in.size(); ++i) {
            const double expected = test.expected(in[i]);
            worst = std::max(worst, std::abs(out[i] - expected) / (1 + std::abs(expected)));
            CHECK_FALSE(std::isnan(out[i]));
          }
          CHECK_MESSAGE(worst <= tolerance, test.name << ", " << to_string(sizes) << ", " << to_string(layout));
        }
      }
    }
  }
}

TEST_CASE("pointwise: functions of two tensors against plain loops, broadcast in every position and layout") {
  const std::pair<Sizes, Sizes> pairs[] = {{{2, 3, 5, 7}, {2, 3, 5, 7}},
                                           {{2, 3, 5, 7}, {1, 3, 1, 1}},
                                           {{1, 3, 1, 1}, {2, 3, 5, 7}},
                                           {{2, 3, 5, 7}, {7}},
                                           {{2, 1, 1, 1}, {2, 3, 5, 7}},
                                           {{2, 3, 5, 7}, {}},
                                           {{}, {2, 3, 5, 7}},
                                           {{2, 3, 1, 7}, {5, 1}},
                                           {{3, 1, 7}, {2, 1, 5, 1}},
                                           {{33}, {33}},
                                           {{4, 33}, {1}},
                                           {{}, {}},
                                           {{2, 3, 5, 7}, {2, 3, 1, 1}},
                                           {{0, 3}, {1, 3}},
                                           {{2, 40, 3, 3}, {1, 40, 1, 1}}};
  for (const DType dtype : {DType::float32, DType::float64, DType::int64, DType::int32}) {
    for (const auto& [a_sizes, b_sizes] : pairs) {
      const Sizes sizes = broadcast_sizes("test", a_sizes, b_sizes);
      // Whole numbers from -6 to 6: every dtype holds them and their results, and some are equal.
      const auto values = [&](const Sizes& s, uint64_t seed) {
        Generator generator(seed);
        return to(randint(1, 7, s, {}, generator), dtype);
      };
      for (const Layout layout : kLayouts) {
        for (const Layout other : kLayouts) {
          const Tensor a = in_layout(values(a_sizes, 1), layout);
          const Tensor b = in_layout(values(b_sizes, 2), other);
          const std::vector<double> va = a.to_vector<double>();
          const std::vector<double> vb = b.to_vector<double>();
          for (const BinaryCase& test : kBinaryCases) {
            if (test.name == "div" && !is_floating(dtype)) {
              continue;
            }
            const Tensor y = test.f(a, b);
            CHECK(y.dtype() == (test.name == "equal" || test.name == "greater" ? DType::boolean : dtype));
            REQUIRE(y.sizes() == sizes);
            const std::vector<double> out = y.to_vector<double>();
            double worst = 0;
            for (int64_t i = 0; i < sizes.numel(); ++i) {
              const double expected =
                  test.expected(broadcast_element(va, a_sizes, sizes, i), broadcast_element(vb, b_sizes, sizes, i));
              worst = std::max(worst, std::abs(out[static_cast<size_t>(i)] - expected));
              CHECK_FALSE(std::isnan(out[static_cast<size_t>(i)]));  // max() leaves it out
            }
            CHECK_MESSAGE(worst <= (dtype == DType::float32 ? 1e-6 : 0.0),
                          test.name << " " << to_string(a_sizes) << " " << to_string(layout) << ", "
                                    << to_string(b_sizes) << " " << to_string(other));
          }
        }
      }
    }
  }
}

TEST_CASE("where: picks element by element, every layout, broadcast, any dtype") {
  for (const DType dtype :
       {DType::float32, DType::float64, DType::float16, DType::int64, DType::int32, DType::uint8, DType::boolean}) {
    for (const Layout layout : kLayouts) {
      const Tensor condition = greater(in_layout(random_tensor({2, 3, 5, 1}, 1), layout), 0);
      Generator generator(2);
      const Tensor a = in_layout(to(randint(0, 2, {2, 3, 5, 33}, {}, generator), dtype), layout);
      const Tensor b = in_layout(to(randint(0, 2, {3, 1, 33}, {}, generator), dtype), layout);
      const Tensor y = where(condition, a, b);
      CHECK(y.dtype() == dtype);
      const std::vector<double> vc = condition.to_vector<double>();
      const std::vector<double> va = a.to_vector<double>();
      const std::vector<double> vb = b.to_vector<double>();
      const std::vector<double> out = y.to_vector<double>();
      size_t wrong = 0;
      for (int64_t i = 0; i < y.numel(); ++i) {
        const double c = broadcast_element(vc, condition.sizes(), y.sizes(), i);
        wrong += out[static_cast<size_t>(i)] !=
                 broadcast_element(c != 0 ? va : vb, c != 0 ? a.sizes() : b.sizes(), y.sizes(), i);
      }
      CHECK(wrong == 0);
    }
  }
}

TEST_CASE("pointwise: a number as second operand") {
  const Tensor x = row<float>({1, 2, 4});
  CHECK((x + 0.5).to_vector<float>() == std::vector<float>{1.5F, 2.5F, 4.5F});
  CHECK((x - 0.5).to_vector<float>() == std::vector<float>{0.5F, 1.5F, 3.5F});
  CHECK((x * -2).to_vector<float>() == std::vector<float>{-2, -4, -8});
  CHECK((x / 2).to_vector<float>() == std::vector<float>{0.5F, 1, 2});
  CHECK((0.5 + x).to_vector<float>() == std::vector<float>{1.5F, 2.5F, 4.5F});
  CHECK((1 - x).to_vector<float>() == std::vector<float>{0, -1, -3});
  CHECK((3.0 * x).to_vector<float>() == std::vector<float>{3, 6, 12});
  CHECK((2 / x).to_vector<float>() == std::vector<float>{2, 1, 0.5F});
  CHECK((-x).to_vector<float>() == std::vector<float>{-1, -2, -4});
  CHECK(greater(x, 1.5).to_vector<int>() == std::vector<int>{0, 1, 1});
}

TEST_CASE("maximum: NaN on either side gives NaN") {
  const Tensor a = row<double>({kNaN, 1, kNaN, -kInfinity, 2});
  const Tensor b = row<double>({1, kNaN, kNaN, 3, kInfinity});
  for (const DType dtype : {DType::float32, DType::float64}) {
    const std::vector<double> y = maximum(to(a, dtype), to(b, dtype)).to_vector<double>();
    CHECK(std::isnan(y[0]));
    CHECK(std::isnan(y[1]));
    CHECK(std::isnan(y[2]));
    CHECK(y[3] == 3);
    CHECK(y[4] == kInfinity);
  }
}

TEST_CASE("pointwise: comparisons, where NaN is unequal to all") {
  const Tensor a = row<double>({1, 2, 3, kNaN, 1, kNaN});
  const Tensor b = row<double>({2, 2, 2, 1, kNaN, kNaN});
  const auto ints = [](const Tensor& y) { return y.to_vector<int>(); };
  CHECK(ints(equal(a, b)) == std::vector<int>{0, 1, 0, 0, 0, 0});
  CHECK(ints(not_equal(a, b)) == std::vector<int>{1, 0, 1, 1, 1, 1});
  CHECK(ints(greater(a, b)) == std::vector<int>{0, 0, 1, 0, 0, 0});
  CHECK(ints(greater_equal(a, b)) == std::vector<int>{0, 1, 1, 0, 0, 0});
  CHECK(ints(less(a, b)) == std::vector<int>{1, 0, 0, 0, 0, 0});
  CHECK(ints(less_equal(a, b)) == std::vector<int>{1, 1, 0, 0, 0, 0});
  CHECK(ints(equal(a, 2)) == std::vector<int>{0, 1, 0, 0, 0, 0});
  CHECK(ints(not_equal(a, 2)) == std::vector<int>{1, 0, 1, 1, 1, 1});
  CHECK(ints(greater(a, 2)) == std::vector<int>{0, 0, 1, 0, 0, 0});
  CHECK(ints(greater_equal(a, 2)) == std::vector<int>{0, 1, 1, 0, 0, 0});
  CHECK(ints(less(a, 2)) == std::vector<int>{1, 0, 0, 0, 1, 0});
  CHECK(ints(less_equal(a, 2)) == std::vector<int>{1, 1, 0, 0, 1, 0});
}

TEST_CASE("pointwise: comparisons of bool, uint8 and integers with fractions") {
  CHECK(equal(mask({0, 1, 1}), mask({0, 0, 1})).to_vector<int>() == std::vector<int>{1, 0, 1});
  CHECK(greater(row<uint8_t>({200, 3}), row<uint8_t>({100, 100})).to_vector<int>() == std::vector<int>{1, 0});
  CHECK(greater(row<int64_t>({2, 3}), 2.5).to_vector<int>() == std::vector<int>{0, 1});
  CHECK(less_equal(row<int64_t>({2, 3}), 2.5).to_vector<int>() == std::vector<int>{1, 0});
  CHECK(equal(row<int64_t>({2, 3}), 2.5).to_vector<int>() == std::vector<int>{0, 0});
  CHECK(error_of([] { less_equal(Tensor(), 2); }) == "less_equal: a: expected a tensor, got none");
  CHECK_FALSE(greater(row<float>({1}), 0).requires_grad());
}

TEST_CASE("clamp: open ends, crossed bounds, integers") {
  CHECK(clamp(row<float>({-5, 0, 5}), -kInfinity, 1).to_vector<float>() == std::vector<float>{-5, 0, 1});
  // torch.tensor([-5., 0., 5.]).clamp(2, 1) → [1, 1, 1]
  CHECK(clamp(row<float>({-5, 0, 5}), 2, 1).to_vector<float>() == std::vector<float>{1, 1, 1});
  CHECK(clamp(row<int64_t>({-5, 0, 5}), -1, kInfinity).to_vector<int64_t>() == std::vector<int64_t>{-1, 0, 5});
  CHECK(clamp(row<int32_t>({-5, 0, 5}), -1e300, 3).to_vector<int32_t>() == std::vector<int32_t>{-5, 0, 3});
}

TEST_CASE("pointwise: integers stay integers and wrap around") {
  constexpr int64_t kMost = std::numeric_limits<int64_t>::max();
  constexpr int64_t kLeast = std::numeric_limits<int64_t>::min();
  const Tensor x = row<int64_t>({7, kMost, kLeast});
  CHECK((x + 1).to_vector<int64_t>() == std::vector<int64_t>{8, kLeast, kLeast + 1});
  CHECK((-x).to_vector<int64_t>() == std::vector<int64_t>{-7, -kMost, kLeast});
  CHECK(abs(x).to_vector<int64_t>() == std::vector<int64_t>{7, kMost, kLeast});
  CHECK((x * 2).to_vector<int64_t>() == std::vector<int64_t>{14, -2, 0});
  const Tensor small = row<int32_t>({2'000'000'000, -3});
  CHECK((small + small).to_vector<int32_t>() == std::vector<int32_t>{-294967296, -6});
  CHECK(abs(small).to_vector<int32_t>() == std::vector<int32_t>{2'000'000'000, 3});
}

// Each row is (torch.zeros(3, dtype=a) + torch.zeros(3, dtype=b)).dtype.
TEST_CASE("pointwise: dtype of the result of two tensors") {
  struct Row {
    DType a, b, result;
  };
  const Row rows[] = {
      {DType::float32, DType::float64, DType::float64}, {DType::float32, DType::int64, DType::float32},
      {DType::int32, DType::int64, DType::int64},       {DType::uint8, DType::int32, DType::int32},
      {DType::boolean, DType::int64, DType::int64},     {DType::boolean, DType::float32, DType::float32},
      {DType::float16, DType::float32, DType::float32}, {DType::bfloat16, DType::float64, DType::float64},
      {DType::float16, DType::bfloat16, DType::float32}};
  for (const Row& r : rows) {
    CAPTURE(to_string(r.a));
    CAPTURE(to_string(r.b));
    CHECK(add(ones({3}, {.dtype = r.a}), ones({3}, {.dtype = r.b})).dtype() == r.result);
    CHECK(add(ones({3}, {.dtype = r.b}), ones({3}, {.dtype = r.a})).dtype() == r.result);
    CHECK(max_difference(add(ones({3}, {.dtype = r.a}), ones({3}, {.dtype = r.b})), full({3}, 2)) == 0);
  }
}

// (torch.zeros(3, dtype=a) + torch.tensor(0, dtype=b)).dtype
TEST_CASE("pointwise: a tensor of rank 0 widens another only to a higher kind") {
  struct Row {
    DType a, b, result;
  };
  const Row rows[] = {
      {DType::float32, DType::float64, DType::float32}, {DType::float64, DType::float32, DType::float64},
      {DType::int32, DType::int64, DType::int32},       {DType::int32, DType::float32, DType::float32},
      {DType::int64, DType::float64, DType::float64},   {DType::float32, DType::int64, DType::float32},
      {DType::int64, DType::boolean, DType::int64}};
  for (const Row& r : rows) {
    CAPTURE(to_string(r.a));
    CAPTURE(to_string(r.b));
    CHECK((ones({3}, {.dtype = r.a}) + scalar(1, r.b)).dtype() == r.result);
    CHECK((scalar(1, r.b) + ones({3}, {.dtype = r.a})).dtype() == r.result);
  }
  CHECK((scalar(1, DType::float32) + scalar(1, DType::float64)).dtype() == DType::float64);
}

TEST_CASE("pointwise: error texts") {
  const Tensor x = zeros({2, 3});
  const Tensor whole = zeros({2, 3}, {.dtype = DType::int64});
  const Tensor flags = zeros({2, 3}, {.dtype = DType::boolean});
  CHECK(error_of([&] { add(x, Tensor()); }) == "add: b: expected a tensor, got none");
  CHECK(error_of([&] { relu(Tensor()); }) == "relu: x: expected a tensor, got none");
  CHECK(error_of([&] { mul(x, zeros({4})); }).starts_with("mul: "));
  CHECK(error_of([&] { add(flags, flags); }) ==
        "add: expected dtype float32, float64, bfloat16, float16, int64 or int32, got bool");
  CHECK(error_of([&] { div(whole, whole); }) == "div: expected dtype float32, float64, bfloat16 or float16, got int64");
  CHECK(error_of([&] { gelu(whole); }) == "gelu: expected dtype float32, float64, bfloat16 or float16, got int64");
  CHECK(error_of([&] { exp(whole); }) == "exp: expected dtype float32, float64, bfloat16 or float16, got int64");
  CHECK(error_of([&] { abs(flags); }) ==
        "abs: expected dtype float32, float64, bfloat16, float16, int64 or int32, got bool");
  CHECK(error_of([&] { add(whole, 0.5); }) == "add: b: expected a whole number that fits into int64, got 0.5");
  CHECK(error_of([&] { mul(zeros({1}, {.dtype = DType::int32}), 1e10); }) ==
        "mul: b: expected a whole number that fits into int32, got 10000000000");
  CHECK(error_of([&] { where(x, x, x); }) == "where: condition: expected dtype bool, got float32");
}

TEST_CASE("pointwise: sizes that do not broadcast name both") {
  const std::string text = error_of([] { add(zeros({2, 3}), zeros({4})); });
  CHECK(text.find("[2, 3]") != std::string::npos);
  CHECK(text.find("[4]") != std::string::npos);
}

TEST_CASE("pointwise: a build without CUDA says so") {
  const std::string refused = error_of([] { kernels::pointwise_kernels.at("relu", {DeviceType::cuda, 0}); });
  CHECK_MESSAGE(test::is_refusal_of_cuda(refused, "relu"), refused);
}
