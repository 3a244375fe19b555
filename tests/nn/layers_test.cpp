#include "nn/layers.h"
#include "core/random.h"
#include "error_text.h"
#include "nn/conv.h"
#include "nn/norm/batch_norm.h"
#include "nn/norm/norm.h"
#include "nn/sequential.h"
#include "ops/matmul/matmul.h"
#include "ops/norm/norm.h"

using namespace norma;
using namespace norma::nn;
using norma::test::error_of;
using norma::test::max_difference;
using norma::test::random_tensor;

namespace {

// Puts random numbers into all floating tensors of a module, which becomes float64.
void randomize(Module& module) {
  module.to(DType::float64);
  uint64_t seed = 11;
  for (const auto& [name, x] : module.state_dict()) {
    if (is_floating(x.dtype())) {
      copy_into(random_tensor(x.sizes(), ++seed), x);
    }
  }
}

}  // namespace

TEST_CASE("Conv2d: hands all options to conv2d") {
  nn::Conv2d conv(4, 6, Pair(3, 2), {.stride = {2, 1}, .padding = {1, 0}, .dilation = {1, 2}, .groups = 2});
  randomize(conv);
  const Tensor x = random_tensor({2, 4, 7, 8}, 1);
  const Tensor expected =
      conv2d(x, conv.weight(), conv.bias(), {.stride = {2, 1}, .padding = {1, 0}, .dilation = {1, 2}, .groups = 2});
  CHECK(max_difference(conv(x), expected) == 0);
  CHECK(conv.weight().sizes() == Sizes{6, 2, 3, 2});
  CHECK(conv.name() == "Conv2d(4, 6, kernel=(3, 2), stride=(2, 1), padding=(1, 0), dilation=(1, 2), groups=2)");
  CHECK(!nn::Conv2d(4, 6, 3, {.bias = false}).bias().defined());
}

TEST_CASE("Conv2d: error texts") {
  CHECK(error_of([] { nn::Conv2d(4, 6, 3, {.groups = 3}); }) ==
        "Conv2d: groups: expected a divisor of in and out channels, got groups 3, in 4, out 6");
  CHECK(error_of([] { nn::Conv2d(0, 6, 3); }) == "Conv2d: channels: expected positive numbers, got in 0, out 6");
  CHECK(error_of([] { nn::Conv2d(4, 6, Pair(3, 0)); }) == "Conv2d: kernel: expected positive sizes, got (3, 0)");
}

TEST_CASE("Linear: the last axis, with and without bias") {
  Linear layer(3, 5);
  randomize(layer);
  const Tensor x = random_tensor({2, 4, 3}, 1);
  CHECK(max_difference(layer(x), linear(x, layer.weight(), layer.bias())) == 0);
  CHECK(layer.name() == "Linear(3, 5)");
  CHECK(Linear(3, 5, {.bias = false}).name() == "Linear(3, 5, bias=false)");
  CHECK(Linear(3, 5, {.bias = false}).parameters().size() == 1);
  CHECK(error_of([] { Linear(3, 0); }) == "Linear: features: expected positive numbers, got in 3, out 0");
}

TEST_CASE("BatchNorm2d: training and evaluation, running statistics by momentum") {
  BatchNorm2d bn(3, {.momentum = 0.25});
  bn.to(DType::float64);
  const Tensor x = from_vector<double>({0, 2, 4, 6, 8, 10, 1, 3, 5, 7, 9, 11}, {2, 3, 1, 2});
  // channel 0 holds 0, 2, 1, 3: mean 1.5, unbiased variance 5/3
  const Tensor y = bn(x);
  CHECK(std::abs(y.to_vector<double>()[0] - (0 - 1.5) / std::sqrt(1.25 + 1e-5)) <= 1e-12);
  CHECK(std::abs(bn.running_mean().to_vector<double>()[0] - 0.25 * 1.5) <= 1e-12);
  CHECK(std::abs(bn.running_var().to_vector<double>()[0] - (0.75 + 0.25 * 5.0 / 3)) <= 1e-12);
  CHECK(bn.state_dict().back().second.item<int64_t>() == 1);
  bn.eval();
  const Tensor z = bn(x);
  const double expected = (0 - 0.375) / std::sqrt(0.75 + 0.25 * 5.0 / 3 + 1e-5);
  CHECK(std::abs(z.to_vector<double>()[0] - expected) <= 1e-12);
  CHECK(bn.state_dict().back().second.item<int64_t>() == 1);
}

