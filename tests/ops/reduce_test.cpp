#include "ops/reduce/reduce.h"

#include "core/anomaly.h"
#include "core/factory.h"
#include "core/parallel.h"
#include "core/tape.h"
#include "error_text.h"
#include "ops/pointwise/pointwise.h"
#include "ops/shape/copy.h"
#include "ops/shape/join.h"
#include "ops/shape/view.h"
#include "tests/support.h"

#include <algorithm>
#include <functional>
#include <limits>
#include <numeric>

using namespace norma;
using namespace norma::test;

namespace {

constexpr MemoryFormat kChannelsLast = MemoryFormat::channels_last;
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kInfinity = std::numeric_limits<double>::infinity();

/// The elements that go into each output, outputs in row-major order, by plain loops over x's values.
std::vector<std::vector<double>> grouped(const Tensor& x, const Axes& axes) {
  const std::vector<double> values = x.to_vector<double>();
  int64_t outputs = 1;
  for (int64_t axis = 0; axis < x.rank(); ++axis) {
    outputs *= axes.contains(axis) ? 1 : x.size(axis);
  }
  std::vector<std::vector<double>> groups(static_cast<size_t>(outputs));
  for (int64_t i = 0; i < x.numel(); ++i) {
    int64_t output = 0;
    int64_t below = x.numel();
    int64_t rest = i;
    for (int64_t axis = 0; axis < x.rank(); ++axis) {
      below /= x.size(axis);
      output = axes.contains(axis) ? output : output * x.size(axis) + rest / below;
      rest %= below;
    }
    groups[static_cast<size_t>(output)].push_back(values[static_cast<size_t>(i)]);
  }
  return groups;
}

using GroupFunction = double (*)(const std::vector<double>&);

double plain_sum(const std::vector<double>& group) {
  long double sum = 0;
  for (const double value : group) {
    sum += value;
  }
  return static_cast<double>(sum);
}
double plain_mean(const std::vector<double>& group) {
  return plain_sum(group) / static_cast<double>(group.size());
}
double plain_variance(const std::vector<double>& group) {
  const double mean = plain_mean(group);
  long double sum = 0;
  for (const double value : group) {
    sum += static_cast<long double>(value - mean) * (value - mean);
  }
  return static_cast<double>(sum / static_cast<long double>(group.size() - 1));
}
double plain_max(const std::vector<double>& group) {
  return *std::max_element(group.begin(), group.end());
}

/// Every subset of four axes; the empty one is left out, since it means all.
std::vector<Axes> subsets_of_four() {
  std::vector<Axes> subsets;
  for (int bits = 1; bits < 16; ++bits) {
    Axes axes;
    for (int64_t axis = 0; axis < 4; ++axis) {
      if ((bits >> axis) & 1) {
        axes.push_back(axis);
      }
    }
    subsets.push_back(axes);
  }
  return subsets;
}

double worst_difference(const Tensor& y, const std::vector<std::vector<double>>& groups, GroupFunction f) {
  std::vector<double> expected;
  for (const auto& group : groups) {
    expected.push_back(f(group));
  }
  return max_difference(y, from_vector(expected, y.sizes()));
}

Sizes kept_sizes(const Tensor& x, const Axes& axes) {
  Sizes sizes = x.sizes();
  for (const int64_t axis : axes) {
    sizes[axis] = 1;
  }
  return sizes;
}

}  // namespace

