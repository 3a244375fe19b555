#include "ops/shape/copy.h"

#include "ops/pointwise/pointwise.h"
#include "ops/reduce/reduce.h"
#include "ops/shape/join.h"
#include "ops/shape/view.h"
#include "tests/support.h"

using namespace norma;
using namespace norma::test;

namespace {

constexpr MemoryFormat kChannelsLast = MemoryFormat::channels_last;

Tensor channels_last(const Sizes& sizes) {
  return copy_of(random_tensor(sizes, 1), kChannelsLast);
}

}  // namespace

TEST_CASE("memory format: ambiguous shapes, predicates and conversions are those of PyTorch") {
  // x = torch.zeros(sizes)
  // x.stride(), x.is_contiguous(memory_format=torch.channels_last), x.to(memory_format=torch.channels_last).stride(),
  // y = x.contiguous(memory_format=torch.channels_last); y.stride(), y is x        (PyTorch 1.13)
  struct Case {
    Sizes sizes;
    Strides strides;
    bool is_channels_last;
    Strides after_to;
    Strides after_contiguous;
  };
  const std::vector<Case> cases = {
      {{2, 1, 4, 5}, {20, 20, 5, 1}, true, {20, 1, 5, 1}, {20, 20, 5, 1}},
      {{2, 3, 1, 1}, {3, 1, 1, 1}, true, {3, 1, 3, 3}, {3, 1, 1, 1}},
      {{1, 1, 1, 1}, {1, 1, 1, 1}, true, {1, 1, 1, 1}, {1, 1, 1, 1}},
      {{2, 1, 1, 1}, {1, 1, 1, 1}, true, {1, 1, 1, 1}, {1, 1, 1, 1}},
      {{1, 1, 4, 5}, {20, 20, 5, 1}, true, {20, 1, 5, 1}, {20, 20, 5, 1}},
      {{2, 1, 4, 1}, {4, 4, 1, 1}, true, {4, 1, 1, 1}, {4, 4, 1, 1}},
      {{2, 3, 1, 5}, {15, 5, 5, 1}, false, {15, 1, 15, 3}, {15, 1, 15, 3}},
      {{0, 3, 4, 5}, {60, 20, 5, 1}, false, {60, 1, 15, 3}, {60, 1, 15, 3}},
  };
  for (const Case& c : cases) {
    CAPTURE(to_string(c.sizes));
    const Tensor x = random_tensor(c.sizes, 1);
    CHECK(to_string(x.strides()) == to_string(c.strides));
    CHECK(x.is_contiguous(kChannelsLast) == c.is_channels_last);
    CHECK(x.is_contiguous());
    CHECK(x.suggest_memory_format() == MemoryFormat::contiguous);

    const Tensor moved = to(x, kChannelsLast);
    CHECK(to_string(moved.strides()) == to_string(c.after_to));
    CHECK(moved.is_same(x) == (c.after_to == c.strides));
    CHECK(moved.is_contiguous(kChannelsLast));
    CHECK(moved.to_vector<double>() == x.to_vector<double>());

    const Tensor dense = contiguous(x, kChannelsLast);
    CHECK(to_string(dense.strides()) == to_string(c.after_contiguous));
    CHECK(dense.is_same(x) == c.is_channels_last);
    CHECK(dense.to_vector<double>() == x.to_vector<double>());
  }
}

TEST_CASE("memory format: an expanded tensor is in no format, copies of it are") {
  // x = torch.zeros(1, 3, 1, 1).expand(2, 3, 4, 5)   (PyTorch 1.13)
  const Tensor x = expand(random_tensor({1, 3, 1, 1}, 1), {2, 3, 4, 5});
  CHECK(x.strides() == Strides{0, 1, 0, 0});
  CHECK_FALSE(x.is_contiguous());
  CHECK_FALSE(x.is_contiguous(kChannelsLast));
  CHECK(to(x, kChannelsLast).strides() == Strides{60, 1, 15, 3});
  CHECK(contiguous(x, kChannelsLast).strides() == Strides{60, 1, 15, 3});
  CHECK(clone(x).strides() == Strides{60, 20, 5, 1});
  CHECK(empty_like(x).strides() == Strides{60, 20, 5, 1});
  CHECK(clone(x).to_vector<double>() == x.to_vector<double>());
}

