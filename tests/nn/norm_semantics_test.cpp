#include "built_in_norm_names.h"
#include "core/autocast.h"
#include "error_text.h"
#include "nn/conv.h"
#include "nn/norm/factory.h"
#include "nn/norm_cases.h"
#include "ops/shape/join.h"

// What people trip over: each as PyTorch 1.13 has it, unless it says otherwise.

using namespace norma;
using namespace norma::nn;
using namespace norma::test;

namespace {

Tensor buffer(const Module& layer, const std::string& name) {
  for (const auto& [known, value] : layer.named_buffers()) {
    if (known == name) {
      return value;
    }
  }
  return {};
}

int64_t batches_of(const Module& layer) {
  return buffer(layer, "num_batches_tracked").item<int64_t>();
}

double first(const Tensor& x) {
  return x.to_vector<double>()[0];
}

/// Every layer for images of 4 channels.
std::vector<NormCase> layers(const Sizes& sizes) {
  std::vector<NormCase> cases;
  for (const char* kind :
       {"batch2d", "ghost", "renorm", "frozen", "layer2d", "rms2d", "simple2d", "instance2d", "response"}) {
    cases.push_back({.kind = kind, .sizes = sizes});
  }
  cases.push_back({.kind = "instance2d", .sizes = sizes, .track_running_stats = false});
  cases.push_back({.kind = "group", .sizes = sizes, .groups = 2});
  for (const char* kind : {"layer", "rms", "simple"}) {
    cases.push_back({.kind = kind, .sizes = sizes, .shape = {sizes[2], sizes[3]}});
  }
  return cases;
}

}  // namespace

TEST_CASE("batch norm: the biased variance normalizes, the unbiased one is kept") {
  // 0 and 2: mean 1, biased variance 1, unbiased variance 2
  const Tensor x = from_vector<double>({0, 2}, {2, 1});
  BatchNorm1d layer(1);
  layer.to(DType::float64);
  CHECK(std::abs(first(layer(x)) + 1 / std::sqrt(1 + 1e-5)) <= 1e-14);
  CHECK(std::abs(first(layer.running_mean()) - 0.1) <= 1e-15);
  CHECK(std::abs(first(layer.running_var()) - 1.1) <= 1e-15);

  BatchNorm1d biased(1, {.biased_running_var = true});  // Keras, Flax, Paddle
  biased.to(DType::float64);
  biased(x);
  CHECK(std::abs(first(biased.running_var()) - 1.0) <= 1e-15);
  CHECK(biased.name() == "BatchNorm1d(1, eps=1e-05, momentum=0.1, biased_running_var=true)");
}

TEST_CASE("ghost batch norm: keeps the average of the sub-batches' statistics, each unbiased") {
  // Sub-batches (0, 2), (4, 8), and (6, 6, …) of one image of 2 pixels.
  const Tensor x = from_vector<double>({0, 0, 2, 2, 4, 4, 8, 8, 6, 6}, {5, 1, 1, 2});
  GhostBatchNorm2d layer(1, 2, {.momentum = 1});
  layer.to(DType::float64);
  layer(x);
  CHECK(std::abs(first(layer.running_mean()) - (1 + 6 + 6) / 3.0) <= 1e-14);
  CHECK(std::abs(first(layer.running_var()) - (4 / 3.0 + 16 / 3.0 + 0) / 3) <= 1e-14);
  CHECK(batches_of(layer) == 1);
}

TEST_CASE("instance norm: keeps the average of the images' statistics, and never counts batches") {
  const Tensor x = from_vector<double>({0, 2, 4, 8}, {2, 1, 1, 2});
  InstanceNorm2d layer(1, {.momentum = 1, .track_running_stats = true});
  layer.to(DType::float64);
  layer(x);
  CHECK(std::abs(first(buffer(layer, "running_mean")) - (1 + 6) / 2.0) <= 1e-14);
  CHECK(std::abs(first(buffer(layer, "running_var")) - (2 + 8) / 2.0) <= 1e-14);
  CHECK(batches_of(layer) == 0);
}

