#include "ops/shape/view.h"

#include "ops/pointwise/pointwise.h"
#include "tests/support.h"

#include <limits>

using namespace norma;
using namespace norma::test;

namespace {

/// 0, 1, 2, … in row-major order.
Tensor counting(const Sizes& sizes) {
  std::vector<double> values;
  for (int64_t i = 0; i < sizes.numel(); ++i) {
    values.push_back(static_cast<double>(i));
  }
  return from_vector(values, sizes);
}

Tensor strided(const Sizes& sizes, const Strides& strides) {
  return alias(zeros({4000}), sizes, strides, 0);
}

/// True iff y shows the elements of x's storage.
bool shares_storage(const Tensor& x, const Tensor& y) {
  return x.storage() == y.storage();
}

}  // namespace

TEST_CASE("view: strides are those of PyTorch") {
  // torch.zeros(4000).as_strided(sizes, strides).view(target).stride(), PyTorch 1.13
  struct Case {
    Sizes sizes, strides, target, expected;
  };
  const std::vector<Case> cases = {
      {{2, 3, 1, 1}, {3, 1, 3, 3}, {2, 3}, {3, 1}},
      {{2, 3, 1, 1}, {3, 1, 3, 3}, {2, 3, 1}, {3, 1, 3}},
      {{2, 3, 1, 1}, {3, 1, 3, 3}, {2, 3, 1, 1}, {3, 1, 3, 3}},
      {{2, 3, 4, 5}, {60, 1, 15, 3}, {2, 3, 20}, {60, 1, 3}},
      {{2, 3, 4, 5}, {60, 1, 15, 3}, {2, 3, 2, 2, 5}, {60, 1, 30, 15, 3}},
      {{4, 6}, {12, 2}, {4, 2, 3}, {12, 6, 2}},
      {{4, 6}, {12, 2}, {24}, {2}},
      {{2, 1, 4}, {100, 7, 1}, {2, 4, 1}, {100, 1, 1}},
      {{4, 1}, {1, 9}, {4}, {1}},
      {{1, 1}, {5, 7}, {}, {}},
      {{1, 1}, {5, 7}, {1, 1, 1}, {7, 7, 7}},
      {{3, 0}, {2, 1}, {0, 5}, {5, 1}},
      {{6}, {0}, {2, 3}, {0, 0}},
      {{}, {}, {1, 1}, {1, 1}},
  };
  for (const Case& c : cases) {
    CAPTURE(to_string(c.sizes));
    CAPTURE(to_string(c.target));
    const Tensor x = strided(c.sizes, c.strides);
    const Tensor y = view(x, c.target);
    CHECK(to_string(y.sizes()) == to_string(c.target));
    CHECK(to_string(y.strides()) == to_string(c.expected));
    CHECK(shares_storage(x, y));
  }
}

TEST_CASE("view: -1 stands for the rest") {
  const Tensor x = counting({4, 6});
  CHECK(view(x, {-1}).sizes() == Sizes{24});
  CHECK(view(x, {2, -1, 3}).sizes() == Sizes{2, 4, 3});
  CHECK(view(x, {24, -1}).sizes() == Sizes{24, 1});
  CHECK(view(x, {2, -1, 3}).to_vector<double>() == x.to_vector<double>());
}

TEST_CASE("view: error texts") {
  CHECK_THROWS_WITH_AS(view(strided({4, 6}, {13, 2}), {24}),
                       "view: sizes [24] are not compatible with strides [13, 2] of sizes [4, 6]; use reshape()",
                       Error);
  CHECK_THROWS_WITH_AS(view(counting({2, 3}), {2, 4}), "view: sizes: expected 6 elements, as in [2, 3], got [2, 4]",
                       Error);
  CHECK_THROWS_WITH_AS(view(counting({2, 3}), {4, -1}), "view: sizes: expected 6 elements, as in [2, 3], got [4, -1]",
                       Error);
  CHECK_THROWS_WITH_AS(view(counting({2, 3}), {-1, -1}), "view: sizes: expected at most one -1, got [-1, -1]", Error);
  CHECK_THROWS_WITH_AS(view(counting({2, 3}), {-2, -3}),
                       "view: sizes: expected sizes of at least 0 (or one -1), got [-2, -3]", Error);
  CHECK_THROWS_WITH_AS(view(counting({0, 3}), {0, -1}), "view: sizes: -1 could be anything in [0, -1]", Error);
  CHECK_THROWS_WITH_AS(reshape(counting({2, 3}), {5}), "reshape: sizes: expected 6 elements, as in [2, 3], got [5]",
                       Error);
  CHECK_THROWS_WITH_AS(view(Tensor(), {1}), "view: x: expected a tensor, got none", Error);
}

