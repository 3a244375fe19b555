#include "nn/norm/map_norms.h"

#include "error_text.h"
#include "nn/conv.h"
#include "ops/pointwise/pointwise.h"
#include "ops/shape/copy.h"

using namespace norma;
using namespace norma::nn;
using norma::test::error_of;
using norma::test::largest_number;
using norma::test::max_difference;
using norma::test::random_tensor;

namespace {

// Random positive numbers in all tensors of a module, which becomes float64; they come back in the order of the names.
Tensors randomize(Module& module) {
  module.to(DType::float64);
  Tensors tensors;
  for (const auto& [name, x] : module.state_dict()) {
    copy_into(add(abs(random_tensor(x.sizes(), 11 + tensors.size())), 0.1), x);
    tensors.push_back(x);
  }
  return tensors;
}

// "weight [12] 1, bias [12] 0": the state dict with sizes and start values.
std::string start(const Module& module) {
  std::string text;
  for (const auto& [name, x] : module.state_dict()) {
    const std::vector<double> values = x.to_vector<double>();
    CHECK(max_difference(x, full(x.sizes(), values[0])) == 0);
    text += fmt::format("{}{} {} {}", text.empty() ? "" : ", ", name, to_string(x.sizes()), values[0]);
  }
  return text;
}

}  // namespace

TEST_CASE("response norm layers: names, sizes and start values of parameters and buffers") {
  CHECK(start(EvoNorm2dB0(12)) == "weight [12] 1, bias [12] 0, v [12] 1, running_var [12] 1");
  CHECK(start(EvoNorm2dS0(4, 12)) == "weight [12] 1, bias [12] 0, v [12] 1");
  CHECK(start(FilterResponseNormTlu2d(12)) == "weight [12] 1, bias [12] 0, tau [12] 0");
  CHECK(start(GlobalResponseNorm(12)) == "weight [12] 0, bias [12] 0");
  CHECK(start(DynamicTanh(12)) == "alpha [1] 0.5, weight [12] 1, bias [12] 0");
  CHECK(start(DynamicTanh(12, {.alpha = 0.25})) == "alpha [1] 0.25, weight [12] 1, bias [12] 0");
  CHECK(start(LocalResponseNorm(5)).empty());
  CHECK(EvoNorm2dB0(12).parameters().size() == 3);
}

TEST_CASE("response norm layers: one line for people") {
  CHECK(LocalResponseNorm(5).name() == "LocalResponseNorm(5, alpha=0.0001, beta=0.75, k=1)");
  CHECK(EvoNorm2dB0(12).name() == "EvoNorm2dB0(12, eps=0.001, momentum=0.1)");
  CHECK(EvoNorm2dB0(12, {.statistics = Statistics::welford}).name() ==
        "EvoNorm2dB0(12, eps=0.001, momentum=0.1, statistics=welford)");
  CHECK(EvoNorm2dS0(4, 12).name() == "EvoNorm2dS0(4, 12, eps=1e-05)");
  CHECK(FilterResponseNormTlu2d(12).name() == "FilterResponseNormTlu2d(12, eps=1e-05)");
  CHECK(GlobalResponseNorm(12).name() == "GlobalResponseNorm(12, eps=1e-06)");
  CHECK(start(DynamicErf(12, {.alpha = 0.25, .shift = 0.125})) ==
        "alpha [1] 0.25, shift [1] 0.125, weight [12] 1, bias [12] 0");
  CHECK(DynamicErf(12, {.axis = -1}).name() == "DynamicErf(12, alpha=0.5, shift=0, axis=-1)");
  CHECK(start(SeedNorm(12)) == "weight [12] 1, alpha [12] 1, beta [12] 0");
  CHECK(start(SeedNorm(12, {.offset = true})) == "weight [12] 0, alpha [12] 1, beta [12] 0");
  CHECK(SeedNorm(12).name() == "SeedNorm(12, eps=1e-06)");
  CHECK(SeedNorm(12, {.eps = 0.1, .axis = -1}).name() == "SeedNorm(12, eps=0.1, axis=-1)");
  CHECK(DynamicTanh(12).name() == "DynamicTanh(12, alpha=0.5)");
  CHECK(DynamicTanh(12, {.axis = -1}).name() == "DynamicTanh(12, alpha=0.5, axis=-1)");
}