TEST_CASE("batch norm: momentum none is the plain average, 0 is frozen, and both count batches") {
  BatchNorm1d average(1, {.momentum = std::nullopt});
  BatchNorm1d frozen(1, {.momentum = 0});
  average.to(DType::float64);
  double mean = 0;
  double var = 0;
  for (int step = 1; step <= 3; ++step) {
    const double s = step;
    average(from_vector<double>({0, 2 * s}, {2, 1}));  // mean s, unbiased variance 2 s²
    frozen(from_vector<float>({0, 2}, {2, 1}));
    mean += s;
    var += 2 * s * s;
    CHECK(std::abs(first(average.running_mean()) - mean / step) <= 1e-14);
    CHECK(std::abs(first(average.running_var()) - var / step) <= 1e-14);
    CHECK(batches_of(average) == step);
    CHECK(batches_of(frozen) == step);
  }
  CHECK(first(frozen.running_mean()) == 0);
  CHECK(first(frozen.running_var()) == 1);
}

TEST_CASE("norms: an empty batch gives an empty output and gradients, and leaves the statistics alone") {
  for (const Sizes& sizes : {Sizes{0, 4, 3, 2}, Sizes{2, 4, 0, 2}}) {
    for (NormCase c : layers(sizes)) {
      for (const bool training : {true, false}) {
        c.training = training;
        CAPTURE(test::to_string(c));
        const NormInputs in{.x = zeros(sizes), .dy = zeros(sizes)};
        const std::shared_ptr<Module> layer = make_layer(c, in, DType::float32);
        const NormResults results = run_layer(*layer, in, Layout::contiguous);
        CHECK(results.at("y").sizes() == sizes);
        CHECK(results.at("dx").sizes() == sizes);
        for (const auto& [name, parameter] : layer->named_parameters()) {
          CHECK(max_difference(parameter.grad(), zeros(parameter.sizes())) == 0);
        }
        if (results.contains("running_mean")) {
          CHECK(max_difference(results.at("running_mean"), zeros({4})) == 0);
          CHECK(max_difference(results.at("running_var"), ones({4})) == 0);
        }
        if (c.kind == "batch2d" || c.kind == "ghost" || c.kind == "renorm") {
          CHECK(batches_of(*layer) == (training ? 1 : 0));  // counted all the same
        }
      }
    }
  }
}

TEST_CASE("batch norm: an empty batch counts in the average of momentum none") {
  // m = BatchNorm1d(1, momentum=None); m(torch.zeros(0, 1)); m(torch.tensor([[0.], [2.]])); m.running_mean → 0.5
  BatchNorm1d layer(1, {.momentum = std::nullopt});
  layer(zeros({0, 1}));
  layer(from_vector<float>({0, 2}, {2, 1}));
  CHECK(first(layer.running_mean()) == 0.5);
  CHECK(batches_of(layer) == 2);
}

TEST_CASE("batch norm: evaluation without statistics takes the batch's, with the same error for one value") {
  BatchNorm2d layer(3, {.track_running_stats = false});
  const Tensor x = random_tensor({2, 3, 4, 5}, 1, DType::float32);
  const Tensor trained = layer(x);
  layer.eval();
  CHECK(max_difference(layer(x), trained) == 0);
  CHECK(error_of([&] {
          layer(zeros({1, 3, 1, 1}));
        }) ==
        "batch_norm: input: expected more than 1 value per channel without running statistics, got sizes [1, 3, 1, 1]");
  BatchNorm2d tracked(3);
  CHECK(error_of([&] {
          tracked(zeros({1, 3, 1, 1}));
        }) == "batch_norm: input: expected more than 1 value per channel when training, got sizes [1, 3, 1, 1]");
  tracked.eval();
  CHECK(error_of([&] { tracked(zeros({1, 3, 1, 1})); }) == "no error");
}

