#include "ops/pointwise/pointwise.h"
#include "ops/reduce/reduce.h"
#include "ops/shape/copy.h"
#include "ops/shape/view.h"
#include "support.h"

using namespace norma;
using namespace norma::test;

namespace {

/// Contiguous.
Tensor n(const Sizes& sizes) {
  return zeros(sizes);
}
/// channels_last.
Tensor l(const Sizes& sizes) {
  return zeros(sizes, {.format = MemoryFormat::channels_last});
}
Tensor strided(const Sizes& sizes, const Strides& strides) {
  Tensor x = empty_strided(sizes, strides);
  fill_(x, 0);
  return x;
}

const Sizes kSizes{2, 3, 4, 5};
const Strides kContiguous{60, 20, 5, 1};
const Strides kChannelsLast{60, 1, 15, 3};

void check_strides(const std::string& name, const Tensor& y, const Strides& expected) {
  CHECK_MESSAGE(y.strides() == expected,
                name << ": expected strides " << to_string(expected) << ", got " << to_string(y.strides()));
}

}  // namespace

// All strides here are those of PyTorch 1.13 for the expression in the first column.
TEST_CASE("pointwise: strides of the result, one format") {
  check_strides("N + N", n(kSizes) + n(kSizes), kContiguous);
  check_strides("L + L", l(kSizes) + l(kSizes), kChannelsLast);
  check_strides("L + 0", l(kSizes) + 0, kChannelsLast);
  check_strides("L + rank 0", l(kSizes) + scalar(0), kChannelsLast);
  check_strides("rank 0 + L", scalar(0) + l(kSizes), kChannelsLast);
  check_strides("relu(L)", relu(l(kSizes)), kChannelsLast);
  check_strides("relu(N)", relu(n(kSizes)), kContiguous);
}

TEST_CASE("pointwise: strides of the result, the first operand of full size wins") {
  check_strides("L + N", l(kSizes) + n(kSizes), kChannelsLast);
  check_strides("N + L", n(kSizes) + l(kSizes), kContiguous);
  check_strides("where(L > 0, L, N)", where(greater(l(kSizes), 0), l(kSizes), n(kSizes)), kChannelsLast);
  check_strides("where(N > 0, L, L)", where(greater(n(kSizes), 0), l(kSizes), l(kSizes)), kContiguous);
  check_strides("greater(L, N)", greater(l(kSizes), n(kSizes)), kChannelsLast);
}

TEST_CASE("pointwise: strides of the result, broadcast operands decide nothing") {
  check_strides("(1, 3, 1, 1) + L", n({1, 3, 1, 1}) + l(kSizes), kChannelsLast);
  check_strides("N * (1, 3, 1, 1) L", n(kSizes) * l({1, 3, 1, 1}), kContiguous);
  check_strides("(3, 1, 1) + L", n({3, 1, 1}) + l(kSizes), kChannelsLast);
  check_strides("(5) + L", n({5}) + l(kSizes), kChannelsLast);
  check_strides("(4, 5) + L", n({4, 5}) + l(kSizes), kChannelsLast);
  check_strides("(3, 4, 5) + L", n({3, 4, 5}) + l(kSizes), kContiguous);
  check_strides("L + (3, 4, 5)", l(kSizes) + n({3, 4, 5}), kChannelsLast);
  check_strides("expanded + L", expand(n({1, 3, 1, 1}), kSizes) + l(kSizes), kChannelsLast);
  check_strides("(2, 1, 4, 1) + (1, 3, 1, 5)", n({2, 1, 4, 1}) + n({1, 3, 1, 5}), kContiguous);
  check_strides("(2, 1, 4, 1) L + (1, 3, 1, 5) L", l({2, 1, 4, 1}) + l({1, 3, 1, 5}), {60, 1, 3, 12});
}

TEST_CASE("pointwise: strides of the result, any order of axes is kept") {
  const Tensor x = transpose(n(kSizes), 2, 3);
  check_strides("N.transpose + 0", x + 0, {60, 20, 1, 5});
  check_strides("relu(N.transpose)", relu(x), {60, 20, 1, 5});
  check_strides("N.transpose + N", x + n({2, 3, 5, 4}), {60, 20, 1, 5});
  check_strides("N + N.transpose", n({2, 3, 5, 4}) + x, {60, 20, 4, 1});
  const Tensor permuted = permute(n({2, 3, 4}), {2, 0, 1});
  check_strides("relu(permuted)", relu(permuted), {1, 12, 4});
  check_strides("permuted + permuted", permuted + permuted, {1, 12, 4});
  check_strides("permuted slice + 1", permute(slice(n({2, 3, 8}), 2, 0, 8, 2), {2, 0, 1}) + 1, {1, 12, 4});
}

TEST_CASE("pointwise: strides of the result, slices become dense") {
  const Tensor sparse = slice(slice(l({2, 3, 8, 10}), 2, 0, 8, 2), 3, 0, 10, 2);
  check_strides("relu(L[:, :, ::2, ::2])", relu(sparse), kChannelsLast);
  check_strides("L[:, :, ::2, ::2] + 0", sparse + 0, kChannelsLast);
  check_strides("relu(L[:, :3])", relu(narrow(l({2, 6, 4, 5}), 1, 0, 3)), kChannelsLast);
  check_strides("relu(N[:, :3])", relu(narrow(n({2, 6, 4, 5}), 1, 0, 3)), kContiguous);
  check_strides("relu(expanded)", relu(expand(n({1, 3, 1, 1}), kSizes)), kContiguous);
  check_strides("expanded + 0", expand(n({1, 3, 1, 1}), kSizes) + 0, kContiguous);
}