TEST_CASE("response norm layers: hand parameters and options to their functions") {
  const Tensor x = random_tensor({3, 6, 2, 4}, 1);
  LocalResponseNorm local(4, {.alpha = 2, .beta = 0.5, .k = 3});
  CHECK(max_difference(local(x), local_response_norm(x, 4, {.alpha = 2, .beta = 0.5, .k = 3})) == 0);

  EvoNorm2dB0 b0(6, {.eps = 0.1, .momentum = 0.25});
  const Tensors of_b0 = randomize(b0);
  const Tensor running_var = copy_of(of_b0[3], MemoryFormat::contiguous);
  CHECK(max_difference(b0(x),
                       evo_norm_b0(x, running_var, of_b0[2], of_b0[0], of_b0[1], {.momentum = 0.25, .eps = 0.1})) == 0);
  CHECK(max_difference(of_b0[3], running_var) == 0);  // both took the batch
  b0.eval();
  CHECK(max_difference(
            b0(x), evo_norm_b0(x, running_var, of_b0[2], of_b0[0], of_b0[1], {.training = false, .eps = 0.1})) == 0);
  CHECK(max_difference(of_b0[3], running_var) == 0);

  EvoNorm2dS0 s0(3, 6, {.eps = 0.1});
  const Tensors of_s0 = randomize(s0);
  CHECK(max_difference(s0(x), evo_norm_s0(x, 3, of_s0[2], of_s0[0], of_s0[1], {.eps = 0.1})) == 0);

  FilterResponseNormTlu2d frn(6, {.eps = 0.1});
  const Tensors of_frn = randomize(frn);
  CHECK(max_difference(frn(x), filter_response_norm(x, of_frn[0], of_frn[1], of_frn[2], {.eps = 0.1})) == 0);

  GlobalResponseNorm grn(6, {.eps = 0.1});
  CHECK(max_difference(grn(to(x, DType::float32)), to(x, DType::float32)) == 0);
  const Tensors of_grn = randomize(grn);
  CHECK(max_difference(grn(x), global_response_norm(x, of_grn[0], of_grn[1], {.eps = 0.1})) == 0);

  DynamicTanh dyt(4, {.axis = -1});
  const Tensors of_dyt = randomize(dyt);
  CHECK(max_difference(dyt(x), dynamic_tanh(x, of_dyt[0], of_dyt[1], of_dyt[2], {.axis = -1})) == 0);
  DynamicErf derf(4, {.axis = -1});
  const Tensors of_derf = randomize(derf);
  CHECK(max_difference(derf(x), dynamic_erf(x, of_derf[0], of_derf[1], of_derf[2], of_derf[3], {.axis = -1})) == 0);
  SeedNorm seed(4, {.eps = 0.1, .axis = -1});
  CHECK(max_difference(seed(to(x, DType::float32)), rms_norm(to(x, DType::float32), {4}, {}, {.eps = 0.1})) <= 1e-6);
  const Tensors of_seed = randomize(seed);
  CHECK(max_difference(seed(x), seed_norm(x, of_seed[0], of_seed[1], of_seed[2], {.eps = 0.1, .axis = -1})) == 0);
  SeedNorm centred(4, {.eps = 0.1, .axis = -1, .offset = true});
  const Tensors of_centred = randomize(centred);
  CHECK(max_difference(centred(x), seed_norm(x, add(of_centred[0], 1), of_centred[1], of_centred[2],
                                             {.eps = 0.1, .axis = -1})) == 0);
}

