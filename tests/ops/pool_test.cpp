#include "ops/pool/pool.h"

#include "core/parallel.h"
#include "core/tape.h"
#include "error_text.h"
#include "ops/shape/view.h"

#include <algorithm>
#include <limits>
#include <string>

namespace norma::test {
namespace {

/// x = (((torch.arange(30.) * 7) % 31 - 15) / 4).reshape(1, 1, 5, 6)
Tensor example() {
  std::vector<double> values;
  for (int i = 0; i < 30; ++i) {
    values.push_back((i * 7 % 31 - 15) / 4.0);
  }
  return from_vector(values, {1, 1, 5, 6});
}

/// `channels` copies of a (1, 1, H, W) tensor, so that lanes are used; each multiplied by another power of two.
Tensor repeated(const Tensor& x, int64_t channels) {
  std::vector<double> values;
  for (int64_t c = 0; c < channels; ++c) {
    for (const double value : x.to_vector<double>()) {
      values.push_back(std::ldexp(value, static_cast<int>(c % 5)));
    }
  }
  return from_vector(values, {1, channels, x.size(2), x.size(3)});
}

/// Checks f on `channels` channels in every layout and dtype.
template <class F>
void check_values(F&& f, const Tensor& x, const std::vector<double>& expected, const Sizes& expected_sizes) {
  for (const int64_t channels : {1, 3, 33, 64, 130}) {
    for (const Layout layout : kLayouts) {
      for (const DType dtype : {DType::float32, DType::float64}) {
        CAPTURE(to_string(layout));
        CAPTURE(channels);
        const Tensor in = in_layout(copy_of(repeated(x, channels), MemoryFormat::contiguous, dtype), layout);
        // Literals have 10 digits; the factor of a channel is up to 16.
        CHECK(max_difference(f(in), repeated(from_vector(expected, expected_sizes), channels)) <=
              (dtype == DType::float32 ? 2e-5 : 2e-8));
      }
    }
  }
}

/// Distinct values, far enough apart that finite differences change no maximum.
Tensor distinct(const Sizes& sizes) {
  std::vector<double> values;
  const int64_t count = sizes.numel();
  for (int64_t i = 0; i < count; ++i) {
    values.push_back(static_cast<double>(i * 37 % 1009) / 100);
  }
  return from_vector(values, sizes);
}

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

}  // namespace

TEST_CASE("max_pool2d: values as PyTorch, padding, stride and ceil_mode") {
  // F.max_pool2d(x, 3, 2, 1), F.max_pool2d(x, (2, 3), (3, 2), (0, 1))…      (torch 1.13)
  check_values([](const Tensor& x) { return max_pool2d(x, {.kernel = 3, .stride = 2, .padding = 1}); }, example(),
               {0.75, 2.5, 3.25, 3.5, 3.5, 3.75, 1.25, 3.0, 3.75}, {1, 1, 3, 3});
  check_values(
      [](const Tensor& x) { return max_pool2d(x, {.kernel = 3, .stride = 2, .padding = 1, .ceil_mode = true}); },
      example(), {0.75, 2.5, 3.25, 0.0, 3.5, 3.5, 3.75, 2.75, 1.25, 3.0, 3.75, 0.5}, {1, 1, 3, 4});
  check_values(
      [](const Tensor& x) {
        return max_pool2d(x, {.kernel = {3, 2}, .stride = {2, 3}, .padding = {1, 0}});
      },
      example(), {0.75, 3.25, 3.5, 3.75, 1.25, 3.75}, {1, 1, 3, 2});
}

TEST_CASE("max_pool2d: dilation as PyTorch, with padding, stride and ceil_mode") {
  // F.max_pool2d(x, 2, 1, 0, 2), F.max_pool2d(x, (3, 2), (1, 2), 1, (2, 3)),
  // F.max_pool2d(x, (2, 3), 2, (0, 1), (3, 2), ceil_mode=True)      (torch 2.15)
  check_values([](const Tensor& x) { return max_pool2d(x, {.kernel = 2, .stride = 1, .dilation = 2}); }, example(),
               {1.75, 3.5, 3.25, 2.75, 2.5, 2, 3.75, 2, 3, 3.5, 3, 2.75}, {1, 1, 3, 4});
  check_values(
      [](const Tensor& x) {
        return max_pool2d(x, {.kernel = {3, 2}, .stride = {1, 2}, .padding = 1, .dilation = {2, 3}});
      },
      example(), {2.5, 3.75, 2, 3, 3.5, 1.5, 2.5, 3.75, 2}, {1, 1, 3, 3});
  check_values(
      [](const Tensor& x) {
        return max_pool2d(x, {.kernel = {2, 3}, .stride = 2, .padding = {0, 1}, .ceil_mode = true, .dilation = {3, 2}});
      },
      example(), {2, 2, 2, 3.5, 3.5, 2.75}, {1, 1, 2, 3});
}

TEST_CASE("max_pool2d: a dilation beyond the image, for a kernel of one position") {
  const Tensor x = distinct({1, 2, 3, 4});
  for (const int64_t dilation : {int64_t{3}, int64_t{1} << 31, int64_t{1} << 32, std::numeric_limits<int64_t>::max()}) {
    for (const Layout layout : kLayouts) {
      CAPTURE(dilation);
      CHECK(max_difference(max_pool2d(in_layout(x, layout), {.kernel = 1, .stride = 1, .dilation = dilation}), x) == 0);
    }
  }
}

TEST_CASE("avg_pool2d: divisor_override as PyTorch") {
  // F.avg_pool2d(x, 3, 2, 1, divisor_override=4) and
  // F.avg_pool2d(x, 3, 2, 1, ceil_mode=True, count_include_pad=False, divisor_override=-2)      (torch 2.15)
  check_values(
      [](const Tensor& x) { return avg_pool2d(x, {.kernel = 3, .stride = 2, .padding = 1, .divisor_override = 4}); },
      example(), {-1.5, -0.25, -0.8125, 0.0625, 0.1875, 0.3125, -1, 0.5, -0.0625}, {1, 1, 3, 3});
  check_values(
      [](const Tensor& x) {
        return avg_pool2d(x, {.kernel = 3,
                              .stride = 2,
                              .padding = 1,
                              .ceil_mode = true,
                              .count_include_pad = false,
                              .divisor_override = -2});
      },
      example(), {3, 0.5, 1.625, 1.375, -0.125, -0.375, -0.625, -0.25, 2, -1, 0.125, 0.875}, {1, 1, 3, 4});
}

TEST_CASE("avg_pool2d: values as PyTorch, with and without counting the padding, ceil_mode") {
  // F.avg_pool2d(x, 3, 2, 1, ceil_mode=…, count_include_pad=…)      (torch 1.13)
  const auto pool = [](bool ceil_mode, bool count_include_pad) {
    return [=](const Tensor& x) {
      return avg_pool2d(
          x, {.kernel = 3, .stride = 2, .padding = 1, .ceil_mode = ceil_mode, .count_include_pad = count_include_pad});
    };
  };
  check_values(
      pool(false, false), example(),
      {-1.5, -0.1666666667, -0.5416666667, 0.0416666667, 0.0833333333, 0.1388888889, -1.0, 0.3333333333, -0.0416666667},
      {1, 1, 3, 3});
  check_values(pool(false, true), example(),
               {-0.6666666667, -0.1111111111, -0.3611111111, 0.0277777778, 0.0833333333, 0.1388888889, -0.4444444444,
                0.2222222222, -0.0277777778},
               {1, 1, 3, 3});
  check_values(pool(true, false), example(),
               {-1.5, -0.1666666667, -0.5416666667, -1.375, 0.0416666667, 0.0833333333, 0.1388888889, 0.1666666667,
                -1.0, 0.3333333333, -0.0416666667, -0.875},
               {1, 1, 3, 4});
  check_values(pool(true, true), example(),
               {-0.6666666667, -0.1111111111, -0.3611111111, -0.4583333333, 0.0277777778, 0.0833333333, 0.1388888889,
                0.0833333333, -0.4444444444, 0.2222222222, -0.0277777778, -0.2916666667},
               {1, 1, 3, 4});
}

TEST_CASE("adaptive_avg_pool2d: values as PyTorch") {
  // F.adaptive_avg_pool2d(x, (2, 4))      (torch 1.13)
  check_values(
      [](const Tensor& x) {
        return adaptive_avg_pool2d(x, {2, 4});
      },
      example(), {-0.125, 0.3333333333, -0.0416666667, 0.4166666667, 0.2083333333, 0.6666666667, 0.2916666667, 0.75},
      {1, 1, 2, 4});
  double mean = 0;
  for (const double value : example().to_vector<double>()) {
    mean += value / 30;
  }
  check_values([](const Tensor& x) { return adaptive_avg_pool2d(x, 1); }, example(), {mean}, {1, 1, 1, 1});
}

TEST_CASE("adaptive_avg_pool2d: more outputs than inputs") {
  // F.adaptive_avg_pool2d(x, (7, 3))[0, 0, :2]      (torch 1.13)
  const std::vector<double> y = adaptive_avg_pool2d(example(), {7, 3}).to_vector<double>();
  const std::vector<double> expected = {-2.875, 0.625, 0.25, -1.5, 0.0625, -0.3125};
  for (size_t i = 0; i < expected.size(); ++i) {
    CHECK(y[i] == doctest::Approx(expected[i]).epsilon(1e-12));
  }
}

TEST_CASE("max_pool2d: the first of equal maxima gets the gradient") {
  for (const Layout layout : kLayouts) {
    const Tensor x = in_layout(ones({1, 33, 4, 4}), layout).set_requires_grad();
    const Tensor y = max_pool2d(x, {.kernel = 2});
    y.backward(full(y.sizes(), 3));
    const std::vector<double> gradient = x.grad().to_vector<double>();
    for (size_t i = 0; i < gradient.size(); ++i) {
      const bool first = i % 2 == 0 && i / 4 % 2 == 0;
      CHECK(gradient[i] == (first ? 3 : 0));
    }
  }
}

TEST_CASE("max_pool2d: NaN counts as largest, and -inf is a value") {
  const Tensor x = from_vector<double>({1, kNan, 5, kNan, -INFINITY, -INFINITY, -INFINITY, -INFINITY}, {1, 2, 2, 2});
  for (const Layout layout : kLayouts) {
    const Tensor in = in_layout(x, layout).set_requires_grad();
    const Tensor y = max_pool2d(in, {.kernel = 2});
    CHECK(std::isnan(y.to_vector<double>()[0]));
    CHECK(y.to_vector<double>()[1] == -INFINITY);
    y.backward(ones(y.sizes(), {.dtype = DType::float64}));
    CHECK(in.grad().to_vector<double>() == std::vector<double>{0, 1, 0, 0, 1, 0, 0, 0});
  }
}

TEST_CASE("max_pool2d: many channels at once have the gradients of each alone") {
  const Pool2dOptions options{.kernel = 3, .stride = 2, .padding = 1};
  for (const int64_t channels : {16, 64, 130}) {
    const Tensor x = random_tensor({2, channels, 9, 7}, 1, DType::float32);
    const Tensor dy = random_tensor({2, channels, 5, 4}, 2, DType::float32);
    for (const Layout layout : kLayouts) {
      CAPTURE(channels);
      CAPTURE(to_string(layout));
      const Tensor in = in_layout(x, layout).set_requires_grad();
      max_pool2d(in, options).backward(in_layout(dy, layout));
      for (int64_t c = 0; c < channels; ++c) {
        const Tensor one = copy_of(narrow(x, 1, c, 1), MemoryFormat::contiguous, DType::float32).set_requires_grad();
        max_pool2d(one, options).backward(narrow(dy, 1, c, 1));
        CHECK(max_difference(narrow(in.grad(), 1, c, 1), one.grad()) <= 1e-6);
      }
    }
  }
}

namespace {

/// x as (N, C, H, W) doubles, and where an element lies.
struct Images {
  std::vector<double> values;
  int64_t c, h, w;

