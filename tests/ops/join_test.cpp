#include "ops/shape/join.h"

#include "core/parallel.h"
#include "ops/pointwise/pointwise.h"
#include "ops/shape/copy.h"
#include "ops/shape/pad.h"
#include "ops/shape/view.h"
#include "tests/support.h"

using namespace norma;
using namespace norma::test;

namespace {

constexpr MemoryFormat kChannelsLast = MemoryFormat::channels_last;

Tensor indices(const std::vector<int64_t>& values) {
  return from_vector(values, {static_cast<int64_t>(values.size())});
}

/// One square per element, so that second derivatives see every path.
Tensors squared(const Tensor& y) {
  return {mul(y, y)};
}

}  // namespace

TEST_CASE("cat: values along each axis, any strides") {
  const Tensor a = random_tensor({2, 3, 4, 5}, 1);
  for (int64_t axis = 0; axis < 4; ++axis) {
    Sizes sizes = a.sizes();
    sizes[axis] = 2;
    const Tensor b = random_tensor(sizes, 2);
    for (const Layout layout : kLayouts) {
      const Tensor y = cat({in_layout(a, layout), b, in_layout(a, layout)}, axis - 4);
      CHECK(y.size(axis) == 2 * a.size(axis) + 2);
      CHECK(max_difference(narrow(y, axis, 0, a.size(axis)), a) == 0);
      CHECK(max_difference(narrow(y, axis, a.size(axis), 2), b) == 0);
      CHECK(max_difference(narrow(y, axis, a.size(axis) + 2, a.size(axis)), a) == 0);
    }
  }
}

TEST_CASE("cat: channels_last iff all inputs suggest it") {
  // torch.cat([L, L], 1).stride() == (120, 1, 30, 6); [L, N] and [N, L]: (120, 20, 5, 1)   (PyTorch 1.13)
  const Tensor n = random_tensor({2, 3, 4, 5}, 1);
  const Tensor l = copy_of(n, kChannelsLast);
  CHECK(cat({l, l}, 1).strides() == Strides{120, 1, 30, 6});
  CHECK(cat({l, n}, 1).strides() == Strides{120, 20, 5, 1});
  CHECK(cat({n, l}, 1).strides() == Strides{120, 20, 5, 1});
  CHECK(cat({slice(l, 1, 0, 2), l}, 1).suggest_memory_format() == kChannelsLast);
}

TEST_CASE("cat: one tensor is copied, empty parts do nothing, dtypes are kept") {
  const Tensor x = random_tensor({2, 3}, 1);
  CHECK(cat({x}, 0).storage() != x.storage());
  CHECK(max_difference(cat({x, zeros({2, 0}, {.dtype = DType::float64})}, 1), x) == 0);
  CHECK(cat({indices({1, 2}), indices({3})}, 0).to_vector<int64_t>() == std::vector<int64_t>{1, 2, 3});
}

TEST_CASE("stack: a new axis anywhere") {
  const Tensor a = random_tensor({2, 3}, 1);
  const Tensor b = random_tensor({2, 3}, 2);
  for (const int64_t axis : {0, 1, 2, -1}) {
    const Tensor y = stack({a, b}, axis);
    CHECK(y.rank() == 3);
    CHECK(max_difference(select(y, axis, 0), a) == 0);
    CHECK(max_difference(select(y, axis, 1), b) == 0);
  }
}

TEST_CASE("cat and stack: error texts") {
  const Tensor x = random_tensor({2, 3}, 1);
  CHECK_THROWS_WITH_AS(cat({}, 0), "cat: xs: expected at least one tensor, got none", Error);
  CHECK_THROWS_WITH_AS(cat({x, random_tensor({3, 3}, 1)}, 1),
                       "cat: xs[1]: expected sizes [2, 3] but for axis 1, got [3, 3]", Error);
  CHECK_THROWS_WITH_AS(cat({x, random_tensor({3}, 1)}, 0), "cat: xs[1]: expected rank 2, got rank 1 (sizes [3])",
                       Error);
  CHECK_THROWS_WITH_AS(cat({x, zeros({2, 3})}, 0), "cat: xs[1]: expected dtype float64, got float32", Error);
  CHECK_THROWS_WITH_AS(cat({x, Tensor()}, 0), "cat: xs[1]: expected a tensor, got none", Error);
  CHECK_THROWS_WITH_AS(cat({x, x}, 2), "cat: axis: expected a value in [-2, 2), got 2", Error);
  CHECK_THROWS_WITH_AS(stack({}, 0), "stack: xs: expected at least one tensor, got none", Error);
  CHECK_THROWS_WITH_AS(stack({x, random_tensor({2, 4}, 1)}, 0), "stack: xs[1]: expected sizes [2, 3], got [2, 4]",
                       Error);
}