TEST_CASE("response norm layers: residual and activation come after the norm, in 16 bits rounded once") {
  DynamicTanh layer(6);
  const Tensor x = random_tensor({3, 6, 2, 4}, 1, DType::float32);
  const Tensor residual = random_tensor({3, 6, 2, 4}, 2, DType::float32);
  const Tensor y = layer(x);
  CHECK(max_difference(nn::forward_act(layer, x, {.activation = Activation::relu}), relu(y)) == 0);
  CHECK(max_difference(nn::forward_act(layer, x, {.activation = Activation::gelu}), gelu(y)) == 0);
  CHECK(max_difference(nn::forward_act(layer, x, {.activation = Activation::silu, .residual = residual}),
                       silu(add(y, residual))) == 0);
  CHECK(max_difference(nn::forward_act(layer, x, {.residual = residual}), add(y, residual)) == 0);
  const Tensor narrow = to(x, DType::bfloat16);
  const Tensor narrow_residual = to(residual, DType::bfloat16);
  const Tensor expected = relu(add(to(layer(narrow), DType::float32), to(narrow_residual, DType::float32)));
  CHECK(max_difference(nn::forward_act(layer, narrow, {.activation = Activation::relu, .residual = narrow_residual}),
                       to(expected, DType::bfloat16)) == 0);
  CHECK(error_of([&] { nn::forward_act(layer, x, {.residual = narrow_residual}); }) ==
        "norm_act: residual: expected dtype float32, got bfloat16");
  CHECK(error_of([&] { nn::forward_act(layer, x, {.residual = ones({6})}); }) ==
        "norm_act: residual: expected sizes [3, 6, 2, 4], got [6]");
}

TEST_CASE("response norm layers: error texts") {
  CHECK(error_of([] { LocalResponseNorm(0); }) == "LocalResponseNorm: size: expected a positive number, got 0");
  CHECK(error_of([] { LocalResponseNorm(5, {}, -1); }) ==
        "LocalResponseNorm: channels: expected a positive number or 0, got -1");
  CHECK(error_of([] {
          LocalResponseNorm(5, {}, 4)(ones({2, 3, 4, 5}));
        }) == "local_response_norm: x: expected 4 channels, got 3 (sizes [2, 3, 4, 5])");
  CHECK(error_of([] { nn::EvoNorm2dB0(0); }) == "EvoNorm2dB0: channels: expected a positive number, got 0");
  CHECK(error_of([] { nn::EvoNorm2dS0(1, 0); }) == "EvoNorm2dS0: channels: expected a positive number, got 0");
  CHECK(error_of([] { nn::EvoNorm2dS0(5, 12); }) ==
        "evo_norm_s0: num_channels must be divisible by num_groups, got num_channels 12, num_groups 5");
  CHECK(error_of([] { nn::DynamicTanh(-1); }) == "DynamicTanh: channels: expected a positive number, got -1");
  const Tensor x = ones({2, 3, 4, 5});
  CHECK(error_of([&] { nn::EvoNorm2dB0(4)(x); }) == "evo_norm_b0: x: expected 4 channels, got 3 (sizes [2, 3, 4, 5])");
  CHECK(error_of([&] { nn::EvoNorm2dS0(2, 4)(x); }) ==
        "evo_norm_s0: x: expected 4 channels, got 3 (sizes [2, 3, 4, 5])");
  CHECK(error_of([&] { nn::FilterResponseNormTlu2d(4)(x); }) ==
        "filter_response_norm: x: expected 4 channels, got 3 (sizes [2, 3, 4, 5])");
  CHECK(error_of([&] { nn::GlobalResponseNorm(4)(x); }) ==
        "global_response_norm: x: expected 4 channels, got 3 (sizes [2, 3, 4, 5])");
  CHECK(error_of([&] { nn::DynamicErf(4)(x); }) == "dynamic_erf: x: expected 4 channels, got 3 (sizes [2, 3, 4, 5])");
  CHECK(error_of([&] { nn::SeedNorm(4)(x); }) == "seed_norm: x: expected 4 channels, got 3 (sizes [2, 3, 4, 5])");
  CHECK(error_of([] { nn::SeedNorm(0); }) == "SeedNorm: channels: expected a positive number, got 0");
  CHECK(error_of([] { nn::SeedNorm(4, {.eps = -1}); }) == "SeedNorm: eps: expected a value >= 0, got -1");
  CHECK(error_of([&] { nn::DynamicTanh(4)(x); }) == "dynamic_tanh: x: expected 4 channels, got 3 (sizes [2, 3, 4, 5])");
  CHECK(error_of([&] {
          nn::EvoNorm2dB0(3)(ones({2, 3, 4}));
        }) == "evo_norm_b0: x: expected rank 4, got rank 3 (sizes [2, 3, 4])");
}

