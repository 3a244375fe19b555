#include "ops/shape/pad.h"

#include "error_text.h"
#include "ops/pointwise/pointwise.h"
#include "support.h"

#include <limits>

// Padding with elements of the tensor; padding with a value: join_test.cpp.

using namespace norma;
using namespace norma::test;

namespace {

std::string to_string(PadMode mode) {
  switch (mode) {
    case PadMode::constant: return "constant";
    case PadMode::reflect: return "reflect";
    case PadMode::replicate: return "replicate";
    case PadMode::circular: return "circular";
  }
  return "?";
}

constexpr PadMode kModes[] = {PadMode::reflect, PadMode::replicate, PadMode::circular};

}  // namespace

TEST_CASE("pad: reflect, replicate and circular are those of PyTorch, also where one side crops") {
  // F.pad(torch.arange(6.).reshape(1, 1, 2, 3), (2, 1, 1, 1), mode=mode)      (PyTorch 2.15)
  const std::vector<std::pair<PadMode, std::vector<double>>> cases = {
      {PadMode::reflect, {5, 4, 3, 4, 5, 4, 2, 1, 0, 1, 2, 1, 5, 4, 3, 4, 5, 4, 2, 1, 0, 1, 2, 1}},
      {PadMode::replicate, {0, 0, 0, 1, 2, 2, 0, 0, 0, 1, 2, 2, 3, 3, 3, 4, 5, 5, 3, 3, 3, 4, 5, 5}},
      {PadMode::circular, {4, 5, 3, 4, 5, 3, 1, 2, 0, 1, 2, 0, 4, 5, 3, 4, 5, 3, 1, 2, 0, 1, 2, 0}}};
  for (const auto& [mode, expected] : cases) {
    CAPTURE(to_string(mode));
    for (const Layout layout : kLayouts) {
      for (const DType dtype : {DType::float64, DType::float32, DType::bfloat16, DType::int64}) {
        const Tensor x = in_layout(copy_of(arange(6, dtype), MemoryFormat::contiguous), Layout::contiguous);
        const Tensor image = in_layout(from_vector(x.to_vector<double>(), {1, 1, 2, 3}), layout);
        const Tensor typed = copy_of(image, MemoryFormat::preserve, dtype);
        const Tensor y = pad(typed, {0, 0, 1, 2}, {0, 0, 1, 1}, mode);
        CHECK(y.dtype() == dtype);
        CHECK(y.to_vector<double>() == expected);
      }
    }
  }
  // F.pad(torch.arange(6.).reshape(1, 2, 3), (-1, 2), mode=mode)
  const Tensor rows = from_vector<double>({0, 1, 2, 3, 4, 5}, {2, 3});
  CHECK(pad(rows, {0, -1}, {0, 2}, PadMode::reflect).to_vector<double>() ==
        std::vector<double>{1, 2, 1, 0, 4, 5, 4, 3});
  CHECK(pad(rows, {0, -1}, {0, 2}, PadMode::replicate).to_vector<double>() ==
        std::vector<double>{1, 2, 2, 2, 4, 5, 5, 5});
  CHECK(pad(rows, {0, -1}, {0, 2}, PadMode::circular).to_vector<double>() ==
        std::vector<double>{1, 2, 1, 2, 4, 5, 4, 5});
  for (const PadMode mode : kModes) {
    CHECK(pad(rows, {0, -1}, {0, -1}, mode).to_vector<double>() == std::vector<double>{1, 4});
    CHECK(pad(rows, {0, 0}, {0, 0}, mode).to_vector<double>() == rows.to_vector<double>());
  }
  CHECK(pad(rows, {0, 3}, {0, 0}, PadMode::circular).to_vector<double>() ==
        std::vector<double>{0, 1, 2, 0, 1, 2, 3, 4, 5, 3, 4, 5});
  CHECK(max_difference(pad(rows, {0, 1}, {1, 0}, PadMode::constant), pad(rows, {0, 1}, {1, 0})) == 0);
}

TEST_CASE("pad: the result has memory of its own, also where nothing is added") {
  for (const PadMode mode : {PadMode::constant, PadMode::reflect, PadMode::replicate, PadMode::circular}) {
    CAPTURE(to_string(mode));
    const Tensor x = copy_of(random_tensor({2, 3, 4, 5}, 1), MemoryFormat::channels_last);
    const Tensor before = copy_of(x);
    Tensor y = pad(x, {0, 0, 0, 0}, {0, 0, 0, 0}, mode);
    CHECK(y.strides() == x.strides());
    CHECK(max_difference(y, x) == 0);
    add_(y, 1);
    CHECK(max_difference(x, before) == 0);
  }
}

TEST_CASE("pad: modes keep the memory format, and an empty batch") {
  const Tensor x = copy_of(random_tensor({2, 3, 4, 5}, 1), MemoryFormat::channels_last);
  for (const PadMode mode : kModes) {
    CAPTURE(to_string(mode));
    CHECK(pad(x, {0, 0, 1, 2}, {0, 0, 2, 1}, mode).is_contiguous(MemoryFormat::channels_last));
    CHECK(pad(zeros({0, 3, 4}), {0, 0, 1}, {0, 0, 2}, mode).sizes() == Sizes{0, 3, 7});
  }
}

TEST_CASE("pad: gradients of the modes, once and twice") {
  for (const PadMode mode : kModes) {
    check_gradients(
        to_string(mode),
        [mode](const Tensors& in) {
          const Tensor y = pad(in[0], {0, 1, 2, -1}, {1, 0, 1, 2}, mode);
          return Tensors{mul(y, y)};
        },
        {random_tensor({2, 3, 3, 4}, 1)}, true);
  }
}

TEST_CASE("pad: error texts of the modes") {
  const Tensor x = zeros({2, 3});
  CHECK(error_of([&] {
          pad(x, {0, 3}, {0, 0}, PadMode::reflect);
        }) == "pad: before, after: expected less than the 3 elements of axis 1 to reflect, got 3 and 0");
  CHECK(error_of([&] {
          pad(x, {0, 0}, {0, 4}, PadMode::circular);
        }) == "pad: before, after: expected at most the 3 elements of axis 1, got 0 and 4");
  CHECK(error_of([&] {
          pad(x, {0, -1}, {0, 3}, PadMode::circular);
        }) == "pad: before, after: expected at most the 2 elements of axis 1, got -1 and 3");
  CHECK(error_of([&] {
          pad(zeros({2, 0}), {0, 1}, {0, 0}, PadMode::replicate);
        }) == "pad: x: expected an element to repeat along axis 1, got size 0");
  CHECK(error_of([&] {
          pad(x, {1}, {1, 1}, PadMode::replicate);
        }) == "pad: before: expected 2 numbers, one per axis, got [1]");
  CHECK(error_of([&] {
          pad(x, {0, -4}, {0, 1}, PadMode::circular);
        }) == "pad: before, after: expected at most the 0 elements of axis 1, got -4 and 1");
  const std::string text = error_of([&] { pad(x, {0, (int64_t{1} << 60) + 5}, {0, 0}, PadMode::replicate); });
  CHECK_MESSAGE(text.find("expected at most 9223372036854775807 ") != std::string::npos, text);
  constexpr int64_t kLargest = std::numeric_limits<int64_t>::max();
  CHECK(error_of([&] {
          pad(x, {0, kLargest}, {0, kLargest}, PadMode::replicate);
        }).starts_with("pad: before, after: expected at most 9223372036854775807 elements, got "));
}