TEST_CASE("pad: values against a plain loop, padding and cropping, both formats") {
  const Tensor x = random_tensor({2, 3, 4, 5}, 1);
  struct Case {
    Sizes before, after;
  };
  const std::vector<Case> cases = {{{0, 0, 1, 2}, {0, 0, 3, 0}},    {{1, 0, 0, 0}, {0, 2, 0, 0}},
                                   {{0, 0, -1, -2}, {0, 0, -2, 0}}, {{0, 0, -1, 3}, {0, 0, 2, -4}},
                                   {{0, 0, 9, 0}, {0, 0, -6, 0}},   {{0, 0, -4, 0}, {0, 0, 0, 0}}};
  for (const Case& c : cases) {
    for (const Layout layout : kLayouts) {
      CAPTURE(to_string(c.before));
      CAPTURE(to_string(layout));
      const Tensor in = in_layout(x, layout);
      const Tensor y = pad(in, c.before, c.after, -7.5);
      CHECK(y.suggest_memory_format() == (y.numel() > 0 ? in.suggest_memory_format() : MemoryFormat::contiguous));
      const std::vector<double> from = x.to_vector<double>();
      std::vector<double> expected;
      Sizes at = {0, 0, 0, 0};
      for (at[0] = 0; at[0] < y.size(0); ++at[0]) {
        for (at[1] = 0; at[1] < y.size(1); ++at[1]) {
          for (at[2] = 0; at[2] < y.size(2); ++at[2]) {
            for (at[3] = 0; at[3] < y.size(3); ++at[3]) {
              int64_t position = 0;
              bool inside = true;
              for (int64_t axis = 0; axis < 4; ++axis) {
                const int64_t index = at[axis] - c.before[axis];
                // Padding in front does not bring back what is cropped behind, nor the other way round.
                inside = inside && index >= 0 && index < x.size(axis);
                position = position * x.size(axis) + index;
              }
              expected.push_back(inside ? from[static_cast<size_t>(position)] : -7.5);
            }
          }
        }
      }
      CHECK(y.to_vector<double>() == expected);
    }
  }
}

TEST_CASE("pad: error texts") {
  const Tensor x = random_tensor({2, 3}, 1);
  CHECK_THROWS_WITH_AS(pad(x, {1}, {1, 1}), "pad: before: expected 2 numbers, one per axis, got [1]", Error);
  CHECK_THROWS_WITH_AS(pad(x, {1, 1}, {1, 1, 1}), "pad: after: expected 2 numbers, one per axis, got [1, 1, 1]", Error);
  CHECK_THROWS_WITH_AS(pad(x, {0, -2}, {0, -2}),
                       "pad: before, after: expected to crop at most 3 elements of axis 1, got -2 and -2", Error);
}

TEST_CASE("index_select: rows along each axis, in any order, repeated, any strides and dtype") {
  const std::vector<int64_t> rows = {2, 0, 2, 1};
  for (const DType dtype : {DType::float64, DType::float32, DType::bfloat16, DType::float16, DType::int64, DType::int32,
                            DType::uint8, DType::boolean}) {
    const Tensor x = to(abs(random_tensor({4, 3, 5, 6}, 1)), dtype);
    for (const Layout layout : kLayouts) {
      for (int64_t axis = 0; axis < 4; ++axis) {
        const Tensor in = in_layout(x, layout);
        const Tensor y = index_select(in, axis, indices(rows));
        CHECK(y.size(axis) == 4);
        CHECK(y.suggest_memory_format() == in.suggest_memory_format());
        for (size_t i = 0; i < rows.size(); ++i) {
          CHECK(max_difference(select(y, axis, static_cast<int64_t>(i)), select(x, axis, rows[i])) == 0);
        }
      }
    }
  }
  CHECK(index_select(random_tensor({4, 3, 5, 6}, 1), 0, indices({})).sizes() == Sizes{0, 3, 5, 6});
  CHECK(index_select(from_vector<uint8_t>({7, 8, 9}, {3}), 0, indices({2, 2})).to_vector<int64_t>() ==
        std::vector<int64_t>{9, 9});
}

TEST_CASE("index_select: a strided index") {
  const Tensor x = random_tensor({4, 3}, 1);
  const Tensor y = index_select(x, 0, slice(indices({3, 0, 1, 0, 2}), 0, 0, 5, 2));
  CHECK(max_difference(y, index_select(x, 0, indices({3, 1, 2}))) == 0);
}