TEST_CASE("StdConv2d, ScaledStdConv2d: convolutions with a standardized weight") {
  const Tensor x = random_tensor({2, 4, 5, 6}, 1);
  StdConv2d plain(4, 6, Pair(3, 2), {.stride = 2, .padding = 1, .groups = 2, .bias = true, .eps = 1e-3});
  const Tensors of_plain = randomize(plain);
  CHECK(max_difference(plain(x), conv2d(x, standardize_weight(of_plain[0], {}, {.eps = 1e-3}), of_plain[1],
                                        {.stride = 2, .padding = 1, .groups = 2})) == 0);
  CHECK(plain.name() == "StdConv2d(4, 6, kernel=(3, 2), stride=(2, 2), padding=(1, 1), groups=2)");

  ScaledStdConv2d scaled(4, 6, 3, {.gamma = 1.7, .gain = 0.5});
  CHECK(max_difference(scaled.state_dict()[2].second, full({6, 1, 1, 1}, 0.5)) == 0);
  std::string names;
  for (const auto& [name, parameter] : scaled.named_parameters()) {
    names += name + to_string(parameter.sizes()) + " ";
  }
  CHECK(names == "weight[6, 4, 3, 3] bias[6] gain[6, 1, 1, 1] ");
  const Tensors of_scaled = randomize(scaled);
  const Tensor y = scaled(x);
  CHECK(max_difference(y, conv2d(x, standardize_weight(of_scaled[0], of_scaled[2], {.gamma = 1.7}), of_scaled[1],
                                 {.padding = 1})) == 0);
  y.backward(random_tensor(y.sizes(), 2));
  for (const Tensor& parameter : scaled.parameters()) {
    CHECK(largest_number(parameter.grad()) > 1e-3);
  }
  CHECK(scaled.name() == "ScaledStdConv2d(4, 6, kernel=(3, 3), stride=(1, 1), padding=(1, 1))");
  CHECK(error_of([] { nn::StdConv2d(0, 6, 3); }) == "StdConv2d: channels: expected positive numbers, got in 0, out 6");
  CHECK(error_of([] { nn::ScaledStdConv2d(4, 6, 3, {.groups = 3}); }) ==
        "ScaledStdConv2d: groups: expected a divisor of in and out channels, got groups 3, in 4, out 6");
  for (const char* kind : {"std_conv", "scaled_std_conv"}) {
    CHECK(error_of([&] {
            make_conv(kind, 4, 6, 3, {.groups = 0}, /* gamma= */ 1);
          }).ends_with("StdConv2d: groups: expected a divisor of in and out channels, got groups 0, in 4, out 6"));
  }
}

TEST_CASE("StdConv2d, ScaledStdConv2d: timm's bias and padding where they are not given") {
  const Tensor x = random_tensor({2, 4, 7, 6}, 1, DType::float32);
  CHECK(StdConv2d(4, 6, 3).name() == "StdConv2d(4, 6, kernel=(3, 3), stride=(1, 1), padding=(1, 1), bias=false)");
  CHECK(StdConv2d(4, 6, 3, {.stride = 2}).state_dict().size() == 1);
  CHECK(ScaledStdConv2d(4, 6, 3, {.stride = 2}).state_dict().size() == 3);
  CHECK(StdConv2d(4, 6, 3)(x).sizes() == Sizes{2, 6, 7, 6});
  CHECK(ScaledStdConv2d(4, 6, Pair(5, 1), {.dilation = Pair(1, 3)})(x).sizes() == Sizes{2, 6, 7, 6});
  CHECK(StdConv2d(4, 6, 3, {.padding = 0})(x).sizes() == Sizes{2, 6, 5, 4});
  const auto padding = [](const Pair& kernel, const StdConv2dOptions& options) {
    const std::string name = StdConv2d(4, 6, kernel, options).name();
    const size_t start = name.find("padding=");
    return start == std::string::npos ? "none" : name.substr(start, name.find(')', start) + 1 - start);
  };
  // from timm.layers.padding import get_padding; get_padding(7, 2, 1), get_padding(3, 1, 2), …
  CHECK(padding(7, {.stride = 2}) == "padding=(3, 3)");
  CHECK(padding(3, {.dilation = 2}) == "padding=(2, 2)");
  CHECK(padding(1, {.stride = 2}) == "none");
  CHECK(padding(2, {}) == "none");
  CHECK(padding(Pair(3, 5), {.stride = Pair(3, 2)}) == "padding=(2, 2)");
}