TEST_CASE("BatchNorm2d: momentum none is the plain average of all batches, 0 is frozen") {
  BatchNorm2d average(2, {.momentum = std::nullopt});
  BatchNorm2d frozen(2, {.momentum = 0});
  average.to(DType::float64);
  frozen.to(DType::float64);
  double sum = 0;
  for (int i = 0; i < 3; ++i) {
    const Tensor x = random_tensor({2, 2, 3, 4}, static_cast<uint64_t>(i));
    const std::vector<double> v = x.to_vector<double>();
    for (size_t n = 0; n < 2; ++n) {
      for (size_t k = 0; k < 12; ++k) {
        sum += v[n * 24 + k] / 24;  // channel 0
      }
    }
    average(x);
    frozen(x);
  }
  CHECK(std::abs(average.running_mean().to_vector<double>()[0] - sum / 3) <= 1e-12);
  CHECK(frozen.running_mean().to_vector<double>() == std::vector<double>{0, 0});
  CHECK(frozen.running_var().to_vector<double>() == std::vector<double>{1, 1});
  CHECK(frozen.state_dict().back().second.item<int64_t>() == 3);
  CHECK(average.name() == "BatchNorm2d(2, eps=1e-05, momentum=none)");
}

TEST_CASE("BatchNorm2d: without running statistics, evaluation uses the batch") {
  BatchNorm2d bn(3, {.affine = false, .track_running_stats = false});
  const Tensor x = random_tensor({2, 3, 4, 5}, 1);
  const Tensor training = bn(x);
  bn.eval();
  CHECK(max_difference(bn(x), training) == 0);
  CHECK(bn.state_dict().empty());
  CHECK(bn.name() == "BatchNorm2d(3, eps=1e-05, momentum=0.1, affine=false, track_running_stats=false)");
}

TEST_CASE("norm layers: hand weight, bias and options to their functions") {
  const Tensor x = random_tensor({2, 6, 4, 5}, 1);
  LayerNorm layer({4, 5}, {.eps = 0.1});
  LayerNorm2d layer2d(6, {.eps = 0.1});
  GroupNorm group(3, 6, {.eps = 0.1});
  InstanceNorm2d instance(6, {.eps = 0.1, .affine = true});
  for (Module* module : std::initializer_list<Module*>{&layer, &layer2d, &group, &instance}) {
    randomize(*module);
  }
  const auto w = [](Module& module) { return module.parameters()[0]; };
  const auto b = [](Module& module) { return module.parameters()[1]; };
  CHECK(max_difference(layer(x), layer_norm(x, {4, 5}, w(layer), b(layer), {.eps = 0.1})) == 0);
  CHECK(max_difference(layer2d(x), layer_norm_2d(x, w(layer2d), b(layer2d), {.eps = 0.1})) == 0);
  CHECK(max_difference(group(x), group_norm(x, 3, w(group), b(group), {.eps = 0.1})) == 0);
  CHECK(max_difference(instance(x), instance_norm(x, w(instance), b(instance), {.eps = 0.1})) == 0);
  CHECK(layer.name() == "LayerNorm([4, 5], eps=0.1)");
  CHECK(layer2d.name() == "LayerNorm2d(6, eps=0.1)");
  CHECK(group.name() == "GroupNorm(3, 6, eps=0.1)");
  CHECK(InstanceNorm2d(6).name() == "InstanceNorm2d(6, eps=1e-05, affine=false)");
  CHECK(LayerNorm2d(6).name() == "LayerNorm2d(6, eps=1e-06)");
}

