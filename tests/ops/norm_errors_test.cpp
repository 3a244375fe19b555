#include "ops/norm/norm.h"
#include "ops/pointwise/pointwise.h"
#include "support.h"

using namespace norma;
using namespace norma::test;

TEST_CASE("normalize: errors") {
  const Tensor x = random_tensor({2, 30, 4, 5}, 1, DType::float32);
  CHECK_THROWS_WITH_AS(normalize({}, {.reduce = {1}}), "normalize: input: expected a tensor, got none", Error);
  CHECK_THROWS_WITH_AS(normalize(zeros({2, 3}, {.dtype = DType::int64}), {.reduce = {1}}),
                       "normalize: input: expected dtype float32, float64, bfloat16 or float16, got int64", Error);
  CHECK_THROWS_WITH_AS(normalize(x, {.reduce = {}}), "normalize: reduce: expected at least 1 axis, got []", Error);
  CHECK_THROWS_WITH_AS(normalize(x, {.reduce = {1, 4}}), "normalize: reduce: expected axes in [-4, 4), got [1, 4]",
                       Error);
  CHECK_THROWS_WITH_AS(normalize(x, {.reduce = {1}, .affine = {-5}}),
                       "normalize: affine: expected axes in [-4, 4), got [-5]", Error);
  CHECK_THROWS_WITH_AS(normalize(x, {.reduce = {1, -3}}), "normalize: reduce: expected each axis once, got [1, -3]",
                       Error);
  CHECK_THROWS_WITH_AS(normalize(x, {.reduce = {1}, .affine = {2, 2}}),
                       "normalize: affine: expected each axis once, got [2, 2]", Error);
  CHECK_THROWS_WITH_AS(normalize(x, {.reduce = {1}, .eps = -1e-5}), "normalize: eps: expected a value >= 0, got -1e-05",
                       Error);
  CHECK_THROWS_WITH_AS(normalize(x, {.reduce = {1}, .groups = 0}), "normalize: groups: expected at least 1, got 0",
                       Error);
  CHECK_THROWS_WITH_AS(normalize(x, {.reduce = {2, 3}, .groups = 2}),
                       "normalize: reduce: expected axis 1 among the axes with groups > 1, got [2, 3]", Error);
  CHECK_THROWS_WITH_AS(normalize(x, {.reduce = {1}, .groups = 4}),
                       "normalize: num_channels must be divisible by num_groups, got num_channels 30, num_groups 4",
                       Error);
  CHECK_THROWS_WITH_AS(normalize(x, {.reduce = {1}, .affine = {1}}, ones({31})),
                       "normalize: weight: expected sizes [30], got [31]", Error);
  CHECK_THROWS_WITH_AS(normalize(x, {.reduce = {1}, .affine = {1, 2}}, {}, ones({30})),
                       "normalize: bias: expected sizes [30, 4], got [30]", Error);
  CHECK_THROWS_WITH_AS(normalize(x, {.reduce = {1}, .affine = {1}}, ones({30}, {.dtype = DType::float64})),
                       "normalize: weight: expected dtype float32, got float64", Error);
}

TEST_CASE("batch_norm: errors") {
  const Tensor x = random_tensor({2, 3, 4, 5}, 1, DType::float32);
  const Tensor three = ones({3});
  CHECK_THROWS_WITH_AS(batch_norm({}, {}, {}), "batch_norm: input: expected a tensor, got none", Error);
  CHECK_THROWS_WITH_AS(batch_norm(ones({3}), {}, {}), "batch_norm: input: expected rank 2 to 5, got rank 1 (sizes [3])",
                       Error);
  CHECK_THROWS_WITH_AS(batch_norm(zeros({2, 3}, {.dtype = DType::int32}), {}, {}),
                       "batch_norm: input: expected dtype float32, float64, bfloat16 or float16, got int32", Error);
  CHECK_THROWS_WITH_AS(batch_norm(ones({1, 3}), {}, {}),
                       "batch_norm: expected more than 1 value per channel when training, got input sizes [1, 3]",
                       Error);
  CHECK_THROWS_WITH_AS(batch_norm(ones({1, 3, 1, 1}), three, three),
                       "batch_norm: expected more than 1 value per channel when training, got input sizes [1, 3, 1, 1]",
                       Error);
  CHECK_THROWS_WITH_AS(batch_norm(x, ones({4}), three), "batch_norm: running_mean: expected sizes [3], got [4]", Error);
  CHECK_THROWS_WITH_AS(batch_norm(x, three, ones({4})), "batch_norm: running_var: expected sizes [3], got [4]", Error);
  CHECK_THROWS_WITH_AS(batch_norm(x, three, {}), "batch_norm: running_var: expected a tensor, got none", Error);
  CHECK_THROWS_WITH_AS(batch_norm(x, {}, three), "batch_norm: running_mean: expected a tensor, got none", Error);
  CHECK_THROWS_WITH_AS(batch_norm(x, ones({3}, {.dtype = DType::float64}), three),
                       "batch_norm: running_mean: expected dtype float32, got float64", Error);
  CHECK_THROWS_WITH_AS(batch_norm(x, {}, {}, ones({4})), "batch_norm: weight: expected sizes [3], got [4]", Error);
  CHECK_THROWS_WITH_AS(batch_norm(x, {}, {}, three, ones({2})), "batch_norm: bias: expected sizes [3], got [2]", Error);
  CHECK_THROWS_WITH_AS(batch_norm(x, {}, {}, {}, {}, {.momentum = 1.5}),
                       "batch_norm: momentum: expected a value in [0, 1], got 1.5", Error);
  CHECK_THROWS_WITH_AS(batch_norm(x, {}, {}, {}, {}, {.eps = -1}), "batch_norm: eps: expected a value >= 0, got -1",
                       Error);
  // The same in evaluation, where one value per channel is enough.
  const BatchNormOptions eval{.training = false};
  CHECK_THROWS_WITH_AS(batch_norm(x, three, three, ones({4}), {}, eval),
                       "batch_norm: weight: expected sizes [3], got [4]", Error);
  CHECK_THROWS_WITH_AS(batch_norm(x, three, three, {}, ones({4}), eval),
                       "batch_norm: bias: expected sizes [3], got [4]", Error);
  CHECK_THROWS_WITH_AS(batch_norm(x, three, three, {}, {}, {.training = false, .eps = -1}),
                       "batch_norm: eps: expected a value >= 0, got -1", Error);
  CHECK_NOTHROW(batch_norm(ones({1, 3}), three, three, {}, {}, eval));
  CHECK_THROWS_WITH_AS(batch_norm(ones({1, 3}), {}, {}, {}, {}, eval),
                       "batch_norm: expected more than 1 value per channel when training, got input sizes [1, 3]",
                       Error);
}