TEST_CASE("reshape: a view where the strides allow it, else a row-major copy") {
  const Tensor x = counting({2, 3, 4, 5});
  CHECK(shares_storage(x, reshape(x, {6, 20})));
  const Tensor y = copy_of(x, MemoryFormat::channels_last);
  CHECK(shares_storage(y, reshape(y, {2, 3, 20})));
  const Tensor flat = reshape(y, {2, 60});
  CHECK_FALSE(shares_storage(y, flat));
  CHECK(flat.to_vector<double>() == x.to_vector<double>());
}

TEST_CASE("flatten: merges a range of axes in row-major order, whatever the format") {
  const Tensor x = counting({2, 3, 4, 5});
  const Tensor y = copy_of(x, MemoryFormat::channels_last);
  CHECK(flatten(x).sizes() == Sizes{120});
  CHECK(flatten(x, 1, 2).sizes() == Sizes{2, 12, 5});
  CHECK(flatten(x, -2).sizes() == Sizes{2, 3, 20});
  CHECK(flatten(x, 2, 2).sizes() == x.sizes());
  // torch.zeros(2, 3, 4, 5).to(memory_format=torch.channels_last).flatten(1).stride() == (60, 1), PyTorch 1.13
  CHECK(flatten(y, 1).strides() == Strides{60, 1});
  CHECK(flatten(y, 1).to_vector<double>() == x.to_vector<double>());
  CHECK(flatten(y, 2).strides() == Strides{60, 1, 3});
  CHECK(flatten(scalar(3)).sizes() == Sizes{1});
  CHECK(squeeze(scalar(3), -1).sizes().empty());
  CHECK(transpose(scalar(3), 0, -1).sizes().empty());
  CHECK_THROWS_WITH_AS(squeeze(scalar(3), 1), "squeeze: axis: expected a value in [-1, 1), got 1", Error);
  CHECK(flatten(scalar(3), -1, 0).sizes() == Sizes{1});
  CHECK_THROWS_WITH_AS(flatten(scalar(3), 5), "flatten: axis: expected a value in [-1, 1), got 5", Error);
  CHECK_THROWS_WITH_AS(flatten(scalar(3), 0, 1), "flatten: axis: expected a value in [-1, 1), got 1", Error);
  CHECK_THROWS_WITH_AS(flatten(x, 2, 1), "flatten: end: expected an axis at or behind start 2, got 1", Error);
}

TEST_CASE("permute and transpose: sizes and strides move together") {
  const Tensor x = counting({2, 3, 4});
  const Tensor y = permute(x, {2, 0, -2});
  CHECK(y.sizes() == Sizes{4, 2, 3});
  CHECK(y.strides() == Strides{1, 12, 4});
  CHECK(select(select(select(y, 0, 3), 0, 1), 0, 2).item<double>() == 23);
  CHECK(transpose(x, 0, -1).strides() == Strides{1, 4, 12});
  CHECK(transpose(x, 1, 1).strides() == x.strides());
  CHECK_THROWS_WITH_AS(permute(x, {0, 1}), "permute: order: expected 3 axes, got [0, 1]", Error);
  CHECK_THROWS_WITH_AS(permute(x, {0, 1, -2}), "permute: order: expected each axis once, got [0, 1, -2]", Error);
}

TEST_CASE("expand: repeats without copying") {
  const Tensor x = counting({3, 1});
  const Tensor y = expand(x, {2, -1, 4});
  CHECK(y.sizes() == Sizes{2, 3, 4});
  CHECK(y.strides() == Strides{0, 1, 0});
  CHECK(shares_storage(x, y));
  CHECK(y.to_vector<double>() ==
        std::vector<double>{0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2});
  CHECK(expand(x, {3, 0}).numel() == 0);
  CHECK_THROWS_WITH_AS(expand(x, {4, 1}), "expand: sizes: [3, 1] cannot be expanded to [4, 1]", Error);
  CHECK_THROWS_WITH_AS(expand(x, {-1, 3, 1}), "expand: sizes: [3, 1] cannot be expanded to [-1, 3, 1]", Error);
  CHECK_THROWS_WITH_AS(expand(x, {3}), "expand: sizes: expected at least 2 axes, as in [3, 1], got [3]", Error);
}