TEST_CASE("norm layers: another option leaves the default eps alone") {
  const auto two_pass = Statistics::two_pass;
  CHECK(LayerNorm2d(4, {.affine = false}).name() == "LayerNorm2d(4, eps=1e-06, affine=false)");
  CHECK(LayerNorm2d(4, {.statistics = two_pass}).name() == "LayerNorm2d(4, eps=1e-06, statistics=two_pass)");
  CHECK(RMSNorm2d(4, {.affine = false}).name() == "RMSNorm2d(4, eps=1e-06, affine=false)");
  CHECK(SimpleNorm2d(4, {.statistics = two_pass}).name() == "SimpleNorm2d(4, eps=1e-06, statistics=two_pass)");
  CHECK(SimpleNorm({4}, {.affine = false}).name() == "SimpleNorm([4], eps=1e-06, affine=false)");
  CHECK(LayerNorm({4}, {.affine = false}).name() == "LayerNorm([4], eps=1e-05, affine=false)");
  CHECK(GroupNorm(2, 4, {.statistics = two_pass}).name() == "GroupNorm(2, 4, eps=1e-05, statistics=two_pass)");
  CHECK(BatchNorm2d(4, {.affine = false}).name() == "BatchNorm2d(4, eps=1e-05, momentum=0.1, affine=false)");
}

TEST_CASE("norm layers: a weight without a bias") {
  const auto keys = [](const Module& layer) {
    std::string text;
    for (const auto& [name, x] : layer.state_dict()) {
      text += name + " ";
    }
    return text;
  };
  const std::string statistics = "running_mean running_var num_batches_tracked ";
  const BatchNorm1d batch1d(4, {.bias = false});
  const BatchNorm2d batch2d(4, {.bias = false});
  const BatchNorm3d batch3d(4, {.bias = false});
  const GhostBatchNorm2d ghost(4, 2, {.bias = false});
  const BatchRenorm2d renorm(4, 3, 5, {.bias = false});
  for (const BatchNorm* layer :
       std::initializer_list<const BatchNorm*>{&batch1d, &batch2d, &batch3d, &ghost, &renorm}) {
    CHECK(keys(*layer) == "weight " + statistics);
    CHECK(layer->weight().defined());
    CHECK(!layer->bias().defined());
  }
  CHECK(keys(LayerNorm({4}, {.bias = false})) == "weight ");
  CHECK(keys(LayerNorm2d(4, {.bias = false})) == "weight ");
  CHECK(keys(GroupNorm(2, 4, {.bias = false})) == "weight ");
  CHECK(keys(InstanceNorm2d(4, {.affine = true, .bias = false})) == "weight ");
  CHECK(keys(InstanceNorm2d(4, {.bias = true})).empty());  // not affine
  CHECK(batch2d.name() == "BatchNorm2d(4, eps=1e-05, momentum=0.1, bias=false)");
  CHECK(ghost.name() == "GhostBatchNorm2d(4, sub_batch=2, eps=1e-05, momentum=0.1, bias=false)");
  CHECK(LayerNorm({4}, {.bias = false}).name() == "LayerNorm([4], eps=1e-05, bias=false)");
  CHECK(LayerNorm2d(4, {.bias = false}).name() == "LayerNorm2d(4, eps=1e-06, bias=false)");
  CHECK(GroupNorm(2, 4, {.bias = false, .statistics = Statistics::welford}).name() ==
        "GroupNorm(2, 4, eps=1e-05, bias=false, statistics=welford)");
  CHECK(InstanceNorm1d(4, {.affine = true, .bias = false}).name() == "InstanceNorm1d(4, eps=1e-05, bias=false)");
  CHECK(InstanceNorm1d(4, {.bias = false}).name() == "InstanceNorm1d(4, eps=1e-05, affine=false)");
}

namespace {
template <class Options>
concept HasStatistics = requires(Options options) {
  options.statistics;
};
}  // namespace

TEST_CASE("RMS norms: no choice of statistics, which would make no difference") {
  CHECK_FALSE(HasStatistics<RmsNorm2dLayerOptions>);
  CHECK_FALSE(HasStatistics<RmsNormLayerOptions>);
}

TEST_CASE("norm layers: weights start at 1 and biases at 0") {
  BatchNorm2d bn(3);
  CHECK(bn.weight().to_vector<float>() == std::vector<float>{1, 1, 1});
  CHECK(bn.bias().to_vector<float>() == std::vector<float>{0, 0, 0});
  CHECK(bn.running_var().to_vector<float>() == std::vector<float>{1, 1, 1});
}

