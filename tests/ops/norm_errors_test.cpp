#include "core/factory.h"
#include "error_text.h"
#include "ops/norm/node.h"
#include "ops/norm/norm.h"
#include "ops/pointwise/pointwise.h"
#include "ops/shape/copy.h"
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
                       "batch_norm: input: expected more than 1 value per channel when training, got sizes [1, 3]",
                       Error);
  CHECK_THROWS_WITH_AS(
      batch_norm(ones({1, 3, 1, 1}), three, three),
      "batch_norm: input: expected more than 1 value per channel when training, got sizes [1, 3, 1, 1]", Error);
  CHECK_THROWS_WITH_AS(batch_norm(x, ones({4}), three), "batch_norm: running_mean: expected sizes [3], got [4]", Error);
  CHECK_THROWS_WITH_AS(batch_norm(x, three, ones({4})), "batch_norm: running_var: expected sizes [3], got [4]", Error);
  CHECK_THROWS_WITH_AS(batch_norm(x, three, {}), "batch_norm: running_var: expected a tensor, got none", Error);
  CHECK_THROWS_WITH_AS(batch_norm(x, {}, three), "batch_norm: running_mean: expected a tensor, got none", Error);
  CHECK(error_of([&] { batch_norm(x, {}, {}, {}, {}, {.num_batches_tracked = zeros({})}); }) ==
        "batch_norm: num_batches_tracked: expected one int64, got float32 []");
  CHECK(error_of([&] {
          batch_norm(x, {}, {}, {}, {}, {.num_batches_tracked = zeros({2}, {.dtype = DType::int64})});
        }) == "batch_norm: num_batches_tracked: expected one int64, got int64 [2]");
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
  CHECK_THROWS_WITH_AS(
      batch_norm(ones({1, 3}), {}, {}, {}, {}, eval),
      "batch_norm: input: expected more than 1 value per channel without running statistics, got sizes [1, 3]", Error);
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
                       "instance_norm: input: expected more than 1 spatial element, got sizes [2, 3, 1, 1]", Error);
  CHECK_THROWS_WITH_AS(instance_norm(ones({2, 3, 4}), ones({2})), "instance_norm: weight: expected sizes [3], got [2]",
                       Error);
}

TEST_CASE("normalize: errors of centring, correction, eps and groups") {
  const Tensor x = random_tensor({2, 6, 4}, 1, DType::float32);
  CHECK_THROWS_WITH_AS(normalize(x, {.reduce = {1}, .eps = NAN}), "normalize: eps: expected a value >= 0, got nan",
                       Error);
  CHECK_THROWS_WITH_AS(normalize(x, {.reduce = {1}, .correction = -1}),
                       "normalize: correction: expected a value >= 0, got -1", Error);
  CHECK_THROWS_WITH_AS(normalize(x, {.reduce = {1}, .centring = Centring::none, .correction = 1}),
                       "normalize: correction: expected 0 for a root mean square, got 1", Error);
  CHECK_THROWS_WITH_AS(
      normalize(x, {.reduce = {1}, .groups = 6, .correction = 1}),
      "normalize: input: expected more than 1 values in each set with correction 1, got 1 (sizes [2, 6, 4])", Error);
  // Groups cut axis 1: they mean nothing where it is not reduced.
  CHECK_THROWS_WITH_AS(normalize(x, {.reduce = {0, 2}, .affine = {1}, .groups = 3}),
                       "normalize: reduce: expected axis 1 among the axes with groups > 1, got [0, 2]", Error);
  CHECK_THROWS_WITH_AS(normalize(x, {.reduce = {-1}, .groups = 2}),
                       "normalize: reduce: expected axis 1 among the axes with groups > 1, got [-1]", Error);
  CHECK_THROWS_WITH_AS(norm_statistics(x, {.reduce = {3}}),
                       "norm_statistics: reduce: expected axes in [-3, 3), got [3]", Error);
  CHECK_THROWS_WITH_AS(normalize(ones({}), {.reduce = {0}}), "normalize: reduce: expected axes in [0, 0), got [0]",
                       Error);
  // Without affine axes there is one weight for all.
  CHECK_THROWS_WITH_AS(normalize(x, {.reduce = {1}}, ones({6})), "normalize: weight: expected sizes [], got [6]",
                       Error);
  CHECK_NOTHROW(normalize(x, {.reduce = {1}}, ones({})));
}

TEST_CASE("norm_act: errors of the residual") {
  const Tensor x = random_tensor({2, 6, 4}, 1, DType::float32);
  const NormSpec spec{.reduce = {1}};
  CHECK_THROWS_WITH_AS(norm_act(x, spec, {}, {}, {.residual = ones({2, 6, 5})}),
                       "norm_act: residual: expected sizes [2, 6, 4], got [2, 6, 5]", Error);
  CHECK_THROWS_WITH_AS(norm_act(x, spec, {}, {}, {.residual = ones({2, 6, 4}, {.dtype = DType::float64})}),
                       "norm_act: residual: expected dtype float32, got float64", Error);
  CHECK_THROWS_WITH_AS(batch_norm(x, {}, {}, {}, {}, {}, {.residual = ones({6})}),
                       "batch_norm: residual: expected sizes [2, 6, 4], got [6]", Error);
}