TEST_CASE("memory format: only strict strides suggest channels_last") {
  CHECK(channels_last({2, 3, 4, 5}).suggest_memory_format() == kChannelsLast);
  CHECK(to(random_tensor({2, 1, 4, 5}, 1), kChannelsLast).suggest_memory_format() == kChannelsLast);
  CHECK(to(random_tensor({2, 3, 1, 1}, 1), kChannelsLast).suggest_memory_format() == kChannelsLast);
  // N111 and N11W cannot tell
  CHECK(to(random_tensor({2, 1, 1, 1}, 1), kChannelsLast).suggest_memory_format() == MemoryFormat::contiguous);
  // A single image taken out of a batch loses the stride of N (PyTorch issue 68430).
  const Tensor image = unsqueeze(select(channels_last({2, 3, 4, 5}), 0, 0), 0);
  CHECK(image.strides() == Strides{3, 1, 15, 3});
  CHECK(image.is_contiguous(kChannelsLast));
  CHECK(image.suggest_memory_format() == MemoryFormat::contiguous);
}

TEST_CASE("clone: keeps dense strides, makes gaps dense in the suggested format") {
  const Tensor x = random_tensor({2, 3, 4, 5}, 1);
  const Tensor l = channels_last({2, 3, 4, 5});
  CHECK(clone(x).strides() == Strides{60, 20, 5, 1});
  CHECK(clone(l).strides() == Strides{60, 1, 15, 3});
  CHECK(clone(transpose(x, 2, 3)).strides() == Strides{60, 20, 1, 5});
  CHECK(clone(l, MemoryFormat::contiguous).strides() == Strides{60, 20, 5, 1});
  CHECK(clone(x, kChannelsLast).strides() == Strides{60, 1, 15, 3});

  const Tensor half = slice(l, 1, 0, 2);
  CHECK(half.strides() == Strides{60, 1, 15, 3});
  CHECK_FALSE(half.is_contiguous());
  CHECK_FALSE(half.is_contiguous(kChannelsLast));
  CHECK(clone(half).strides() == Strides{40, 1, 10, 2});
  CHECK(clone(half).to_vector<double>() == half.to_vector<double>());
  const Tensor coarse = slice(slice(l, 2, 0, 4, 2), 3, 0, 5, 2);
  CHECK(coarse.strides() == Strides{60, 1, 30, 6});
  CHECK(clone(coarse).strides() == Strides{18, 1, 9, 3});
  CHECK(clone(coarse).to_vector<double>() == coarse.to_vector<double>());
}

TEST_CASE("clone: never the tensor itself") {
  const Tensor x = random_tensor({2, 3}, 1);
  CHECK(clone(x).storage() != x.storage());
  CHECK(clone(x).to_vector<double>() == x.to_vector<double>());
}

TEST_CASE("contiguous: row-major copy of a channels_last tensor") {
  const Tensor l = channels_last({2, 3, 4, 5});
  CHECK(contiguous(l).strides() == Strides{60, 20, 5, 1});
  CHECK(contiguous(l).to_vector<double>() == l.to_vector<double>());
  CHECK(contiguous(l, kChannelsLast).is_same(l));
}

TEST_CASE("to: gaps are closed, exact strides are left alone") {
  const Tensor l = channels_last({2, 3, 4, 5});
  CHECK(to(l, kChannelsLast).is_same(l));
  CHECK(to(l, MemoryFormat::preserve).is_same(l));
  CHECK(to(slice(l, 1, 0, 2), kChannelsLast).strides() == Strides{40, 1, 10, 2});
  CHECK(to(to(random_tensor({2, 1, 4, 5}, 1), kChannelsLast), MemoryFormat::contiguous).strides() ==
        Strides{20, 20, 5, 1});
}

TEST_CASE("to: dtype keeps the strides, goes through all dtypes") {
  const Tensor l = channels_last({2, 3, 4, 5});
  CHECK(to(l, DType::float32).strides() == l.strides());
  CHECK(to(l, DType::float64).is_same(l));
  const Tensor x = from_vector<double>({0, 1, 2.5, 200}, {4});
  for (const DType dtype : {DType::float32, DType::float64, DType::float16, DType::bfloat16}) {
    CHECK(to(x, dtype).to_vector<double>() == std::vector<double>{0, 1, 2.5, 200});
  }
  for (const DType dtype : {DType::int64, DType::int32, DType::uint8}) {
    CHECK(to(x, dtype).to_vector<double>() == std::vector<double>{0, 1, 2, 200});
  }
  CHECK(to(x, DType::boolean).to_vector<double>() == std::vector<double>{0, 1, 1, 1});
}