TEST_CASE("norm layers: error texts") {
  CHECK(error_of([] {
          BatchNorm2d bn(3);
          bn(zeros({2, 4, 5, 5}));
        }) == "batch_norm: x: expected 3 channels, got 4 (sizes [2, 4, 5, 5])");
  CHECK(error_of([] {
          BatchNorm2d bn(3);
          bn(zeros({2, 3, 5}));
        }) == "batch_norm: x: expected rank 4, got rank 3 (sizes [2, 3, 5])");
  CHECK(error_of([] { GroupNorm(4, 30); }) ==
        "group_norm: num_channels must be divisible by num_groups, got num_channels 30, num_groups 4");
  CHECK(error_of([] { LayerNorm2d(0); }) == "LayerNorm2d: channels: expected a positive number, got 0");
  CHECK(error_of([] { LayerNorm(Sizes{}); }) == "LayerNorm: normalized_shape: expected at least 1 size, got []");
}

TEST_CASE("activations, pools, flatten and identity are their functions") {
  const Tensor x = random_tensor({2, 3, 6, 8}, 1);
  CHECK(max_difference(ReLU()(x), relu(x)) == 0);
  CHECK(max_difference(SiLU()(x), silu(x)) == 0);
  CHECK(max_difference(GELU()(x), gelu(x)) == 0);
  CHECK(max_difference(GELU(GeluApproximation::tanh)(x), gelu(x, GeluApproximation::tanh)) == 0);
  const Pool2dOptions options{.kernel = 3, .stride = 2, .padding = 1};
  CHECK(max_difference(MaxPool2d(options)(x), max_pool2d(x, options)) == 0);
  CHECK(max_difference(AvgPool2d(options)(x), avg_pool2d(x, options)) == 0);
  CHECK(max_difference(AdaptiveAvgPool2d({2, 1})(x), adaptive_avg_pool2d(x, {2, 1})) == 0);
  CHECK(Flatten()(x).sizes() == Sizes{2, 144});
  CHECK(Flatten(2, 3)(x).sizes() == Sizes{2, 3, 48});
  CHECK(Identity()(x).is_same(x));
  CHECK(MaxPool2d(options).name() == "MaxPool2d(kernel=(3, 3), stride=(2, 2), padding=(1, 1))");
  CHECK(AvgPool2d({.kernel = {2, 3}}).name() == "AvgPool2d(kernel=(2, 3), stride=(2, 3), padding=(0, 0))");
  CHECK(AdaptiveAvgPool2d(1).name() == "AdaptiveAvgPool2d((1, 1))");
}

TEST_CASE("Dropout and DropPath: only in training") {
  const Tensor x = ones({64, 2, 3, 3}, {.dtype = DType::float64});
  for (const bool path : {false, true}) {
    CAPTURE(path);
    const std::shared_ptr<Module> layer =
        path ? std::shared_ptr<Module>(std::make_shared<DropPath>(0.5)) : std::make_shared<Dropout>(0.5);
    manual_seed(3);
    const std::vector<double> y = (*layer)(x).to_vector<double>();
    int64_t zeros_seen = 0;
    for (size_t i = 0; i < y.size(); ++i) {
      CHECK((y[i] == 0 || y[i] == 2));
      zeros_seen += y[i] == 0 ? 1 : 0;
      if (path) {
        CHECK(y[i] == y[i / 18 * 18]);
      }
    }
    CHECK(zeros_seen > 64 * 18 / 4);
    CHECK(zeros_seen < 64 * 18 * 3 / 4);
    layer->eval();
    CHECK(max_difference((*layer)(x), x) == 0);
  }
  CHECK(error_of([] { Dropout(1.5); }) == "Dropout: rate: expected a value in [0, 1], got 1.5");
  CHECK(error_of([] { DropPath(-1); }) == "DropPath: rate: expected a value in [0, 1], got -1");
}

TEST_CASE("Sequential: one after the other, gradients reach every parameter") {
  Sequential net{std::make_shared<Flatten>(), std::make_shared<Linear>(12, 4), std::make_shared<ReLU>(),
                 std::make_shared<Linear>(4, 2)};
  net.to(DType::float64);
  const Tensor x = random_tensor({3, 3, 2, 2}, 1);
  const Tensor y = net(x);
  CHECK(y.sizes() == Sizes{3, 2});
  y.backward(ones({3, 2}, {.dtype = DType::float64}));
  for (const auto& [name, parameter] : net.named_parameters()) {
    CAPTURE(name);
    REQUIRE(parameter.grad().defined());
    CHECK(parameter.grad().sizes() == parameter.sizes());
  }
  CHECK(net.state_dict()[0].first == "1.weight");
}