TEST_CASE("loops of norms: an activation that they lack is an error, not another activation") {
  const Tensor x = to_device(random_tensor({2, 6, 4, 5}, 1, DType::float32), kCpu);
  const auto unknown = static_cast<Activation>(99);
  const char* const text = "normalize: activation: expected one that the CPU's loops compute, got ?";
  for (const NormSpec& spec : {NormSpec{.reduce = {1}}, NormSpec{.reduce = {2, 3}}, NormSpec{.reduce = {3}}}) {
    CHECK_THROWS_WITH_AS(norm_act(x, spec, {}, {}, {.activation = unknown}), text, Error);
    norm_detail::NormNode node;
    node.op = "norm_act";
    node.spec = spec;
    node.x = x;
    node.stats = ones({kernels::kStatsRows * x.numel()}, {.device = kCpu});  // as many sets as there could be
    node.activation = unknown;
    CHECK_THROWS_WITH_AS(norm_detail::norm_backward(node, x, {.x = true}), text, Error);
  }
}

TEST_CASE("normalize_backward: errors") {
  const Tensor x = random_tensor({2, 4, 3, 2}, 1);
  const NormSpec spec{.reduce = {1}, .affine = {1}};
  CHECK_THROWS_WITH_AS(normalize_backward({}, x, spec), "normalize_backward: dy: expected a tensor, got none", Error);
  CHECK_THROWS_WITH_AS(normalize_backward(random_tensor({2, 4, 3, 3}, 1), x, spec),
                       "normalize_backward: dy: expected sizes [2, 4, 3, 2], got [2, 4, 3, 3]", Error);
  CHECK_THROWS_WITH_AS(normalize_backward(to(x, DType::float32), x, spec),
                       "normalize_backward: dy: expected dtype float64, got float32", Error);
  CHECK_THROWS_WITH_AS(normalize_backward(x, x, spec, random_tensor({3}, 1)),
                       "normalize_backward: weight: expected sizes [4], got [3]", Error);
  CHECK_THROWS_WITH_AS(normalize_backward(x, x, {.reduce = {4}}),
                       "normalize_backward: reduce: expected axes in [-4, 4), got [4]", Error);
}

TEST_CASE("norms of 16 bits: errors of the parameters' dtype") {
  const Tensor x = ones({2, 6, 4}, {.dtype = DType::bfloat16});
  CHECK_NOTHROW(batch_norm(x, zeros({6}), ones({6}), ones({6}), zeros({6}, {.dtype = DType::bfloat16})));
  CHECK_THROWS_WITH_AS(group_norm(x, 2, ones({6}, {.dtype = DType::float16})),
                       "group_norm: weight: expected dtype bfloat16, got float16", Error);
  CHECK_THROWS_WITH_AS(batch_norm(x, zeros({6}, {.dtype = DType::float64}), ones({6})),
                       "batch_norm: running_mean: expected dtype bfloat16, got float64", Error);
  CHECK_THROWS_WITH_AS(batch_norm(x, zeros({6}), ones({6}, {.dtype = DType::int64})),
                       "batch_norm: running_var: expected dtype bfloat16, got int64", Error);
}

TEST_CASE("batch norm's relatives: errors") {
  const Tensor x = random_tensor({3, 4, 1, 1}, 1, DType::float32);
  const Tensor four = ones({4});
  CHECK_THROWS_WITH_AS(ghost_batch_norm(x, 0, {}, {}), "ghost_batch_norm: sub_batch: expected at least 1, got 0",
                       Error);
  CHECK_THROWS_WITH_AS(
      ghost_batch_norm(x, 2, {}, {}),  // the last sub-batch is one image of one pixel
      "ghost_batch_norm: input: expected more than 1 value per channel when training, got sizes [1, 4, 1, 1]", Error);
  CHECK_THROWS_WITH_AS(ghost_batch_norm(x, 3, ones({3}), four),
                       "ghost_batch_norm: running_mean: expected sizes [4], got [3]", Error);
  CHECK_THROWS_WITH_AS(ghost_batch_norm(x, 3, {}, {}, {}, {}, {.momentum = -0.1}),
                       "ghost_batch_norm: momentum: expected a value in [0, 1], got -0.1", Error);
  CHECK_THROWS_WITH_AS(ghost_batch_norm(x, 3, {}, {}, {}, {}, {}, {.residual = ones({3, 4})}),
                       "ghost_batch_norm: residual: expected sizes [3, 4, 1, 1], got [3, 4]", Error);
  CHECK_THROWS_WITH_AS(batch_renorm(x, {}, {}), "batch_renorm: running_mean: expected running statistics, got none",
                       Error);
  CHECK_THROWS_WITH_AS(batch_renorm(x, four, four, {}, {}, {.r_max = 0.5}),
                       "batch_renorm: r_max: expected a value >= 1, got 0.5", Error);
  CHECK_THROWS_WITH_AS(batch_renorm(x, four, four, {}, {}, {.d_max = -1}),
                       "batch_renorm: d_max: expected a value >= 0, got -1", Error);
  CHECK_THROWS_WITH_AS(batch_renorm(x, four, four, ones({3})), "batch_renorm: weight: expected sizes [4], got [3]",
                       Error);
  CHECK_THROWS_WITH_AS(batch_renorm(ones({1, 4}), four, four),
                       "batch_renorm: input: expected more than 1 value per channel when training, got sizes [1, 4]",
                       Error);
  // Options are looked at in evaluation too.
  CHECK_THROWS_WITH_AS(batch_norm(x, four, four, {}, {}, {.training = false, .momentum = 2}),
                       "batch_norm: momentum: expected a value in [0, 1], got 2", Error);
}

