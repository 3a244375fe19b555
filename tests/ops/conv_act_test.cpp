#include "core/autocast.h"
#include "core/op_profile.h"
#include "error_text.h"
#include "ops/conv/conv.h"
#include "ops/pointwise/pointwise.h"
#include "ops/shape/copy.h"
#include "support.h"

#include <limits>

namespace norma::test {
namespace {

struct Convolution {
  std::string_view name;
  Sizes x;
  Sizes weight;
  Conv2dOptions options;
};

/// Products of pixels, with and without a stride, of all sizes that a library treats differently, and others.
std::vector<Convolution> convolutions() {
  return {{"1x1", {2, 33, 7, 9}, {31, 33, 1, 1}, {}},
          {"1x1, many pixels", {2, 64, 20, 20}, {65, 64, 1, 1}, {}},
          {"1x1/2", {2, 32, 9, 7}, {17, 32, 1, 1}, {.stride = 2}},
          {"3x3", {2, 16, 9, 7}, {33, 16, 3, 3}, {.padding = 1}},
          {"3x3, tiny map", {2, 32, 4, 4}, {32, 32, 3, 3}, {.padding = 1}},
          {"3x3/2 in groups", {1, 8, 9, 11}, {12, 2, 3, 3}, {.stride = 2, .padding = 1, .groups = 4}},
          {"3x3/2 in groups of 3", {3, 9, 7, 7}, {30, 3, 3, 3}, {.stride = 2, .padding = 1, .groups = 3}},
          {"5x5/2 in groups of 1", {3, 8, 3, 3}, {64, 1, 5, 5}, {.stride = 2, .padding = 2, .groups = 8}},
          {"7x7/2 of images", {1, 3, 23, 21}, {64, 3, 7, 7}, {.stride = 2, .padding = 3}},
          {"7x7 depthwise", {2, 19, 8, 9}, {19, 1, 7, 7}, {.padding = 3, .groups = 19}}};
}

ActOptions after(Activation activation, const Tensor& residual, bool with_residual) {
  return {.activation = activation, .residual = with_residual ? residual : Tensor()};
}

constexpr Activation kActivations[] = {Activation::identity, Activation::relu, Activation::gelu, Activation::silu};

}  // namespace

TEST_CASE("conv2d_act: as convolution, addition and activation one after the other, recorded or not") {
  for (const Convolution& c : convolutions()) {
    for (const DType dtype : {DType::float32, DType::float64}) {
      for (const Layout layout : kLayouts) {
        CAPTURE(c.name);
        CAPTURE(to_string(dtype));
        CAPTURE(to_string(layout));
        const Tensor x = in_layout(random_tensor(c.x, 1, dtype), layout);
        const Tensor weight = in_layout(random_tensor(c.weight, 2, dtype), layout);
        const Tensor bias = random_tensor({c.weight[0]}, 3, dtype);
        for (const bool with_bias : {true, false}) {
          const Tensor z = conv2d(x, weight, with_bias ? bias : Tensor(), c.options);
          const Tensor residual = in_layout(random_tensor(z.sizes(), 4, dtype), layout);
          for (const bool with_residual : {true, false}) {
            for (const Activation activation : kActivations) {
              CAPTURE(to_string(activation));
              const Tensor expected = activate(with_residual ? add(z, residual) : z, activation);
              const double tolerance = dtype == DType::float64 ? 1e-12 : 2e-5;
              for (const bool recorded : {true, false}) {
                const GradModeGuard mode(recorded);
                Tensor trained = weight.detach();
                trained.set_requires_grad();
                for (int call = 0; call < 2; ++call) {  // the second meets what the first has kept
                  const Tensor y = conv2d_act(x, trained, with_bias ? bias : Tensor(), c.options,
                                              after(activation, residual, with_residual));
                  CHECK(max_difference(y, expected) <= tolerance);
                  CHECK(y.strides() == z.strides());
                  CHECK(y.requires_grad() == recorded);
                }
              }
            }
          }
        }
      }
    }
  }
}

TEST_CASE("conv2d_act: gradients are those of separate ops") {
  for (const Activation activation : kActivations) {
    CAPTURE(to_string(activation));
    Tensors inputs{random_tensor({2, 3, 5, 4}, 1), random_tensor({4, 3, 3, 3}, 2), random_tensor({4}, 3),
                   random_tensor({2, 4, 5, 4}, 4)};
    for (Tensor& input : inputs) {
      input.set_requires_grad();
    }
    CHECK(gradcheck(
        [&](const Tensors& in) -> Tensors {
          return {conv2d_act(in[0], in[1], in[2], {.padding = 1}, {.activation = activation, .residual = in[3]})};
        },
        inputs));
  }
}

TEST_CASE("conv2d_act: one op where nothing is recorded, of the dtype that convolutions are fused in") {
  const Tensor x = to(random_tensor({1, 16, 8, 8}, 1, DType::float32), MemoryFormat::channels_last);
  const Tensor weight = random_tensor({16, 16, 3, 3}, 2, DType::float32);
  const auto ops = [&](Activation activation) {
    const OpProfile profile;
    conv2d_act(x, weight, {}, {.padding = 1}, {.activation = activation});
    return profile.records().size();
  };
  const bool has_onednn =
      x.device().type != DeviceType::cuda && std::ranges::count(conv2d_implementations(), "onednn") == 1;
  CHECK(ops(Activation::relu) == (has_onednn ? 1 : 2));
  CHECK(ops(Activation::gelu) == (has_onednn ? 1 : 2));
  CHECK(ops(Activation::identity) == 1);
}

TEST_CASE("conv2d_act: is one record, whether one kernel does it or none could") {
  const NoGradGuard no_grad;
  const Tensor weight = random_tensor({16, 16, 3, 3}, 2, DType::float32);
  for (const MemoryFormat format : {MemoryFormat::contiguous, MemoryFormat::channels_last}) {
    const Tensor x = to(random_tensor({1, 16, 8, 8}, 1, DType::float32), format);
    const OpProfile profile;
    conv2d_act(x, weight, {}, {.padding = 1}, {.residual = x});
    CHECK(std::ranges::count_if(profile.records(), [](const OpRecord& r) { return r.work.op == "conv2d"; }) == 1);
  }
}

TEST_CASE("conv2d_act: NaN stays one behind an addition, and behind relu where gradients are recorded") {
  Tensor x = ones({1, 16, 4, 4}, {.dtype = DType::float32, .format = MemoryFormat::channels_last});
  set_element<float>(x, 0, std::numeric_limits<float>::quiet_NaN());
  Tensor weight = ones({16, 16, 1, 1});
  const std::vector<float> sum = conv2d_act(x, weight, {}, {}, {.residual = x}).to_vector<float>();
  CHECK(std::isnan(sum[0]));
  CHECK(sum[1] == 17);
  weight.set_requires_grad();
  const std::vector<float> y = conv2d_act(x, weight, {}, {}, {.activation = Activation::relu}).to_vector<float>();
  CHECK(std::isnan(y[0]));
  CHECK(y[1] == 16);
}

TEST_CASE("conv2d_act: under an Autocast the residual follows, and 16 bits are rounded once") {
  const Tensor x = random_tensor({1, 8, 5, 5}, 1, DType::float32);
  const Tensor weight = random_tensor({8, 8, 1, 1}, 2, DType::float32);
  const Tensor residual = random_tensor({1, 8, 5, 5}, 3, DType::float32);
  const Autocast autocast(DType::bfloat16);
  const Tensor y = conv2d_act(x, weight, {}, {}, {.activation = Activation::relu, .residual = residual});
  CHECK(y.dtype() == DType::bfloat16);
  const Tensor z = add(to(conv2d(x, weight), DType::float32), to(to(residual, DType::bfloat16), DType::float32));
  CHECK(max_difference(to(y, DType::float64), to(to(relu(z), DType::bfloat16), DType::float64)) == 0);
}

TEST_CASE("conv2d_act: errors") {
  const Tensor x = ones({1, 3, 4, 4});
  const Tensor weight = ones({2, 3, 1, 1});
  const auto with = [&](const Tensor& residual) {
    return error_of([&] { conv2d_act(x, weight, {}, {}, {.activation = Activation::relu, .residual = residual}); });
  };
  CHECK(with(ones({1, 2, 4, 5})) == "conv2d_act: residual: expected sizes [1, 2, 4, 4], got [1, 2, 4, 5]");
  CHECK(with(ones({1, 2, 4, 4}, {.dtype = DType::float64})) ==
        "conv2d_act: residual: expected dtype float32, got float64");
}

}  // namespace norma::test