TEST_CASE("group norm: a group of one value is its bias") {
  // PyTorch raises "Expected more than 1 value per channel when training, got input size [1, 4]" for one image, though
  // not for two, and groups know nothing of the batch.
  GroupNorm layer(4, 4);
  layer.load_state_dict({{"weight", full({4}, 3.0)}, {"bias", arange(4, DType::float32)}});
  for (const int64_t images : {1, 2}) {
    const Tensor y = layer(random_tensor({images, 4}, 1, DType::float32));
    CHECK(max_difference(y, copy_of(reshape(cat(Tensors(static_cast<size_t>(images), arange(4)), 0), {images, 4}))) ==
          0);
  }
}

TEST_CASE("batch renorm: bounds of 1 and 0 make it batch norm") {
  const Tensor x = random_tensor({4, 3, 2, 5}, 1);
  BatchNorm2d batch(3);
  BatchRenorm2d renorm(3, 1, 0);
  batch.to(DType::float64);
  renorm.to(DType::float64);
  CHECK(max_difference(batch(x), renorm(x)) <= 1e-14);
  CHECK(max_difference(batch.running_var(), renorm.running_var()) <= 1e-15);
  batch.eval();
  renorm.eval();
  CHECK(max_difference(batch(x), renorm(x)) == 0);
}

TEST_CASE("batch renorm: the bounds grow with the batches seen, also across a checkpoint") {
  // Running statistics stay at 0 and 1, so that r = 20 and d = 100 are cut off at the bounds.
  const Tensor x = add(mul(random_tensor({4, 3, 2, 5}, 1), 20), 100);
  const BatchNormLayerOptions frozen{.momentum = 0};
  const BatchRenormSchedule schedule{.warmup_steps = 2, .r_ramp_steps = 4, .d_ramp_steps = 2};
  const auto make = [&] {
    const auto layer = std::make_shared<BatchRenorm2d>(3, 3, 5, frozen, schedule);
    layer->to(DType::float64);
    return layer;
  };
  std::shared_ptr<BatchRenorm2d> layer = make();
  const std::vector<std::pair<double, double>> bounds = {{1, 0}, {1, 0},   {1, 0}, {1.5, 2.5},
                                                         {2, 5}, {2.5, 5}, {3, 5}, {3, 5}};
  for (size_t step = 0; step < bounds.size(); ++step) {
    CAPTURE(step);
    if (step == 4) {
      const std::shared_ptr<BatchRenorm2d> resumed = make();
      resumed->load_state_dict(layer->state_dict());
      layer = resumed;
    }
    const auto [r_max, d_max] = bounds[step];
    BatchRenorm2d expected(3, r_max, d_max, frozen);
    expected.to(DType::float64);
    CHECK(max_difference((*layer)(x), expected(x)) == 0);
    CHECK(differ(expected(x), BatchRenorm2d(3, r_max + 0.5, d_max, frozen)(to(x, DType::float32)), 0.1));
    layer->eval();  // counts nothing
    (*layer)(x);
    layer->train();
  }
  CHECK(batches_of(*layer) == 8);
  CHECK(layer->r_max() == 3);
}

TEST_CASE("frozen batch norm: nothing in it is trained, in either mode") {
  FrozenBatchNorm2d layer(3);
  CHECK(layer.parameters().empty());
  CHECK(layer.state_dict().size() == 4);  // torchvision has no num_batches_tracked
  const Tensor x = random_tensor({4, 3, 2, 5}, 1, DType::float32);
  const Tensor trained = layer(x);
  layer.eval();
  CHECK(max_difference(layer(x), trained) == 0);
  CHECK(max_difference(buffer(layer, "running_mean"), zeros({3})) == 0);
}