TEST_CASE("instance_norm with running statistics: errors") {
  const Tensor x = ones({2, 3, 1, 1});
  const Tensor three = ones({3});
  using Options = TrackedInstanceNormOptions;
  CHECK_THROWS_WITH_AS(
      instance_norm(x, three, three, {}, {}, Options{}),
      "instance_norm: input: expected more than 1 spatial element when training, got sizes [2, 3, 1, 1]", Error);
  CHECK_NOTHROW(instance_norm(x, three, three, {}, {}, Options{.training = false}));
  CHECK_THROWS_WITH_AS(instance_norm(x, {}, {}, {}, {}, Options{}),
                       "instance_norm: running_mean: expected running statistics, got none", Error);
  CHECK_THROWS_WITH_AS(instance_norm(x, ones({6}), three, {}, {}, Options{}),
                       "instance_norm: running_mean: expected sizes [3], got [6]", Error);
  CHECK_THROWS_WITH_AS(instance_norm(x, three, three, {}, {}, Options{.training = false, .momentum = 1.01}),
                       "instance_norm: momentum: expected a value in [0, 1], got 1.01", Error);
}

TEST_CASE("rms_norm, simple_norm: errors") {
  const Tensor x = ones({2, 3, 5});
  CHECK_THROWS_WITH_AS(rms_norm({}, {5}), "rms_norm: input: expected a tensor, got none", Error);
  CHECK_THROWS_WITH_AS(rms_norm(x, {}), "rms_norm: normalized_shape: expected at least 1 size, got []", Error);
  CHECK_THROWS_WITH_AS(rms_norm(x, {3}),
                       "rms_norm: normalized_shape: expected the last sizes of the input [2, 3, 5], got [3]", Error);
  CHECK_THROWS_WITH_AS(rms_norm(x, {5}, ones({3})), "rms_norm: weight: expected sizes [5], got [3]", Error);
  CHECK_THROWS_WITH_AS(rms_norm(x, {5}, {}, {.eps = -1}), "rms_norm: eps: expected a value >= 0, got -1", Error);
  CHECK_THROWS_WITH_AS(rms_norm_2d(x), "rms_norm_2d: input: expected rank 4, got rank 3 (sizes [2, 3, 5])", Error);
  CHECK_THROWS_WITH_AS(rms_norm_2d(ones({2, 3, 4, 5}), ones({5})), "rms_norm_2d: weight: expected sizes [3], got [5]",
                       Error);
  CHECK_THROWS_WITH_AS(
      simple_norm(ones({2, 1}), {1}),
      "simple_norm: input: expected more than 1 values in each set with correction 1, got 1 (sizes [2, 1])", Error);
  CHECK_THROWS_WITH_AS(simple_norm(x, {4, 5}),
                       "simple_norm: normalized_shape: expected the last sizes of the input [2, 3, 5], got [4, 5]",
                       Error);
  CHECK_THROWS_WITH_AS(simple_norm_2d(x), "simple_norm_2d: input: expected rank 4, got rank 3 (sizes [2, 3, 5])",
                       Error);
}

TEST_CASE("norms: changing the saved input in place is an error") {
  Tensor leaf = random_tensor({2, 4, 3, 3}, 1, DType::float32);
  leaf.set_requires_grad();
  Tensor x = add(leaf, 1.0);
  const Tensor y = group_norm(x, 2);
  mul_(x, 2.0);
  CHECK_THROWS_WITH_AS(y.backward(ones({2, 4, 3, 3})),
                       "group_norm: saved tensor 0 (float32 [2, 4, 3, 3]) was changed in place: it is at version 1, "
                       "backward needs version 0",
                       Error);
}

TEST_CASE("statistics: names") {
  CHECK(to_string(Statistics::stable) == "stable");
  CHECK(statistics_from_string("sum_of_squares") == Statistics::sum_of_squares);
  CHECK_THROWS_WITH_AS(statistics_from_string("fast"),
                       "norm: statistics: expected stable, welford, two_pass, compensated or sum_of_squares, got fast",
                       Error);
}
