#include "core/tape.h"
#include "error_text.h"
#include "nn/norm/calibrate.h"
#include "nn/norm/convert.h"
#include "nn/norm/factory.h"
#include "nn/norm/norm.h"
#include "nn/sequential.h"
#include "ops/norm/norm.h"
#include "ops/pointwise/pointwise.h"
#include "ops/reduce/reduce.h"
#include "ops/shape/copy.h"
#include "ops/shape/join.h"
#include "ops/shape/view.h"
#include "support.h"

// Norms with a zero-centred weight, and RMS norm over groups of channels.

using namespace norma;
using namespace norma::nn;
using norma::test::error_of;
using norma::test::max_difference;
using norma::test::random_tensor;

namespace {

void randomize(Module& module) {
  module.to(DType::float64);
  uint64_t seed = 7;
  for (const auto& [name, x] : module.state_dict()) {
    copy_into(mul(random_tensor(x.sizes(), ++seed), 0.5), x);
  }
}

Tensor tensor_called(const Module& module, const std::string& wanted) {
  for (const auto& [name, x] : module.state_dict()) {
    if (name == wanted) {
      return x;
    }
  }
  return {};
}

}  // namespace

TEST_CASE("zero-centred norms: start as the others, and are the others with 1 + weight") {
  const Tensor x = random_tensor({3, 6, 4, 5}, 1);
  for (const std::string name : {"layer2d", "rms2d", "seednorm"}) {
    CAPTURE(name);
    const auto plain = make_norm(name, 6);
    const auto centred = make_norm(name + "[offset=true]", 6);
    plain->to(DType::float64);
    centred->to(DType::float64);
    CHECK(max_difference((*centred)(x), (*plain)(x)) == 0);
    randomize(*centred);
    plain->load_state_dict(centred->state_dict());
    copy_into(add(tensor_called(*centred, "weight").detach(), 1), tensor_called(*plain, "weight"));
    CHECK(max_difference((*centred)(x), (*plain)(x)) == 0);
    CHECK(max_difference((*centred)(x), x) > 0.1);
  }
  // 16 bits: 1 + weight is not rounded to them.
  const auto half = make_norm("rms2d[offset=true]", 6);
  half->to(DType::bfloat16);
  copy_into(full({6}, 0x1p-12, {.dtype = DType::bfloat16}), tensor_called(*half, "weight"));
  const Tensor halves = to(x, DType::bfloat16);
  const Tensor expected = rms_norm_2d(halves, full({6}, 1 + 0x1p-12));
  CHECK(max_difference((*half)(halves), expected) == 0);
}

TEST_CASE("zero-centred norms: gradients of the input in every layout, and of the weight") {
  for (const std::string name : {"layer2d[offset=true]", "rms2d[offset=true]", "seednorm[offset=true]",
                                 "rms2d[groups=3]", "rms2d[groups=3,offset=true]"}) {
    CAPTURE(name);
    const auto norm = make_norm(name, 6);
    randomize(*norm);
    test::check_gradients(
        name, [&](const Tensors& in) { return Tensors{(*norm)(in[0])}; }, {random_tensor({2, 6, 2, 3}, 3)},
        /* twice= */ true);
    const Tensor x = random_tensor({2, 6, 2, 3}, 3);
    const Tensor dy = random_tensor({2, 6, 2, 3}, 4);
    Tensor weight = norm->named_parameters().front().second;
    sum(mul((*norm)(x), dy)).backward();
    const Tensor gradient = weight.grad();
    REQUIRE(gradient.defined());
    constexpr double kStep = 1e-6;
    for (int64_t c = 0; c < 6; ++c) {
      const Tensor one = narrow(weight.detach(), 0, c, 1);
      const double before = one.item<double>();
      const auto loss_at = [&](double value) {
        const NoGradGuard no_grad;
        copy_into(full({1}, value, {.dtype = DType::float64}), one);
        return sum(mul((*norm)(x), dy)).item<double>();
      };
      const double slope = (loss_at(before + kStep) - loss_at(before - kStep)) / (2 * kStep);
      copy_into(full({1}, before, {.dtype = DType::float64}), one);
      CHECK(gradient.to_vector<double>()[static_cast<size_t>(c)] == doctest::Approx(slope).epsilon(1e-6));
    }
  }
}

TEST_CASE("rms norm over groups of channels: each group is an rms norm") {
  const Tensor x = random_tensor({2, 6, 3, 5}, 1);
  const Tensor weight = random_tensor({6}, 2);
  Tensors parts;
  for (int64_t group = 0; group < 3; ++group) {
    parts.push_back(rms_norm_2d(narrow(x, 1, 2 * group, 2), narrow(weight, 0, 2 * group, 2), {.eps = 0.1}));
  }
  for (const auto layout : {test::Layout::contiguous, test::Layout::channels_last, test::Layout::strided}) {
    const Tensor y = rms_norm_2d(test::in_layout(x, layout), weight, {.eps = 0.1, .num_groups = 3});
    CHECK(max_difference(y, cat(parts, 1)) < 1e-14);
  }
  CHECK(error_of([&] { rms_norm_2d(x, weight, {.num_groups = 4}); }) ==
        "rms_norm_2d: num_channels must be divisible by num_groups, got num_channels 6, num_groups 4");
  CHECK(error_of([&] { rms_norm_2d(x, weight, {.num_groups = 0}); }) ==
        "rms_norm_2d: num_groups: expected at least 1, got 0");
}

TEST_CASE("zero-centred norms: without a weight there is nothing that an offset could change") {
  const std::string text = ": offset: expected false where affine=false leaves out the weight, got true";
  CHECK(error_of([] { LayerNorm(Sizes{6}, {.affine = false, .offset = true}); }) == "LayerNorm" + text);
  CHECK(error_of([] { LayerNorm2d(6, {.affine = false, .offset = true}); }) == "LayerNorm2d" + text);
  CHECK(error_of([] { RMSNorm2d(6, {.affine = false, .offset = true, .groups = 2}); }) == "RMSNorm2d" + text);
  CHECK(error_of([] { GroupNorm(2, 6, {.affine = false, .offset = true}); }) == "GroupNorm" + text);
}

TEST_CASE("zero-centred norms: conversion, folding and calibration count the 1") {
  Sequential plain{make_norm("layer2d", 6)};
  randomize(plain);
  const Tensor x = random_tensor({3, 6, 4, 5}, 1);
  const Tensor before = plain(x);
  convert_norm(plain, "layer2d", "layer2d[offset=true]");
  CHECK(max_difference(plain(x), before) < 1e-12);
  convert_norm(plain, "layer2d[offset=true]", "layer2d");
  CHECK(max_difference(plain(x), before) < 1e-12);

  CHECK(error_of([&] { convert_norm(plain, "rms2d[groups=4]", "layer2d"); }) ==
        "convert_norm: from: expected a norm of the model, got 'rms2d[groups=4]', which it has none of");

  Sequential old{make_norm("batch", 6)};
  randomize(old);
  copy_into(add(abs(random_tensor({6}, 5)), 0.5), tensor_called(old, "0.running_var"));
  const auto folded = [&](const std::string& norm) {
    Sequential result{make_norm(norm, 6)};
    result.to(DType::float64);
    fold_statistics(result, old);
    return result(x);
  };
  CHECK(max_difference(folded("layer2d[offset=true]"), folded("layer2d")) < 1e-12);
  CHECK(max_difference(folded("layer2d"), x) > 0.1);
}