TEST_CASE("pointwise: strides of the result, sizes that fit both formats") {
  const Tensor one_channel = strided({2, 1, 4, 5}, {20, 1, 5, 1});
  check_strides("relu(C = 1)", relu(one_channel), {20, 20, 5, 1});
  check_strides("(C = 1) + 0", one_channel + 0, {20, 1, 5, 1});
  check_strides("(C = 1) + (C = 1)", one_channel + one_channel, {20, 20, 5, 1});
  check_strides("(C = 1) + N", one_channel + n({2, 1, 4, 5}), {20, 20, 5, 1});
  check_strides("(C = 1) * (1, 1, 1, 1)", one_channel * n({1, 1, 1, 1}), {20, 1, 5, 1});
  const Tensor one_pixel = strided({2, 3, 1, 1}, {3, 1, 3, 3});
  check_strides("relu(1x1)", relu(one_pixel), {3, 1, 1, 1});
  check_strides("1x1 + 0", one_pixel + 0, {3, 1, 3, 3});
  check_strides("1x1 * L", one_pixel * l(kSizes), kChannelsLast);
  check_strides("L * 1x1", l(kSizes) * one_pixel, kChannelsLast);
  check_strides("N * 1x1", n(kSizes) * one_pixel, kContiguous);
  check_strides("1x1 * N", one_pixel * n(kSizes), kContiguous);
}

TEST_CASE("pointwise: strides of the result, no elements") {
  check_strides("relu(L(0, 3, 4, 5))", relu(l({0, 3, 4, 5})), {60, 20, 5, 1});
  check_strides("L(0, 3, 4, 5) + (1, 3, 1, 1)", l({0, 3, 4, 5}) + n({1, 3, 1, 1}), kChannelsLast);
}

TEST_CASE("pointwise: a mixed dtype does not change the strides of the result") {
  const Tensor ints = zeros(kSizes, {.dtype = DType::int64, .format = MemoryFormat::channels_last});
  check_strides("int64 L + N", ints + n(kSizes), kChannelsLast);
  check_strides("N + int64 L", n(kSizes) + ints, kContiguous);
}

// S = (2, 3, 4, 5); gaps = torch.empty_strided(S, (120, 1, 30, 6)); wide = torch.zeros(S, dtype=torch.float64)
// reverse = torch.empty_strided(S, (2, 4, 12, 48)); column = torch.zeros(4, 1, dtype=torch.float64)
// (gaps + wide).stride(), gaps.double().stride(), torch.empty_like(reverse).stride() and so on   (torch 2.15)
TEST_CASE("pointwise: a mixed dtype or a copy does not lose the order of axes with gaps") {
  const Tensor gaps = strided(kSizes, {120, 1, 30, 6});  // channels_last, with a gap behind every pixel
  const Tensor reverse = strided(kSizes, {2, 4, 12, 48});
  const Strides dense_reverse{1, 2, 6, 24};
  const Tensor dense = strided(kSizes, dense_reverse);
  const Tensor wide = zeros(kSizes, {.dtype = DType::float64});
  const Tensor column = zeros({4, 1}, {.dtype = DType::float64});
  check_strides("gaps + wide", gaps + wide, kChannelsLast);
  check_strides("wide + gaps", wide + gaps, kContiguous);
  check_strides("gaps * (4, 1)", gaps * column, kChannelsLast);
  check_strides("reverse - wide", reverse - wide, dense_reverse);
  check_strides("dense + wide", dense + wide, dense_reverse);
  check_strides("maximum", maximum(reverse, wide), dense_reverse);
  check_strides("greater", greater(reverse, wide), dense_reverse);
  check_strides("where", where(greater(scalar(1), 0), reverse, wide), dense_reverse);
  check_strides("integers", to(gaps, DType::int32) + zeros(kSizes, {.dtype = DType::int64}), kChannelsLast);
  check_strides("converted", to(reverse, DType::float64), dense_reverse);
  check_strides("cloned", clone(reverse, MemoryFormat::preserve), dense_reverse);
  check_strides("like", zeros_like(reverse), dense_reverse);
  // A batch of one image repeated keeps the order of the image.
  const Tensor repeated = expand(l({1, 3, 4, 5}), kSizes);
  check_strides("repeated, converted", to(repeated, DType::float64), kChannelsLast);
  check_strides("repeated + wide", repeated + wide, kChannelsLast);
}

TEST_CASE("pointwise: gradients have the format of the input, whatever that of the incoming gradient") {
  using Function = Tensor (*)(const Tensor&);
  const Function functions[] = {
      [](const Tensor& x) { return relu(x); },    [](const Tensor& x) { return gelu(x); },
      [](const Tensor& x) { return silu(x); },    [](const Tensor& x) { return tanh(x); },
      [](const Tensor& x) { return sigmoid(x); }, [](const Tensor& x) { return clamp(x, -1, 1); }};
  for (const Function f : functions) {
    Tensor input = copy_of(random_tensor(kSizes, 1), MemoryFormat::channels_last).set_requires_grad();
    const Tensor middle = input * 1;  // not a leaf: its gradient is not re-strided
    Strides seen;
    middle.register_hook([&](const Tensor& gradient) {
      seen = gradient.strides();
      return Tensor();
    });
    f(middle).backward(random_tensor(kSizes, 2));  // a contiguous gradient
    CHECK(seen == kChannelsLast);
  }
}