TEST_CASE("sum, mean, var, max: every set of axes against plain loops, every layout") {
  // Sizes around the vector width, 1 among them; the last ones are cut into several tasks.
  const std::vector<Sizes> shapes = {{2, 3, 4, 5}, {3, 31, 2, 33}, {2, 1, 32, 3}, {1, 65, 1, 7}, {2, 3, 110, 131}};
  for (const DType dtype : {DType::float64, DType::float32}) {
    for (const Sizes& sizes : shapes) {
      const Tensor x = random_tensor(sizes, 7, dtype);
      const bool large = x.numel() > 10000;  // what does not depend on the size is left to the small shapes
      if (large && dtype == DType::float64) {
        continue;
      }
      // float32: one rounding of the result (sums reach about 1000); float64: rounding of the sums.
      const double tolerance = dtype == DType::float64 ? 1e-10 : 1e-4;
      for (const Axes& axes : subsets_of_four()) {
        const auto groups = grouped(x, axes);
        for (const Layout layout : kLayouts) {
          CAPTURE(to_string(sizes));
          CAPTURE(to_string(axes));
          CAPTURE(to_string(layout));
          const Tensor in = in_layout(x, layout);
          for (const bool keepdim : {false, true}) {
            if (keepdim && large) {
              continue;
            }
            CHECK(worst_difference(sum(in, axes, {.keepdim = keepdim}), groups, plain_sum) <= tolerance);
            CHECK(worst_difference(mean(in, axes, {.keepdim = keepdim}), groups, plain_mean) <= tolerance);
            CHECK(worst_difference(max(in, axes, {.keepdim = keepdim}), groups, plain_max) == 0);
            if (groups[0].size() > 1) {
              CHECK(worst_difference(var(in, axes, {.keepdim = keepdim}), groups, plain_variance) <= tolerance);
            }
          }
          CHECK(sum(in, axes, {.keepdim = true}).sizes() == kept_sizes(x, axes));
          CHECK(sum(in, axes).rank() == 4 - axes.size());
        }
      }
    }
  }
}

TEST_CASE("reductions: no axes means all of them, negative axes count from the end") {
  const Tensor x = random_tensor({2, 3, 4}, 1);
  CHECK(sum(x).rank() == 0);
  CHECK(sum(x, {}, {.keepdim = true}).sizes() == Sizes{1, 1, 1});
  CHECK(max_difference(sum(x, {-1, 0}), sum(x, {0, 2})) == 0);
  CHECK(max_difference(mean(x, {-3}), mean(x, {0})) == 0);
  CHECK(sum(scalar(3)).item<float>() == 3);
  CHECK(max(scalar(3)).item<float>() == 3);
}

TEST_CASE("reductions: keepdim keeps channels_last, also in the strides of axes of size 1") {
  const Tensor l = copy_of(random_tensor({2, 3, 4, 5}, 1), kChannelsLast);
  for (const Tensor& y : {sum(l, {2, 3}, {.keepdim = true}), mean(l, {2, 3}, {.keepdim = true}),
                          var(l, {2, 3}, {.keepdim = true}), max(l, {2, 3}, {.keepdim = true})}) {
    CHECK(y.strides() == Strides{3, 1, 3, 3});
    CHECK(y.suggest_memory_format() == kChannelsLast);
  }
  CHECK(mean(l, {3}, {.keepdim = true}).strides() == Strides{12, 1, 3, 3});
  CHECK(mean(contiguous_copy(l), {2, 3}, {.keepdim = true}).strides() == Strides{3, 1, 1, 1});
  CHECK(mean(l, {2, 3}).strides() == Strides{3, 1});
  CHECK(argmax(l, 2, {.keepdim = true}).suggest_memory_format() == kChannelsLast);
}

TEST_CASE("reductions: overlapping (expanded) and permuted inputs") {
  const Tensor x = expand(random_tensor({1, 3, 1}, 1), {40, 3, 50});
  const Tensor dense = contiguous_copy(x);
  for (const Axes& axes : {Axes{0}, Axes{1}, Axes{2}, Axes{0, 2}, Axes{0, 1, 2}}) {
    CAPTURE(to_string(axes));
    CHECK(max_difference(sum(x, axes), sum(dense, axes)) <= 1e-10);  // other orders of 6000 additions
    CHECK(max_difference(max(x, axes), max(dense, axes)) == 0);
  }
  const Tensor p = permute(random_tensor({5, 6, 7}, 2), {1, 2, 0});
  CHECK(max_difference(sum(p, {1}), sum(contiguous_copy(p), {1})) <= 1e-13);
}