TEST_CASE("instance norm: one image without the batch axis") {
  InstanceNorm2d layer(3, {.affine = true});
  const Tensor x = random_tensor({3, 4, 5}, 1, DType::float32);
  const Tensor y = layer(x);
  CHECK(y.sizes() == x.sizes());
  CHECK(max_difference(unsqueeze(y, 0), layer(unsqueeze(x, 0))) == 0);
  const Tensor residual = random_tensor({3, 4, 5}, 2, DType::float32);
  const Tensor sum = layer.forward_act(x, {.residual = residual});
  CHECK(sum.sizes() == x.sizes());
  CHECK(max_difference(sum, add(y, residual)) <= 1e-6);
}

TEST_CASE("instance norm: the output of one image without the batch axis may be changed in place, in every layout") {
  for (const bool tracked : {false, true}) {
    for (const bool training : {true, false}) {
      InstanceNorm2d layer(3, {.affine = true, .track_running_stats = tracked});
      layer.to(DType::float64);
      layer.train(training);
      for (const Layout layout : {Layout::contiguous, Layout::strided}) {
        CAPTURE(layer.name());
        CAPTURE(to_string(layout));
        const Tensor dy = random_tensor({3, 4, 5}, 2);
        Tensor x = in_layout(random_tensor({3, 4, 5}, 1), layout);
        x.set_requires_grad();
        Tensor y = layer(x);
        CHECK(y.strides() == preserved_strides(x.sizes(), x.strides()));
        relu_(y);
        y.backward(dy);
        InstanceNorm2d other(3, {.affine = true, .track_running_stats = tracked});
        other.to(DType::float64);
        other.train(training);
        other.load_state_dict(layer.state_dict());
        Tensor batch = unsqueeze(x.detach(), 0);
        batch.set_requires_grad();
        const Tensor expected = relu(other(batch));
        expected.backward(unsqueeze(dy, 0));
        CHECK(max_difference(unsqueeze(y, 0), expected) == 0);
        CHECK(max_difference(unsqueeze(x.grad(), 0), batch.grad()) == 0);
      }
    }
  }
}

TEST_CASE("norms: under autocast a residual is converted with the input, for every norm") {
  const Tensor x = to(random_tensor({3, 8, 4, 5}, 1), DType::bfloat16);
  Tensor residual = random_tensor({3, 8, 4, 5}, 2, DType::float32);
  residual.set_requires_grad();
  for (const std::string& name : test::built_in_norm_names()) {
    CAPTURE(name);
    residual.set_grad({});
    Tensor y;
    {
      const Autocast autocast;
      REQUIRE_NOTHROW(
          y = nn::forward_act(*make_norm(name, 8), x, {.activation = Activation::silu, .residual = residual}));
    }
    CHECK(y.dtype() == DType::bfloat16);
    const Tensor narrow = to(residual.detach(), DType::bfloat16);
    const Tensor expected =
        nn::forward_act(*make_norm(name, 8), x, {.activation = Activation::silu, .residual = narrow});
    CHECK(max_difference(y, expected) == 0);
    y.backward(ones_like(y));
    CHECK(residual.grad().dtype() == DType::float32);
  }
}