TEST_CASE("layer_norm: errors") {
  const Tensor x = random_tensor({2, 3, 5}, 1, DType::float32);
  CHECK_THROWS_WITH_AS(layer_norm({}, {5}), "layer_norm: input: expected a tensor, got none", Error);
  CHECK_THROWS_WITH_AS(layer_norm(x, {}), "layer_norm: normalized_shape: expected at least 1 size, got []", Error);
  CHECK_THROWS_WITH_AS(layer_norm(x, {4}),
                       "layer_norm: normalized_shape: expected the last sizes of the input [2, 3, 5], got [4]", Error);
  CHECK_THROWS_WITH_AS(layer_norm(x, {1, 2, 3, 5}),
                       "layer_norm: normalized_shape: expected the last sizes of the input [2, 3, 5], got [1, 2, 3, 5]",
                       Error);
  CHECK_THROWS_WITH_AS(layer_norm(x, {5}, ones({3})), "layer_norm: weight: expected sizes [5], got [3]", Error);
  CHECK_THROWS_WITH_AS(layer_norm(x, {3, 5}, ones({3, 5}), ones({5})),
                       "layer_norm: bias: expected sizes [3, 5], got [5]", Error);
}

TEST_CASE("layer_norm_2d: errors") {
  CHECK_THROWS_WITH_AS(layer_norm_2d(ones({2, 3, 4})),
                       "layer_norm_2d: input: expected rank 4, got rank 3 (sizes [2, 3, 4])", Error);
  CHECK_THROWS_WITH_AS(layer_norm_2d(ones({2, 3, 4, 5}), ones({4})),
                       "layer_norm_2d: weight: expected sizes [3], got [4]", Error);
  CHECK_THROWS_WITH_AS(layer_norm_2d(ones({2, 3, 4, 5}), {}, ones({4})),
                       "layer_norm_2d: bias: expected sizes [3], got [4]", Error);
}

TEST_CASE("group_norm: errors") {
  const Tensor x = ones({2, 30, 4, 5});
  CHECK_THROWS_WITH_AS(group_norm(x, 4),
                       "group_norm: num_channels must be divisible by num_groups, got num_channels 30, num_groups 4",
                       Error);
  CHECK_THROWS_WITH_AS(group_norm(x, 0), "group_norm: num_groups: expected at least 1, got 0", Error);
  CHECK_THROWS_WITH_AS(group_norm(ones({3}), 1), "group_norm: input: expected rank 2 to 5, got rank 1 (sizes [3])",
                       Error);
  CHECK_THROWS_WITH_AS(group_norm(x, 3, ones({3})), "group_norm: weight: expected sizes [30], got [3]", Error);
  CHECK_THROWS_WITH_AS(group_norm(x, 3, ones({30}), ones({3})), "group_norm: bias: expected sizes [30], got [3]",
                       Error);
}

TEST_CASE("instance_norm: errors") {
  CHECK_THROWS_WITH_AS(instance_norm(ones({2, 3})),
                       "instance_norm: input: expected rank 3 to 5, got rank 2 (sizes [2, 3])", Error);
  CHECK_THROWS_WITH_AS(instance_norm(ones({2, 3, 1, 1})),
                       "instance_norm: expected more than 1 spatial element, got input sizes [2, 3, 1, 1]", Error);
  CHECK_THROWS_WITH_AS(instance_norm(ones({2, 3, 4}), ones({2})), "instance_norm: weight: expected sizes [3], got [2]",
                       Error);
}

TEST_CASE("norms: changing the saved input in place is an error") {
  Tensor leaf = random_tensor({2, 4, 3, 3}, 1, DType::float32);
  leaf.set_requires_grad();
  Tensor x = add(leaf, 1.0);
  const Tensor y = group_norm(x, 2);
  mul_(x, 2.0);
  CHECK_THROWS_AS(y.backward(ones({2, 4, 3, 3})), Error);
}

TEST_CASE("statistics: names") {
  CHECK(to_string(Statistics::stable) == "stable");
  CHECK(statistics_from_string("sum_of_squares") == Statistics::sum_of_squares);
  CHECK_THROWS_WITH_AS(statistics_from_string("fast"),
                       "norm: statistics: expected stable, welford, two_pass, compensated or sum_of_squares, got fast",
                       Error);
}