TEST_CASE("reductions: the same bits for any number of threads, every walk") {
  struct Case {
    Sizes sizes;
    Axes axes;
    MemoryFormat format;
  };
  const std::vector<Case> cases = {{{16, 40, 33, 31}, {0, 2, 3}, MemoryFormat::contiguous},
                                   {{16, 40, 33, 31}, {0, 2, 3}, kChannelsLast},
                                   {{3, 700, 31, 33}, {0, 2, 3}, kChannelsLast},
                                   {{4, 30, 64, 65}, {0, 1, 2, 3}, MemoryFormat::contiguous},
                                   {{4, 30, 64, 65}, {3}, MemoryFormat::contiguous},
                                   {{4, 30, 64, 65}, {1}, kChannelsLast},
                                   {{4, 30, 64, 65}, {1}, MemoryFormat::contiguous},
                                   {{1, 2, 300, 401}, {2, 3}, kChannelsLast}};
  const int before = num_threads();
  for (const DType dtype : {DType::float32, DType::float64}) {
    for (const Case& c : cases) {
      const Tensor x = copy_of(random_tensor(c.sizes, 5, dtype), c.format);
      std::vector<std::vector<double>> sums;
      std::vector<std::vector<double>> variances;
      for (const int threads : {1, 2, 3}) {
        set_num_threads(threads);
        sums.push_back(sum(x, c.axes).to_vector<double>());
        variances.push_back(var(x, c.axes).to_vector<double>());
      }
      CAPTURE(to_string(c.sizes));
      CAPTURE(to_string(c.axes));
      CHECK(sums[0] == sums[1]);
      CHECK(sums[0] == sums[2]);
      CHECK(variances[0] == variances[1]);
      CHECK(variances[0] == variances[2]);
    }
  }
  set_num_threads(before);
}

TEST_CASE("reductions: lengths and widths around the vector width, every dtype, rows, columns and strides") {
  for (const DType dtype : {DType::float32, DType::float64, DType::bfloat16, DType::float16, DType::int64}) {
    for (const int64_t length : {1, 7, 8, 9, 15, 16, 17, 31, 33, 63, 65, 129, 600}) {
      std::vector<double> values;
      for (int64_t i = 0; i < 2 * length; ++i) {
        values.push_back(i % 29 == 3 ? -2 : static_cast<double>(1 - i % 2));  // all of the result is exact
      }
      const Tensor rows = copy_of(from_vector(values, {2, length}), MemoryFormat::contiguous, dtype);
      const Tensor columns = copy_of(transpose(rows, 0, 1), MemoryFormat::contiguous, dtype);
      const Tensor spread = narrow(stack({rows, rows}, 2), 2, 1, 1);  // neighbours lie 2 elements apart
      for (int64_t row = 0; row < 2; ++row) {
        CAPTURE(to_string(dtype));
        CAPTURE(length);
        const auto begin = values.begin() + row * length;
        const auto end = begin + length;
        const double total = std::accumulate(begin, end, 0.0);
        const double largest = *std::max_element(begin, end);
        const auto same = [&](const Tensor& y, double expected) {
          return y.to_vector<double>()[static_cast<size_t>(row)] == expected;
        };
        for (const Tensor& x : {rows, squeeze(spread, 2)}) {
          CHECK(same(sum(x, {1}), total));
          CHECK(same(max(x, {1}), largest));
          CHECK(same(prod(sub(mul(x, 0), -1), {1}), 1));
        }
        CHECK(same(sum(columns, {0}), total));
        CHECK(same(max(columns, {0}), largest));
      }
      // As many columns as there were elements.
      const std::vector<double> sums = sum(rows, {0}).to_vector<double>();
      const std::vector<double> maxima = max(rows, {0}).to_vector<double>();
      int64_t wrong = 0;
      for (size_t i = 0; i < sums.size(); ++i) {
        const double other = values[i + static_cast<size_t>(length)];
        wrong += sums[i] == values[i] + other && maxima[i] == std::max(values[i], other) ? 0 : 1;
      }
      CHECK(wrong == 0);
    }
  }
}

TEST_CASE("prod and max of int64: wrap around, and negative numbers alone") {
  const std::vector<int64_t> values{3, -5, int64_t{1} << 62, 7, -9, 11, 13, 3, 5};
  int64_t product = 1;
  for (const int64_t value : values) {
    product = static_cast<int64_t>(static_cast<uint64_t>(product) * static_cast<uint64_t>(value));
  }
  CHECK(prod(from_vector(values, {9})).to_vector<int64_t>()[0] == product);
  CHECK(max(from_vector<int64_t>({-7, -5, -6, -8, -9, -10, -11, -12, -13}, {9})).to_vector<int64_t>()[0] == -5);
}

TEST_CASE("sum: float32 is carried in float64") {
  // In float32, adding 1 to 2^24 changes nothing.
  const Tensor x = ones({1 << 21, 2});
  set_element(x, 0, 16777216.0F);
  const double expected = 16777216 + 2097151 + 1;  // the odd sum is rounded to a multiple of 2
  CHECK(sum(x, {0}).to_vector<double>()[0] == expected);
  CHECK(sum(contiguous_copy(transpose(x, 0, 1)), {1}).to_vector<double>()[0] == expected);
}