TEST_CASE("norms: eps of the functions where none is given") {
  const Tensor x = mul(random_tensor({2, 4, 3, 2}, 1), 1e-3);  // variances of about 1e-6
  const Tensor one = ones({4}, {.dtype = DType::float64});
  CHECK(max_difference(batch_norm(x, {}, {}), batch_norm(x, {}, {}, {}, {}, {.eps = 1e-5})) == 0);
  CHECK(max_difference(instance_norm(x), instance_norm(x, {}, {}, {.eps = 1e-5})) == 0);
  CHECK(max_difference(group_norm(x, 2), group_norm(x, 2, {}, {}, {.eps = 1e-5})) == 0);
  CHECK(max_difference(layer_norm(x, {3, 2}), layer_norm(x, {3, 2}, {}, {}, {.eps = 1e-5})) == 0);
  CHECK(max_difference(layer_norm_2d(x), layer_norm_2d(x, {}, {}, {.eps = 1e-6})) == 0);
  CHECK(max_difference(layer_norm_2d(x), layer_norm_2d(x, {}, {}, {}, {.activation = Activation::identity})) == 0);
  CHECK(max_difference(layer_norm_2d(x), layer_norm_2d(x, {}, {}, {.statistics = Statistics::stable})) == 0);
  CHECK(max_difference(rms_norm_2d(x), rms_norm_2d(x, {}, {.eps = 1e-6})) == 0);
  CHECK(max_difference(simple_norm(x, {3, 2}), simple_norm(x, {3, 2}, {}, {.eps = 1e-6})) == 0);
  CHECK(max_difference(simple_norm_2d(x), simple_norm_2d(x, {}, {.eps = 1e-6})) == 0);
  CHECK(max_difference(evo_norm_b0(x, {}, one), evo_norm_b0(x, {}, one, {}, {}, {.eps = 1e-3})) == 0);
  CHECK(max_difference(evo_norm_s0(x, 2, one), evo_norm_s0(x, 2, one, {}, {}, {.eps = 1e-5})) == 0);
  CHECK(max_difference(filter_response_norm(x), filter_response_norm(x, {}, {}, {}, {.eps = 1e-5})) == 0);
  CHECK(max_difference(global_response_norm(x), global_response_norm(x, {}, {}, {.eps = 1e-6})) == 0);
}

TEST_CASE("rms_norm: eps none is the distance from 1 to the next number of the dtype, float32's for 16 bits") {
  const double kFloat = 1.1920928955078125e-07;
  for (const auto& [dtype, eps] :
       {std::pair(DType::float64, 2.220446049250313e-16), {DType::float32, kFloat}, {DType::bfloat16, kFloat}}) {
    const Tensor x = to(mul(random_tensor({3, 8}, 1), 1e-4), dtype);
    CHECK(max_difference(rms_norm(x, {8}), rms_norm(x, {8}, {}, {.eps = eps})) == 0);
  }
}

TEST_CASE("norm layers: error texts of options") {
  CHECK(error_of([] { BatchNorm2d(3, {.eps = -1}); }) == "BatchNorm2d: eps: expected a value >= 0, got -1");
  CHECK(error_of([] { BatchNorm1d(3, {.momentum = 2}); }) ==
        "BatchNorm1d: momentum: expected a value in [0, 1] or none, got 2");
  CHECK(error_of([] { InstanceNorm3d(3, {.momentum = 1.5}); }) ==
        "InstanceNorm3d: momentum: expected a value in [0, 1], got 1.5");
  CHECK(error_of([] { InstanceNorm1d(3, {.eps = NAN}); }) == "InstanceNorm1d: eps: expected a value >= 0, got nan");
  CHECK(error_of([] { FrozenBatchNorm2d(3, -1); }) == "FrozenBatchNorm2d: eps: expected a value >= 0, got -1");
  CHECK(error_of([] { LayerNorm({3}, {.eps = -1}); }) == "LayerNorm: eps: expected a value >= 0, got -1");
  CHECK(error_of([] { LayerNorm2d(3, {.eps = -1}); }) == "LayerNorm2d: eps: expected a value >= 0, got -1");
  CHECK(error_of([] { GroupNorm(1, 3, {.eps = -1}); }) == "GroupNorm: eps: expected a value >= 0, got -1");
  CHECK(error_of([] { RMSNorm({3}, {.eps = -1}); }) == "RMSNorm: eps: expected a value >= 0, got -1");
  CHECK(error_of([] { SimpleNorm({3}, {.eps = -1}); }) == "SimpleNorm: eps: expected a value >= 0, got -1");
  CHECK(error_of([] { GhostBatchNorm2d(3, 0); }) == "GhostBatchNorm2d: sub_batch: expected a positive number, got 0");
  CHECK(error_of([] { BatchRenorm2d(3, 0.5); }) == "BatchRenorm2d: r_max: expected a value >= 1, got 0.5");
  CHECK(error_of([] { BatchRenorm2d(3, 3, 5, {.track_running_stats = false}); }) ==
        "BatchRenorm2d: track_running_stats: expected true, got false");
  CHECK(error_of([] { BatchRenorm2d(3, 3, 5, {}, {.d_ramp_steps = -1}); }) ==
        "BatchRenorm2d: d_ramp_steps: expected a number >= 0, got -1");
  CHECK(error_of([] { EvoNorm2dB0(4, {.eps = -1}); }) == "EvoNorm2dB0: eps: expected a value >= 0, got -1");
  CHECK(error_of([] { EvoNorm2dB0(4, {.momentum = 3}); }) ==
        "EvoNorm2dB0: momentum: expected a value in [0, 1], got 3");
  CHECK(error_of([] { EvoNorm2dS0(2, 4, {.eps = -1}); }) == "EvoNorm2dS0: eps: expected a value >= 0, got -1");
  CHECK(error_of([] { FilterResponseNormTlu2d(4, {.eps = -1}); }) ==
        "FilterResponseNormTlu2d: eps: expected a value >= 0, got -1");
  CHECK(error_of([] { GlobalResponseNorm(4, {.eps = -1}); }) ==
        "GlobalResponseNorm: eps: expected a value >= 0, got -1");
  CHECK(error_of([] { StdConv2d(4, 6, 3, {.eps = -1}); }) == "StdConv2d: eps: expected a value >= 0, got -1");
  CHECK(error_of([] { ScaledStdConv2d(4, 6, 3, {.eps = NAN}); }) ==
        "ScaledStdConv2d: eps: expected a value >= 0, got nan");
}