TEST_CASE("to: an integer copy does not require a gradient, a floating one does") {
  Tensor x = random_tensor({3}, 1);
  x.set_requires_grad();
  CHECK_FALSE(to(x, DType::int64).requires_grad());
  const Tensor y = to(x, DType::float32);
  CHECK(y.requires_grad());
  y.backward(from_vector<float>({1, 2, 3}, {3}));
  CHECK(x.grad().dtype() == DType::float64);
  CHECK(x.grad().to_vector<double>() == std::vector<double>{1, 2, 3});
}

TEST_CASE("copies: gradients, once and twice") {
  const Tensors inputs = {random_tensor({2, 3, 4, 5}, 1)};
  const auto check_copy = [&](const char* name, const std::function<Tensor(const Tensor&)>& f) {
    check_gradients(
        name,
        [&](const Tensors& in) {
          const Tensor y = f(in[0]);
          return Tensors{mul(y, y)};
        },
        inputs, /* twice= */ true);
  };
  check_copy("clone", [](const Tensor& x) { return clone(x); });
  check_copy("contiguous", [](const Tensor& x) { return contiguous(x); });
  check_copy("contiguous, channels_last", [](const Tensor& x) { return contiguous(x, kChannelsLast); });
  check_copy("to contiguous", [](const Tensor& x) { return to(x, MemoryFormat::contiguous); });
  check_copy("to channels_last", [](const Tensor& x) { return to(x, kChannelsLast); });
}

TEST_CASE("to: the gradient of a dtype conversion by finite differences, there and back") {
  // float32 rounds to 6e-8 of a value near 1, so a step of 1e-3 leaves differences good to 1e-4.
  const Tensor values = random_tensor({2, 3, 4, 5}, 1);
  for (const Layout layout : kLayouts) {
    Tensor x = in_layout(values, layout);
    x.set_requires_grad();
    const Tensor weights = random_tensor(x.sizes(), 2);
    const auto f = [&](const Tensor& in) { return sum(mul(to(to(in, DType::float32), DType::float64), weights)); };
    const Tensor gradient = grad({f(x)}, {x})[0];
    CHECK(gradient.dtype() == DType::float64);
    CHECK(gradient.strides() == (layout == Layout::strided ? contiguous_strides(x.sizes()) : x.strides()));
    const std::vector<double> start = x.to_vector<double>();
    const std::vector<double> analytic = gradient.to_vector<double>();
    const NoGradGuard guard;
    for (size_t i = 0; i < start.size(); ++i) {
      std::vector<double> moved = start;
      moved[i] = start[i] + 1e-3;
      const double above = f(from_vector(moved, x.sizes())).item<double>();
      moved[i] = start[i] - 1e-3;
      const double below = f(from_vector(moved, x.sizes())).item<double>();
      CHECK(std::abs((above - below) / 2e-3 - analytic[i]) <= 1e-3);
    }
  }
}

TEST_CASE("copies: the gradient of another format's copy comes back in the input's format") {
  for (const MemoryFormat format : {MemoryFormat::contiguous, kChannelsLast}) {
    Tensor x = copy_of(random_tensor({2, 3, 4, 5}, 1), format);
    x.set_requires_grad();
    const Tensor inner = mul(x, 2);
    Tensor seen;
    inner.register_hook([&seen](const Tensor& gradient) {
      seen = gradient;
      return Tensor();
    });
    const MemoryFormat other = format == kChannelsLast ? MemoryFormat::contiguous : kChannelsLast;
    const Tensor y = to(inner, other);
    y.backward(copy_of(random_tensor({2, 3, 4, 5}, 2), other));
    CHECK(seen.is_contiguous(format));
  }
}

TEST_CASE("copies: error texts") {
  const Tensor x = random_tensor({2, 3, 4}, 1);
  CHECK_THROWS_WITH_AS(to(x, kChannelsLast), "to: x: expected rank 4, got rank 3 (sizes [2, 3, 4])", Error);
  CHECK_THROWS_WITH_AS(clone(x, kChannelsLast), "clone: x: expected rank 4, got rank 3 (sizes [2, 3, 4])", Error);
  CHECK_THROWS_WITH_AS(contiguous(x, kChannelsLast), "contiguous: x: expected rank 4, got rank 3 (sizes [2, 3, 4])",
                       Error);
  CHECK_THROWS_WITH_AS(contiguous(x, MemoryFormat::preserve),
                       "contiguous: format: expected contiguous or channels_last, got preserve", Error);
  CHECK_THROWS_WITH_AS(to(Tensor(), DType::float32), "to: x: expected a tensor, got none", Error);
}