  explicit Images(const Tensor& x) : values(x.to_vector<double>()), c(x.size(1)), h(x.size(2)), w(x.size(3)) {}
  [[nodiscard]] double at(int64_t plane, int64_t row, int64_t column) const {
    return values[static_cast<size_t>((plane * h + row) * w + column)];
  }
};

/// Calls f(plane, output, row, column) for the positions inside the windows of stride 2 and padding 1.
template <class F>
void for_each_tap(int64_t planes, const Images& x, int64_t oh, int64_t ow, int64_t kernel, F f) {
  for (int64_t plane = 0; plane < planes; ++plane) {
    for (int64_t output = 0; output < oh * ow; ++output) {
      for (int64_t tap = 0; tap < kernel * kernel; ++tap) {
        const int64_t row = output / ow * 2 - 1 + tap / kernel;
        const int64_t column = output % ow * 2 - 1 + tap % kernel;
        if (row >= 0 && row < x.h && column >= 0 && column < x.w) {
          f(plane, plane * oh * ow + output, row, column);
        }
      }
    }
  }
}

}  // namespace

TEST_CASE(
    "pooling: widths and channels around the vector width, every dtype, ties, NaN and infinities, by plain loops") {
  // Few values, so that many are equal.
  const std::vector<double> values{0, 1, -1, 2, -2, -0.0, kNan, INFINITY, -INFINITY, 1, 0.5, 2};
  for (const DType dtype : {DType::float32, DType::float64, DType::bfloat16, DType::float16}) {
    for (const bool special : {true, false}) {
      for (const int64_t width : {5, 15, 31, 33, 35, 65}) {
        const int64_t channels = width / 2;
        const Sizes sizes{2, channels, 4, width};
        std::vector<double> numbers;
        for (int64_t i = 0; i < sizes.numel(); ++i) {
          const double value = values[static_cast<size_t>(i * 7 % 89 % 12)];
          numbers.push_back(special || std::isfinite(value) ? value : 3);
        }
        for (const Layout layout : kLayouts) {
          CAPTURE(to_string(dtype));
          CAPTURE(special);
          CAPTURE(width);
          CAPTURE(to_string(layout));
          Tensor x = in_layout(copy_of(from_vector(numbers, sizes), MemoryFormat::contiguous, dtype), layout)
                         .set_requires_grad();
          const Images in(x);
          const Tensor y = max_pool2d(x, {.kernel = 3, .stride = 2, .padding = 1});
          const int64_t oh = y.size(2);
          const int64_t ow = y.size(3);
          std::vector<double> largest(static_cast<size_t>(y.numel()), -INFINITY);
          std::vector<int64_t> where(largest.size(), -1);
          std::vector<double> sums(largest.size(), 0);
          for_each_tap(2 * channels, in, oh, ow, 3, [&](int64_t plane, int64_t output, int64_t row, int64_t column) {
            const double value = in.at(plane, row, column);
            double& best = largest[static_cast<size_t>(output)];
            int64_t& best_at = where[static_cast<size_t>(output)];
            if (best_at < 0 || (!std::isnan(best) && !(value <= best))) {
              best = value;
              best_at = (plane * in.h + row) * in.w + column;
            }
            sums[static_cast<size_t>(output)] += value;
          });
          const std::vector<double> maxima = y.to_vector<double>();
          const Tensor dy = copy_of(random_tensor(y.sizes(), 3), MemoryFormat::contiguous, dtype);
          const std::vector<double> weights = dy.to_vector<double>();
          y.backward(in_layout(dy, layout));
          const std::vector<double> dx = x.grad().to_vector<double>();
          std::vector<double> expected(dx.size(), 0);
          int64_t wrong = 0;
          for (size_t i = 0; i < maxima.size(); ++i) {
            wrong += maxima[i] == largest[i] || (std::isnan(maxima[i]) && std::isnan(largest[i])) ? 0 : 1;
            expected[static_cast<size_t>(where[i])] += weights[i];
          }
          CHECK(wrong == 0);
          const double tolerance = dtype == DType::bfloat16 ? 4e-2 : dtype == DType::float16 ? 4e-3 : 1e-6;
          for (size_t i = 0; i < dx.size(); ++i) {
            wrong += std::abs(dx[i] - expected[i]) <= tolerance ? 0 : 1;
          }
          CHECK(wrong == 0);
          if (!special) {
            const Tensor mean = avg_pool2d(x, {.kernel = 3, .stride = 2, .padding = 1});
            const std::vector<double> means = mean.to_vector<double>();
            for (size_t i = 0; i < sums.size(); ++i) {
              wrong += std::abs(means[i] - sums[i] / 9) <= tolerance ? 0 : 1;
            }
            CHECK(wrong == 0);
            x.set_grad({});
            mean.backward(in_layout(dy, layout));
            std::fill(expected.begin(), expected.end(), 0);
            for_each_tap(2 * channels, in, oh, ow, 3, [&](int64_t plane, int64_t output, int64_t row, int64_t column) {
              expected[static_cast<size_t>((plane * in.h + row) * in.w + column)] +=
                  weights[static_cast<size_t>(output)] / 9;
            });
            const std::vector<double> average_dx = x.grad().to_vector<double>();
            for (size_t i = 0; i < expected.size(); ++i) {
              wrong += std::abs(average_dx[i] - expected[i]) <= tolerance ? 0 : 1;
            }
            CHECK(wrong == 0);
          }
        }
      }
    }
  }
}

TEST_CASE("pooling: gradients by finite differences, also twice") {
  const auto max = [](const Pool2dOptions& options) {
    return [options](const Tensors& in) -> Tensors { return {max_pool2d(in[0], options)}; };
  };
  const auto average = [](const Pool2dOptions& options) {
    return [options](const Tensors& in) -> Tensors { return {avg_pool2d(in[0], options)}; };
  };
  const auto adaptive = [](const Pair& output) {
    return [output](const Tensors& in) -> Tensors { return {adaptive_avg_pool2d(in[0], output)}; };
  };
  const Tensor x = distinct({2, 3, 5, 6});
  check_gradients("max, overlapping", max({.kernel = 3, .stride = 2, .padding = 1}), {x}, true);
  check_gradients("max, ceil_mode", max({.kernel = {2, 3}, .stride = {3, 2}, .ceil_mode = true}), {x}, true);
  check_gradients("max, dilated", max({.kernel = {3, 2}, .stride = {1, 2}, .padding = 1, .dilation = {2, 3}}), {x},
                  true);
  check_gradients("max, dilated, many lanes", max({.kernel = 2, .stride = 1, .padding = 1, .dilation = 2}),
                  {distinct({1, 9, 3, 4})}, true);
  check_gradients("avg, divisor_override", average({.kernel = 3, .stride = 2, .padding = 1, .divisor_override = -2}),
                  {x}, true);
  check_gradients("avg, overlapping", average({.kernel = 3, .stride = 2, .padding = 1}), {x}, true);
  check_gradients("avg, ceil_mode, padding not counted",
                  average({.kernel = 3, .stride = 2, .padding = 1, .ceil_mode = true, .count_include_pad = false}), {x},
                  true);
  check_gradients("avg, gaps between windows", average({.kernel = 1, .stride = 2}), {x});
  check_gradients("adaptive, 1x1", adaptive(1), {x}, true);
  check_gradients("adaptive, 2x4", adaptive({2, 4}), {x}, true);
  check_gradients("adaptive, more outputs than inputs", adaptive({7, 8}), {x});
}

TEST_CASE("pooling: results and gradients keep the memory format") {
  const Sizes sizes{2, 3, 6, 4};
  const Tensor nchw = random_tensor(sizes, 1, DType::float32).set_requires_grad();
  const Tensor nhwc = copy_of(nchw, MemoryFormat::channels_last).detach().set_requires_grad();
  for (const auto& pool : {+[](const Tensor& x) { return max_pool2d(x, {.kernel = 2}); },
                           +[](const Tensor& x) { return avg_pool2d(x, {.kernel = 2}); },
                           +[](const Tensor& x) {
                             return adaptive_avg_pool2d(x, {2, 3});
                           },
                           +[](const Tensor& x) { return adaptive_avg_pool2d(x, 1); }}) {
    const Tensor y = pool(nchw);
    const Tensor y_last = pool(nhwc);
    CHECK(y.strides() == contiguous_strides(y.sizes()));
    CHECK(y_last.strides() == channels_last_strides(y_last.sizes()));
    CHECK(y_last.suggest_memory_format() == MemoryFormat::channels_last);
    CHECK(grad({y}, {nchw}, {ones(y.sizes())})[0].strides() == contiguous_strides(sizes));
    CHECK(grad({y_last}, {nhwc}, {ones(y.sizes())})[0].strides() == channels_last_strides(sizes));
  }
}

TEST_CASE("pooling: an empty batch gives an empty result") {
  CHECK(max_pool2d(zeros({0, 3, 4, 4}), {.kernel = 2}).sizes() == Sizes{0, 3, 2, 2});
  CHECK(avg_pool2d(zeros({0, 3, 4, 4}), {.kernel = 2}).sizes() == Sizes{0, 3, 2, 2});
  CHECK(adaptive_avg_pool2d(zeros({0, 3, 4, 4}), 1).sizes() == Sizes{0, 3, 1, 1});
}

TEST_CASE("pooling: the same bits for any number of threads") {
  const int before = num_threads();
  const Tensor x = random_tensor({3, 33, 31, 29}, 1, DType::float32).set_requires_grad();
  const auto run = [&](int threads) -> Tensors {
    set_num_threads(threads);
    const Tensor y = avg_pool2d(x, {.kernel = 3, .stride = 2, .padding = 1});
    return {y, grad({y}, {x}, {y})[0]};
  };
  const Tensors one = run(1);
  const Tensors three = run(3);
  CHECK(max_difference(one[0], three[0]) == 0);
  CHECK(max_difference(one[1], three[1]) == 0);
  set_num_threads(before);
}

TEST_CASE("pooling: error texts") {
  const Tensor x = zeros({1, 2, 4, 5});
  CHECK(error_of([&] { max_pool2d({}, {}); }) == "max_pool2d: x: expected a tensor, got none");
  CHECK(error_of([&] {
          max_pool2d(zeros({2, 4, 5}), {});
        }) == "max_pool2d: x: expected rank 4, got rank 3 (sizes [2, 4, 5])");
  CHECK(error_of([&] {
          avg_pool2d(zeros({1, 2, 4, 5}, {.dtype = DType::int64}), {});
        }) == "avg_pool2d: x: expected a floating dtype, got int64");
  CHECK(error_of([&] {
          avg_pool2d(zeros({1, 2, 0, 5}), {});
        }) == "avg_pool2d: x: expected no size of 0 behind the first, got sizes [1, 2, 0, 5]");
  CHECK(error_of([&] {
          max_pool2d(x, {.kernel = {0, 2}});
        }) == "max_pool2d: kernel: expected values of at least 1, got (0, 2)");
  CHECK(error_of([&] { max_pool2d(x, {.kernel = 2, .stride = -1}); }) ==
        "max_pool2d: stride: expected values of at least 1, or 0 for the kernel's, got (-1, -1)");
  CHECK(error_of([&] {
          max_pool2d(x, {.kernel = {3, 2}, .padding = 2});
        }) == "max_pool2d: padding: expected values from 0 to half the kernel (3, 2), got (2, 2)");
  CHECK(error_of([&] {
          max_pool2d(x, {.dilation = {1, 0}});
        }) == "max_pool2d: dilation: expected values of at least 1, got (1, 0)");
  CHECK(error_of([&] { avg_pool2d(x, {.dilation = 2}); }) ==
        "avg_pool2d: dilation: expected 1, which is all that an average has, got (2, 2)");
  CHECK(error_of([&] { max_pool2d(x, {.divisor_override = 3}); }) ==
        "max_pool2d: divisor_override: expected 0, as a maximum divides nothing, got 3");
  CHECK(error_of([&] { max_pool2d(x, {.kernel = 3, .dilation = 2}); }) ==
        "max_pool2d: kernel: expected to span no more than the padded input (4, 5), got (5, 5)");
  CHECK(error_of([&] {
          max_pool2d(zeros({1, 2, 2, 2}), {.kernel = 2, .stride = 1, .padding = 1, .dilation = 3});
        }) ==
        "max_pool2d: dilation: expected a position inside the image for every window, got (3, 3) for sizes "
        "[1, 2, 2, 2]");
  CHECK(error_of([&] { avg_pool2d(x, {.kernel = 5}); }) ==
        "avg_pool2d: kernel: expected to span no more than the padded input (4, 5), got (5, 5)");
  CHECK(error_of([&] {
          adaptive_avg_pool2d(x, {0, 1});
        }) == "adaptive_avg_pool2d: output: expected values of at least 1, got (0, 1)");
}

}  // namespace norma::test