TEST_CASE("var: keeps its digits at a large mean") {
  const Tensor x = random_tensor({33, 1000}, 3);
  const Tensor shifted = add(x, 1e8);
  const Tensor expected = var(sub(shifted, 1e8), {1});
  CHECK(max_difference(var(shifted, {1}), expected) <= 1e-9);
  const Tensor narrow = add(random_tensor({5, 20000}, 1, DType::float32), 1e5);
  CHECK(max_difference(var(narrow, {1}), var(to(narrow, DType::float64), {1})) <= 1e-7);
  const Tensor pair = from_vector<double>({16777216, 16777218}, {2}, {.dtype = DType::float32});
  CHECK(var(pair).item<double>() == 2);  // float32 does not have their mean
}

TEST_CASE("var: takes the mean in its own dtype in backward, and the blame for a NaN") {
  for (const DType dtype : {DType::float32, DType::float64}) {
    CAPTURE(to_string(dtype));
    const Tensor x = from_vector<double>({1, 2, 3, 6}, {4}, {.dtype = dtype}).set_requires_grad();
    var(x, {}, {.correction = 0}).backward();
    CHECK(x.grad().dtype() == dtype);
    CHECK(x.grad().to_vector<double>() == std::vector<double>{-1, -0.5, 0, 1.5});
    const AnomalyGuard guard;
    CHECK(error_of([&] {
            var(from_vector<double>({1, kNan}, {2}, {.dtype = dtype}));
          }).starts_with("var: forward gave"));
  }
}

TEST_CASE("var: correction") {
  const Tensor x = from_vector<double>({1, 2, 4, 9}, {4});
  CHECK(var(x).item<double>() == doctest::Approx(38.0 / 3));
  CHECK(var(x, {}, {.correction = 0}).item<double>() == doctest::Approx(38.0 / 4));
  CHECK(var(x, {}, {.correction = 3}).item<double>() == doctest::Approx(38.0));
  CHECK_THROWS_WITH_AS(var(x, {}, {.correction = 4}),
                       "var: x: expected more than 4 elements to reduce, got 4 (sizes [4], axes [0])", Error);
  CHECK_THROWS_WITH_AS(var(x, {}, {.correction = -1}), "var: correction: expected at least 0, got -1", Error);
}

TEST_CASE("sum and max: integers") {
  const Tensor x = from_vector<int64_t>({3, -5, (int64_t{1} << 53) + 1, 2, 2, 1}, {2, 3});
  CHECK(sum(x, {1}).to_vector<int64_t>() == std::vector<int64_t>{(int64_t{1} << 53) - 1, 5});
  CHECK(max(x, {0}).to_vector<int64_t>() == std::vector<int64_t>{3, 2, (int64_t{1} << 53) + 1});
  const Tensor narrow_integers = from_vector<int32_t>({2147483647, 2147483647}, {2});
  CHECK(sum(narrow_integers).dtype() == DType::int64);
  CHECK(sum(narrow_integers).item<int64_t>() == 4294967294);
  CHECK(max(narrow_integers).dtype() == DType::int32);
  CHECK(sum(greater(x, from_vector<int64_t>({1}, {1}))).item<int64_t>() == 4);  // counts a bool tensor
}

TEST_CASE("max: NaN wins wherever it stands, infinities count") {
  for (const int64_t length : {3, 32, 33, 100}) {
    for (const int64_t place : {int64_t{0}, int64_t{1}, length - 1}) {
      CAPTURE(length);
      CAPTURE(place);
      for (const DType dtype : {DType::float32, DType::float64}) {
        const Tensor x = random_tensor({2, length}, 1);
        set_element(x, length + place, kNan);
        const Tensor in = copy_of(x, MemoryFormat::preserve, dtype);
        for (const Tensor& laid_out : {in, in_layout(in, Layout::strided)}) {
          const std::vector<double> y = max(laid_out, {1}).to_vector<double>();
          CHECK_FALSE(std::isnan(y[0]));
          CHECK(std::isnan(y[1]));
          CHECK(std::isnan(max(laid_out).to_vector<double>()[0]));
          CHECK(argmax(laid_out, 1).to_vector<int64_t>()[1] == place);
        }
      }
    }
  }
  CHECK(max(from_vector<double>({-kInfinity, -kInfinity}, {2})).item<double>() == -kInfinity);
  CHECK(max(from_vector<double>({kInfinity, 1}, {2})).item<double>() == kInfinity);
}