TEST_CASE("index_select: gradients of repeated rows add up, with the same bits for any number of threads") {
  const int before = num_threads();
  Generator generator(3);
  const Tensor index = randint(0, 5, {200}, {.dtype = DType::int64}, generator);
  std::vector<std::vector<float>> gradients;
  for (const int threads : {1, 2, 3}) {
    set_num_threads(threads);
    Tensor x = random_tensor({5, 1031}, 1, DType::float32).set_requires_grad();
    index_select(x, 0, index).backward(random_tensor({200, 1031}, 2, DType::float32));
    gradients.push_back(x.grad().to_vector<float>());
  }
  set_num_threads(before);
  CHECK(gradients[0] == gradients[1]);
  CHECK(gradients[0] == gradients[2]);
  // against a plain loop
  const std::vector<float> dy = random_tensor({200, 1031}, 2, DType::float32).to_vector<float>();
  const std::vector<int64_t> rows = index.to_vector<int64_t>();
  std::vector<float> expected(5 * 1031, 0.0F);
  for (size_t i = 0; i < rows.size(); ++i) {
    for (size_t j = 0; j < 1031; ++j) {
      expected[static_cast<size_t>(rows[i]) * 1031 + j] += dy[i * 1031 + j];
    }
  }
  CHECK(gradients[0] == expected);
}

TEST_CASE("gather_rows: one element per row, any strides") {
  const Tensor x = random_tensor({3, 4}, 1);
  const std::vector<double> v = x.to_vector<double>();
  for (const Layout layout : kLayouts) {
    CHECK(gather_rows(in_layout(x, layout), indices({2, 0, 3})).to_vector<double>() ==
          std::vector<double>{v[2], v[4], v[11]});
  }
}

TEST_CASE("index_select and gather_rows: error texts") {
  const Tensor x = random_tensor({3, 4}, 1);
  CHECK_THROWS_WITH_AS(index_select(x, 0, indices({0, 3})),
                       "index_select: index: expected values in [0, 3), got 3 at position 1", Error);
  CHECK_THROWS_WITH_AS(index_select(x, 0, indices({-1})),
                       "index_select: index: expected values in [0, 3), got -1 at position 0", Error);
  CHECK_THROWS_WITH_AS(index_select(x, 0, zeros({2})), "index_select: index: expected dtype int64, got float32", Error);
  CHECK_THROWS_WITH_AS(index_select(x, 0, zeros({1, 2}, {.dtype = DType::int64})),
                       "index_select: index: expected rank 1, got rank 2 (sizes [1, 2])", Error);
  CHECK_THROWS_WITH_AS(gather_rows(x, indices({0, 4, 1})),
                       "gather_rows: index: expected values in [0, 4), got 4 at position 1", Error);
  CHECK_THROWS_WITH_AS(gather_rows(x, indices({0, 1})), "gather_rows: index: expected sizes [3], got [2]", Error);
  CHECK_THROWS_WITH_AS(gather_rows(random_tensor({3}, 1), indices({0, 1, 2})),
                       "gather_rows: x: expected rank 2, got rank 1 (sizes [3])", Error);
}

TEST_CASE("cat, stack, pad, index_select, gather_rows: gradients, once and twice") {
  const Tensor a = random_tensor({2, 3, 4, 5}, 1);
  const Tensor b = random_tensor({2, 1, 4, 5}, 2);
  check_gradients(
      "cat",
      [](const Tensors& in) {
        return squared(cat({in[0], in[1], in[0]}, 1));
      },
      {a, b}, true);
  check_gradients(
      "stack",
      [](const Tensors& in) {
        return squared(stack({in[0], in[1]}, 1));
      },
      {random_tensor({2, 3}, 1), random_tensor({2, 3}, 2)}, true);
  check_gradients(
      "stack, rank 4",
      [](const Tensors& in) {
        return squared(stack({in[0], in[1], in[0]}, -2));
      },
      {a, random_tensor({2, 3, 4, 5}, 2)}, true);
  check_gradients(
      "pad",
      [](const Tensors& in) {
        return squared(pad(in[0], {0, 1, -1, 2}, {0, 0, 2, -3}, 0.5));
      },
      {a}, true);
  check_gradients(
      "index_select",
      [](const Tensors& in) {
        return squared(index_select(in[0], 2, indices({3, 1, 1, 3, 0})));
      },
      {a}, true);
  check_gradients(
      "gather_rows",
      [](const Tensors& in) {
        return squared(gather_rows(in[0], indices({2, 2, 0})));
      },
      {random_tensor({3, 4}, 1)}, true);
}
