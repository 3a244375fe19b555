#include "core/allocator.h"
#include "ops/conv/conv.h"
#include "ops/map_norm/norms.h"
#include "ops/matmul/matmul.h"
#include "ops/pointwise/pointwise.h"
#include "ops/pool/pool.h"
#include "ops/shape/join.h"
#include "ops/shape/pad.h"
#include "ops/shape/view.h"
#include "tests/error_text.h"

#include <cstdint>
#include <limits>

// Sizes, paddings and steps near the end of int64: a clear error or the right result, never a wrapped number.

namespace norma::test {
namespace {

constexpr int64_t kMax = std::numeric_limits<int64_t>::max();
constexpr int64_t kMin = std::numeric_limits<int64_t>::min();
constexpr int64_t k2To33 = int64_t{1} << 33;
constexpr int64_t k2To40 = int64_t{1} << 40;
constexpr int64_t k2To62 = int64_t{1} << 62;

}  // namespace

TEST_CASE("limits: expand to more elements than can be counted") {
  CHECK(error_of([] {
          expand(zeros({1, 1}), {k2To33, k2To33});
        }) == "expand: sizes: expected at most 9223372036854775807 elements, got [8589934592, 8589934592]");
  CHECK(error_of([] {
          expand(zeros({1}), {k2To33, k2To33});
        }) == "expand: sizes: expected at most 9223372036854775807 elements, got [8589934592, 8589934592]");
  CHECK(expand(zeros({1, 1}), {k2To33, k2To62 / k2To33}).numel() == k2To62);
}

TEST_CASE("limits: parts of an axis stay inside it") {
  const Tensor x = arange(10);
  CHECK(error_of([&] { narrow(x, 0, 1, kMax); }) ==
        "narrow: length: expected a value in [0, 9] from start 1, got 9223372036854775807");
  CHECK(error_of([&] { narrow(x, 0, kMax, 1); }) ==
        "narrow: start: expected a value in [-10, 10], got 9223372036854775807");
  CHECK(error_of([&] { narrow(x, 0, kMin, 1); }) ==
        "narrow: start: expected a value in [-10, 10], got -9223372036854775808");
  CHECK(error_of([&] { select(x, 0, kMin); }) ==
        "select: index: expected a value in [-10, 10), got -9223372036854775808");
  CHECK(slice(x, 0, kMin, kMax).to_vector<int64_t>() == x.to_vector<int64_t>());
  CHECK(slice(x, 0, 2, 10, kMax).to_vector<int64_t>() == std::vector<int64_t>{2});
  CHECK(slice(x, 0, 0, kMax, 9).to_vector<int64_t>() == std::vector<int64_t>{0, 9});
  CHECK(slice(slice(x, 0, 2, 10, kMax), 0, 0, 1, kMax).to_vector<int64_t>() == std::vector<int64_t>{2});
  CHECK(slice(x, 0, 3, 3, kMax).numel() == 0);
}

TEST_CASE("limits: views with more elements than can be counted") {
  const Tensor none = zeros({0});
  CHECK(error_of([&] {
          view(none, {k2To33, k2To33});
        }) == "view: sizes: expected at most 9223372036854775807 elements, got 8589934592 * 8589934592");
  CHECK(error_of([&] {
          reshape(none, {-1, k2To33, k2To33});
        }) == "reshape: sizes: expected at most 9223372036854775807 elements, got 8589934592 * 8589934592");
  CHECK(error_of([&] {
          view(none, {0, k2To33, k2To33});
        }) == "view: sizes: expected at most 9223372036854775807 elements, got 8589934592 * 8589934592");
  CHECK(error_of([&] { view(none, {k2To62, 3}); }).find("view: sizes: expected at most ") == 0);
}

TEST_CASE("limits: joined and padded tensors") {
  const Tensor long_one = expand(zeros({1}), {k2To62});
  CHECK(error_of([&] {
          cat({long_one, long_one}, 0);
        }) == "cat: xs: expected at most 9223372036854775807 elements, got 4611686018427387904 + 4611686018427387904");
  CHECK(error_of([&] { pad(zeros({2}), {kMax}, {kMax}); }) ==
        "pad: before, after: expected at most 9223372036854775807 elements, got 2 + 9223372036854775807");
  CHECK(error_of([&] { pad(zeros({2}), {1}, {kMax}); }) ==
        "pad: before, after: expected at most 9223372036854775807 elements, got 3 + 9223372036854775807");
  CHECK(error_of([&] { pad(zeros({2}), {kMin}, {kMin}); }) ==
        "pad: before, after: expected to crop at most 2 elements of axis 0, got -9223372036854775808 and "
        "-9223372036854775808");
  CHECK(error_of([&] { pad(zeros({2}), {kMin}, {kMax}); }) ==
        "pad: before, after: expected to crop at most 2 elements of axis 0, got -9223372036854775808 and "
        "9223372036854775807");
  CHECK(error_of([&] { pad(zeros({2}), {-kMax}, {-1}); }) ==
        "pad: before, after: expected to crop at most 2 elements of axis 0, got -9223372036854775807 and -1");
  CHECK(pad(zeros({2}), {-kMax}, {kMax}, 7).to_vector<double>() == std::vector<double>{7, 7});
  CHECK_THROWS_AS(pad(zeros({2}), {k2To62 / 8}, {0}), OutOfMemory);
}

TEST_CASE("limits: results of two broadcast operands") {
  const Tensor column = expand(zeros({1, 1}), {k2To33, 1});
  const Tensor row = expand(zeros({1, 1}), {1, k2To33});
  const std::string text = ": sizes: expected at most 9223372036854775807 elements, got [8589934592, 8589934592]";
  CHECK(error_of([&] { add(column, row); }) == "add" + text);
  CHECK(error_of([&] { equal(column, row); }) == "equal" + text);
  CHECK(error_of([&] { where(equal(zeros({1}), zeros({1})), column, row); }) == "where" + text);
  CHECK(error_of([&] { matmul(column, row); }) == "matmul" + text);
}

TEST_CASE("limits: convolutions with paddings and strides near the end of int64") {
  const Tensor x = random_tensor({1, 1, 4, 5}, 1, DType::float32);
  const Tensor weight = random_tensor({1, 1, 2, 2}, 2, DType::float32);
  CHECK(error_of([&] {
          conv2d(x, weight, {}, {.padding = {kMax, 0}});
        }) == "conv2d: padding: expected at most 9223372036854775807 elements, got 2 * 9223372036854775807");
  CHECK(error_of([&] {
          conv2d(x, weight, {}, {.padding = {0, kMax / 2}});
        }) == "conv2d: padding: expected at most 9223372036854775807 elements, got 5 + 9223372036854775806");
  CHECK(error_of([&] {
          conv2d(x, weight, {}, {.dilation = {1, kMax}});
        }) == "conv2d: dilation: expected at most 9223372036854775807 elements, got 9223372036854775807 + 1");
  CHECK(error_of([&] {
          conv2d(x, random_tensor({1, 1, 2, 3}, 2, DType::float32), {}, {.dilation = {1, kMax}});
        }) == "conv2d: dilation: expected at most 9223372036854775807 elements, got 9223372036854775807 * 2");
  CHECK_THROWS_WITH_AS(
      conv2d(x, weight, {}, {.padding = {k2To40, k2To40 / 2}}),
      "empty: sizes: expected at most 9223372036854775807 elements, got [1, 1, 2199023255555, 1099511627780]", Error);
  for (const std::string& name : conv2d_implementations()) {
    CAPTURE(name);
    set_conv2d_implementation(name);
    const Tensor once = conv2d(narrow(narrow(x, 2, 0, 2), 3, 0, 2), weight, {});
    CHECK(max_difference(conv2d(x, weight, {}, {.stride = {kMax, kMax}}), once) <= 1e-6);
    CHECK(max_difference(conv2d(x, weight, {}, {.stride = {k2To33 + 1, k2To33 + 1}}), once) <= 1e-6);
    // Output columns -2^32, 0 and 2^32 of the input's: only the middle one meets it.
    const int64_t far = k2To33 / 2;
    Tensor alone;
    const std::string error = error_of([&] {
      alone = conv2d(x, weight, {}, {.stride = {kMax, far}, .padding = {0, far}});
    });
    if (error == "no error") {
      CHECK(alone.sizes() == Sizes{1, 1, 1, 3});
      CHECK(max_difference(narrow(alone, 3, 1, 1), once) <= 1e-6);
      CHECK(max_difference(slice(alone, 3, 0, 3, 2), zeros({1, 1, 1, 2})) == 0);
    } else {
      CHECK(x.device().type == DeviceType::cuda);
      CHECK(error ==
            "conv2d: expected strides, paddings and dilations of at most 2147483647 for cuDNN, got 4294967296");
    }
    set_conv2d_implementation("");
  }
}

TEST_CASE("limits: pooling with kernels and strides near the end of int64") {
  const Tensor x = random_tensor({1, 1, 4, 5}, 1, DType::float32);
  CHECK(error_of([&] {
          max_pool2d(x, {.kernel = {kMax, 2}});
        }) ==
        "max_pool2d: kernel: expected to span no more than the padded input (4, 5), got (9223372036854775807, 2)");
  CHECK(error_of([&] {
          avg_pool2d(x, {.kernel = {2, kMax}, .padding = {0, kMax}});
        }) ==
        "avg_pool2d: padding: expected values from 0 to half the kernel (2, 9223372036854775807), got (0, "
        "9223372036854775807)");
  CHECK(error_of([&] {
          avg_pool2d(x, {.kernel = {2, kMax}, .padding = {0, kMax / 2}});
        }) == "avg_pool2d: padding: expected at most 9223372036854775807 elements, got 5 + 9223372036854775806");
  const Tensor corner = narrow(narrow(x, 2, 0, 2), 3, 0, 2);
  for (const bool ceil_mode : {false, true}) {
    const Pool2dOptions options{.kernel = {2, 2}, .stride = {kMax, kMax}, .ceil_mode = ceil_mode};
    const Pool2dOptions plain{.kernel = {2, 2}};
    CHECK(max_difference(max_pool2d(x, options), max_pool2d(corner, plain)) == 0);
    CHECK(max_difference(avg_pool2d(x, options), avg_pool2d(corner, plain)) == 0);
  }
  CHECK(error_of([&] {
          adaptive_avg_pool2d(x, {k2To40, 1});
        }) == "adaptive_avg_pool2d: output: expected values of at most 2147483647, got (1099511627776, 1)");
  CHECK(error_of([&] {
          avg_pool2d(expand(zeros({1, 1, 1, 1}), {1, 1, k2To40, 1}), {.kernel = {1, 1}});
        }) == "avg_pool2d: x: expected at most 2147483647 rows and columns, got sizes [1, 1, 1099511627776, 1]");
}

TEST_CASE("limits: a response norm over more channels than there are") {
  const Tensor x = random_tensor({2, 3, 2, 2}, 1, DType::float32);
  // The window holds all channels; its size divides alpha.
  const LocalResponseNormOptions wide{.alpha = static_cast<double>(kMax)};
  CHECK(max_difference(local_response_norm(x, kMax, wide), local_response_norm(x, 9, {.alpha = 9.0})) <= 1e-5);
}

}  // namespace norma::test