TEST_CASE("argmax: first of equal ones, NaN is largest, as in PyTorch") {
  // a = torch.tensor([[1, 3, 3], [nan, 2, nan]]); a.argmax(1), a.argmax()   (PyTorch 1.13): [1, 0], 3
  const Tensor a = from_vector<double>({1, 3, 3, kNan, 2, kNan}, {2, 3});
  CHECK(argmax(a, 1).to_vector<int64_t>() == std::vector<int64_t>{1, 0});
  CHECK(argmax(a).item<int64_t>() == 3);
  CHECK(argmax(a, 1, {.keepdim = true}).sizes() == Sizes{2, 1});
}

TEST_CASE("argmax: every axis against plain loops, every layout") {
  const Tensor x = random_tensor({3, 31, 4, 5}, 2);
  for (const Layout layout : kLayouts) {
    const Tensor in = in_layout(x, layout);
    for (int64_t axis = 0; axis < 4; ++axis) {
      std::vector<int64_t> expected;
      for (const auto& group : grouped(x, {axis})) {
        expected.push_back(std::max_element(group.begin(), group.end()) - group.begin());
      }
      CHECK(argmax(in, axis).to_vector<int64_t>() == expected);
    }
    const std::vector<double> values = x.to_vector<double>();
    CHECK(argmax(in).item<int64_t>() == std::max_element(values.begin(), values.end()) - values.begin());
  }
}

TEST_CASE("max: the gradient is shared equally among equal maxima") {
  // a = torch.tensor([1., 3, 3, 2], requires_grad=True); a.amax().backward(); a.grad: [0, 0.5, 0.5, 0]
  Tensor x = from_vector<double>({1, 3, 3, 2}, {4});
  x.set_requires_grad();
  max(x).backward();
  CHECK(x.grad().to_vector<double>() == std::vector<double>{0, 0.5, 0.5, 0});
}

TEST_CASE("reductions of nothing") {
  const Tensor x = zeros({0, 3}, {.dtype = DType::float64});
  CHECK(sum(x, {0}).to_vector<double>() == std::vector<double>{0, 0, 0});
  CHECK(std::isnan(mean(x, {0}).to_vector<double>()[2]));
  CHECK(sum(x, {1}).sizes() == Sizes{0});
  CHECK(max(x, {1}).sizes() == Sizes{0});
  CHECK(argmax(x, 1).sizes() == Sizes{0});
  CHECK_THROWS_WITH_AS(max(x, {0}), "max: x: expected at least one element to reduce, got sizes [0, 3], axes [0]",
                       Error);
  CHECK_THROWS_WITH_AS(argmax(x, 0), "argmax: x: expected at least one element along axis 0, got sizes [0, 3]", Error);
  CHECK_THROWS_WITH_AS(argmax(x), "argmax: x: expected at least one element, got sizes [0, 3]", Error);
}

TEST_CASE("reductions: error texts") {
  const Tensor x = random_tensor({2, 3}, 1);
  CHECK_THROWS_WITH_AS(sum(Tensor()), "sum: x: expected a tensor, got none", Error);
  CHECK_THROWS_WITH_AS(mean(arange(3)), "mean: x: expected a floating dtype, got int64", Error);
  CHECK_THROWS_WITH_AS(var(arange(3)), "var: x: expected a floating dtype, got int64", Error);
  CHECK_THROWS_WITH_AS(max(zeros({2}, {.dtype = DType::uint8})),
                       "max: expected dtype float32, float64, bfloat16, float16, int64 or int32, got uint8", Error);
  CHECK_THROWS_WITH_AS(sum_to_size(x, {1, 2, 3}),
                       "sum_to_size: sizes: expected at most 2 axes, as in [2, 3], got "
                       "[1, 2, 3]",
                       Error);
  CHECK_THROWS_WITH_AS(sum_to_size(x, {2, 2}), "sum_to_size: sizes: [2, 3] cannot be summed to [2, 2]", Error);
  CHECK_THROWS_WITH_AS(sum(x, {2}), "sum: axis: expected a value in [-2, 2), got 2", Error);
  CHECK_THROWS_WITH_AS(sum(x, {0, -2}), "sum: axes: expected each axis once, got [0, -2]", Error);
}