// torch.zeros(3, 4, 5).expand(1, 3, 4, 5).stride() == (60, 20, 5, 1), and so on, PyTorch 2
TEST_CASE("expand: a new axis that repeats nothing keeps the order of the others") {
  const Tensor x = counting({3, 4, 5});
  CHECK(expand(x, {1, 3, 4, 5}).strides() == Strides{60, 20, 5, 1});
  CHECK(expand(x, {2, 1, 3, 4, 5}).strides() == Strides{0, 60, 20, 5, 1});
  CHECK(expand(x, {1, 2, 3, 4, 5}).strides() == Strides{0, 0, 20, 5, 1});
  CHECK(expand(scalar(3), {1, 1}).strides() == Strides{0, 0});
  // The order of (C, H, W) with C innermost is still told by every stride.
  const Tensor pixels = permute(counting({4, 5, 3}), {2, 0, 1});
  const Tensor image = expand(pixels, {1, 3, 4, 5});
  CHECK(image.strides() == Strides{3, 1, 15, 3});
  CHECK(image.strides() == unsqueeze(pixels, 0).strides());
  CHECK(image.is_contiguous(MemoryFormat::channels_last));
  CHECK(image.to_vector<double>() == pixels.to_vector<double>());
}

TEST_CASE("slice: bounds are clamped as in Python") {
  // list(range(7))[start:end:step]
  struct Case {
    int64_t start, end, step;
    std::vector<double> expected;
  };
  constexpr int64_t kEnd = std::numeric_limits<int64_t>::max();
  const std::vector<Case> cases = {{0, kEnd, 1, {0, 1, 2, 3, 4, 5, 6}},
                                   {1, 6, 2, {1, 3, 5}},
                                   {1, 7, 3, {1, 4}},
                                   {-3, -1, 1, {4, 5}},
                                   {-100, 2, 1, {0, 1}},
                                   {5, 3, 1, {}},
                                   {9, 12, 1, {}},
                                   {6, 7, 5, {6}}};
  const Tensor x = counting({7});
  for (const Case& c : cases) {
    CAPTURE(c.start);
    const Tensor y = slice(x, 0, c.start, c.end, c.step);
    CHECK(y.to_vector<double>() == c.expected);
    CHECK(shares_storage(x, y));
  }
  CHECK_THROWS_WITH_AS(slice(x, 0, 0, 7, 0), "slice: step: expected at least 1, got 0", Error);
  CHECK_THROWS_WITH_AS(slice(x, 1, 0, 7), "slice: axis: expected a value in [-1, 1), got 1", Error);
}

TEST_CASE("narrow and select: one part or one index of an axis") {
  const Tensor x = counting({2, 5});
  CHECK(narrow(x, 1, 1, 3).to_vector<double>() == std::vector<double>{1, 2, 3, 6, 7, 8});
  CHECK(narrow(x, 1, -2, 2).to_vector<double>() == std::vector<double>{3, 4, 8, 9});
  CHECK(narrow(x, 1, 5, 0).sizes() == Sizes{2, 0});
  CHECK(select(x, 0, 1).to_vector<double>() == std::vector<double>{5, 6, 7, 8, 9});
  CHECK(select(x, -1, -1).to_vector<double>() == std::vector<double>{4, 9});
  CHECK_THROWS_WITH_AS(narrow(x, 1, 6, 0), "narrow: start: expected a value in [-5, 5], got 6", Error);
  CHECK_THROWS_WITH_AS(narrow(x, 1, 3, 3), "narrow: length: expected a value in [0, 2] from start 3, got 3", Error);
  CHECK_THROWS_WITH_AS(select(x, 1, 5), "select: index: expected a value in [-5, 5), got 5", Error);
}

TEST_CASE("unsqueeze and squeeze: axes of size 1 come and go") {
  const Tensor x = counting({2, 3});
  CHECK(unsqueeze(x, 0).strides() == Strides{6, 3, 1});
  CHECK(unsqueeze(x, 1).sizes() == Sizes{2, 1, 3});
  CHECK(unsqueeze(x, -1).sizes() == Sizes{2, 3, 1});
  CHECK(squeeze(unsqueeze(x, 1), 1).sizes() == x.sizes());
  CHECK(squeeze(x, 0).is_same(x));
  CHECK(squeeze(counting({1, 2, 1, 3, 1})).sizes() == Sizes{2, 3});
  CHECK(squeeze(counting({1, 1})).rank() == 0);
  CHECK_THROWS_WITH_AS(unsqueeze(x, 3), "unsqueeze: axis: expected a value in [-3, 3), got 3", Error);
  CHECK_THROWS_WITH_AS(squeeze(x, 2), "squeeze: axis: expected a value in [-2, 2), got 2", Error);
}