TEST_CASE("norm layers: error texts of inputs") {
  const auto error = [](Norm&& layer, const Sizes& sizes) { return error_of([&] { layer(zeros(sizes)); }); };
  CHECK(error(BatchNorm1d(3), {2, 3, 4, 5}) == "batch_norm: x: expected rank 2 to 3, got rank 4 (sizes [2, 3, 4, 5])");
  CHECK(error(BatchNorm3d(3), {2, 3, 4, 5}) == "batch_norm: x: expected rank 5, got rank 4 (sizes [2, 3, 4, 5])");
  CHECK(error(InstanceNorm2d(3), {2, 3}) == "instance_norm: x: expected rank 3 to 4, got rank 2 (sizes [2, 3])");
  // PyTorch only warns without affine, and counts N · C weights with it.
  CHECK(error(InstanceNorm2d(3), {2, 4, 5, 5}) == "instance_norm: x: expected 3 channels, got 4 (sizes [2, 4, 5, 5])");
  CHECK(error(InstanceNorm2d(3), {4, 5, 5}) == "instance_norm: x: expected 3 channels, got 4 (sizes [4, 5, 5])");
  CHECK(error(InstanceNorm2d(3), {3, 1, 1}) ==
        "instance_norm: input: expected more than 1 spatial element, got sizes [3, 1, 1]");
  CHECK(error(InstanceNorm2d(3, {.track_running_stats = true}), {3, 1, 1}) ==
        "instance_norm: input: expected more than 1 spatial element when training, got sizes [3, 1, 1]");
  CHECK(error_of([] {
          InstanceNorm2d(3).forward_act(zeros({3, 5, 5}), {.residual = zeros({1, 3, 5, 5})});
        }) == "instance_norm: residual: expected sizes [3, 5, 5], got [1, 3, 5, 5]");
  CHECK(error(GroupNorm(2, 4), {2, 6, 3}) == "group_norm: x: expected 4 channels, got 6 (sizes [2, 6, 3])");
  CHECK(error(LayerNorm({4}), {2, 3, 5}) ==
        "layer_norm: normalized_shape: expected the last sizes of the input [2, 3, 5], got [4]");
  CHECK(error(RMSNorm2d(4), {2, 3, 5, 5}) == "rms_norm_2d: x: expected 4 channels, got 3 (sizes [2, 3, 5, 5])");
  CHECK(error(GhostBatchNorm2d(4, 2), {2, 4, 5}) == "batch_norm: x: expected rank 4, got rank 3 (sizes [2, 4, 5])");
}