TEST_CASE("sum_to_size: undoes broadcasting") {
  const Tensor x = random_tensor({2, 3, 4}, 1);
  CHECK(sum_to_size(x, {2, 3, 4}).is_same(x));
  CHECK(max_difference(sum_to_size(x, {}), sum(x)) <= 1e-13);
  CHECK(max_difference(sum_to_size(x, {4}), sum(x, {0, 1})) == 0);
  CHECK(max_difference(sum_to_size(x, {3, 1}), sum(x, {0, 2}, {.keepdim = true})) == INFINITY);  // sizes differ
  CHECK(max_difference(sum_to_size(x, {3, 1}), unsqueeze(sum(x, {0, 2}), 1)) == 0);
  CHECK(max_difference(sum_to_size(x, {2, 1, 1}), sum(x, {1, 2}, {.keepdim = true})) == 0);
}

TEST_CASE("reductions: gradients, once and twice") {
  const auto squared = [](const Tensor& y) { return Tensors{mul(y, y)}; };
  const Tensors inputs = {random_tensor({2, 3, 4, 3}, 1)};
  for (const Axes& axes : {Axes{}, Axes{1}, Axes{0, 2, 3}, Axes{-1}}) {
    for (const bool keepdim : {false, true}) {
      const std::string name = to_string(axes) + (keepdim ? " keepdim" : "");
      check_gradients(
          "sum " + name, [&](const Tensors& in) { return squared(sum(in[0], axes, {.keepdim = keepdim})); }, inputs,
          true);
      check_gradients(
          "mean " + name, [&](const Tensors& in) { return squared(mean(in[0], axes, {.keepdim = keepdim})); }, inputs,
          true);
      check_gradients(
          "var " + name,
          [&](const Tensors& in) { return squared(var(in[0], axes, {.correction = 1, .keepdim = keepdim})); }, inputs,
          true);
      check_gradients(
          "max " + name, [&](const Tensors& in) { return squared(max(in[0], axes, {.keepdim = keepdim})); }, inputs,
          true);
    }
  }
  check_gradients(
      "sum_to_size",
      [&](const Tensors& in) {
        return squared(sum_to_size(in[0], {3, 1, 3}));
      },
      inputs, true);
}

TEST_CASE("mean: the gradient of 16-bit numbers is rounded once") {
  for (const DType dtype : {DType::float16, DType::bfloat16}) {
    for (const int64_t count : {3136, 1000000}) {  // 1 / count is no normal number of float16, or rounded
      const Tensor x = ones({count}, {.dtype = dtype}).set_requires_grad();
      mean(x).backward(full({}, 1024, {.dtype = dtype}));
      const Tensor expected = full({}, 1024.0 / static_cast<double>(count), {.dtype = dtype});
      CHECK(x.grad().to_vector<double>().front() == expected.item<double>());
    }
  }
}

TEST_CASE("max: more equal maxima than float16 counts share a gradient") {
  const Tensor x = ones({70'000}, {.dtype = DType::float16}).set_requires_grad();
  max(x).backward(full({}, 7000, {.dtype = DType::float16}));
  CHECK(x.grad().to_vector<double>() == full({70'000}, 0.1, {.dtype = DType::float16}).to_vector<double>());
}

TEST_CASE("reductions: the gradient of a channels_last tensor is channels_last") {
  const auto gradient_format = [](const std::function<Tensor(const Tensor&)>& f) {
    const Tensor x = copy_of(random_tensor({2, 3, 4, 5}, 1), kChannelsLast).set_requires_grad();
    const Tensor inner = mul(x, 2);
    Tensor seen;
    inner.register_hook([&seen](const Tensor& gradient) {
      seen = gradient;
      return Tensor();
    });
    const Tensor y = f(inner);
    y.backward(ones_like(y));
    return seen.suggest_memory_format();
  };
  CHECK(gradient_format([](const Tensor& x) { return sum(x, {2, 3}); }) == kChannelsLast);
  CHECK(gradient_format([](const Tensor& x) { return mean(x, {2, 3}, {.keepdim = true}); }) == kChannelsLast);
  CHECK(gradient_format([](const Tensor& x) { return var(x, {2, 3}); }) == kChannelsLast);
  CHECK(gradient_format([](const Tensor& x) { return max(x, {2, 3}); }) == kChannelsLast);
}