TEST_CASE("views: share the version of their base") {
  const Tensor x = counting({2, 3, 4});
  for (const Tensor& y : {view(x, {6, 4}), permute(x, {2, 1, 0}), expand(x, {5, 2, 3, 4}), slice(x, 2, 1, 4, 2),
                          select(x, 0, 1), unsqueeze(x, 1), squeeze(unsqueeze(x, 1))}) {
    const int64_t before = x.version();
    y.bump_version();
    CHECK(x.version() == before + 1);
  }
}

TEST_CASE("views: keep the dtype") {
  const Tensor x = from_vector<uint8_t>({1, 2, 3, 4, 5, 6}, {2, 3});
  CHECK(transpose(x, 0, 1).to_vector<int64_t>() == std::vector<int64_t>{1, 4, 2, 5, 3, 6});
  CHECK(slice(x, 1, 1, 3).dtype() == DType::uint8);
}

TEST_CASE("views: gradients, once and twice") {
  // The square makes the second derivative depend on every path.
  const auto squared = [](const Tensor& y) { return Tensors{mul(y, y)}; };
  const Tensors x4 = {random_tensor({2, 3, 4, 5}, 1)};
  const Tensors x2 = {random_tensor({3, 1}, 2)};
  const auto check_view = [&](const char* name, const Tensors& inputs, const std::function<Tensor(const Tensor&)>& f) {
    check_gradients(
        name, [&](const Tensors& in) { return squared(f(in[0])); }, inputs, /* twice= */ true);
  };
  check_view("reshape", x4, [](const Tensor& x) { return reshape(x, {4, 15, 2}); });
  check_view("flatten", x4, [](const Tensor& x) { return flatten(x, 1); });
  check_view("permute", x4, [](const Tensor& x) { return permute(x, {3, 0, 2, 1}); });
  check_view("transpose", x4, [](const Tensor& x) { return transpose(x, 1, 3); });
  check_view("expand", x2, [](const Tensor& x) { return expand(x, {2, 3, 4}); });
  check_view("slice", x4, [](const Tensor& x) { return slice(x, 3, 1, 5, 2); });
  check_view("narrow", x4, [](const Tensor& x) { return narrow(x, 1, 1, 2); });
  check_view("select", x4, [](const Tensor& x) { return select(x, 2, -1); });
  check_view("unsqueeze", x2, [](const Tensor& x) { return unsqueeze(x, 1); });
  check_view("squeeze", x2, [](const Tensor& x) { return squeeze(x, 1); });
  check_view("empty slice", x2, [](const Tensor& x) { return add(slice(x, 0, 2, 2), 1); });
}

TEST_CASE("views: the gradient of a channels_last tensor is channels_last") {
  const auto gradient_format = [](const std::function<Tensor(const Tensor&)>& f) {
    Tensor x = random_tensor({2, 3, 4, 5}, 1);
    x = copy_of(x, MemoryFormat::channels_last).set_requires_grad();
    Tensor seen;
    const Tensor inner = mul(x, 2);
    inner.register_hook([&seen](const Tensor& gradient) {
      seen = gradient;
      return Tensor();
    });
    const Tensor y = f(inner);
    y.backward(random_tensor(y.sizes(), 2));
    return seen.suggest_memory_format();
  };
  CHECK(gradient_format([](const Tensor& x) { return flatten(x, 1); }) == MemoryFormat::channels_last);
  CHECK(gradient_format([](const Tensor& x) { return reshape(x, {2, 3, 20}); }) == MemoryFormat::channels_last);
  CHECK(gradient_format([](const Tensor& x) { return slice(x, 1, 0, 2); }) == MemoryFormat::channels_last);
  CHECK(gradient_format([](const Tensor& x) { return select(x, 0, 1); }) == MemoryFormat::channels_last);
  CHECK(gradient_format([](const Tensor& x) { return unsqueeze(x, 0); }) == MemoryFormat::channels_last);
  CHECK(gradient_format([](const Tensor& x) { return transpose(x, 2, 3); }) == MemoryFormat::channels_last);
  CHECK(gradient_format([](const Tensor& x) { return expand(x, {3, 2, 3, 4, 5}); }) == MemoryFormat::channels_last);
}
