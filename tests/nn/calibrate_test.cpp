#include "nn/norm/calibrate.h"

#include "error_text.h"
#include "models/registry.h"
#include "nn/conv.h"
#include "nn/norm/batch_norm.h"
#include "nn/norm/changed_norms.h"
#include "nn/norm/factory.h"
#include "nn/sequential.h"
#include "ops/map_norm/norms.h"
#include "ops/pointwise/pointwise.h"
#include "ops/reduce/reduce.h"
#include "ops/shape/copy.h"
#include "ops/shape/view.h"
#include "support.h"

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <string>

using namespace norma;
using namespace norma::nn;
using norma::test::error_of;
using norma::test::max_difference;
using norma::test::random_tensor;

namespace {

/// Two convolutions with norms behind them.
std::shared_ptr<Module> two_norms(const std::string& norm) {
  Generator generator(1);
  const auto conv = [&](int64_t in, int64_t out) {
    return make_conv("conv", in, out, 3, {.padding = 1, .bias = false, .initialize = false});
  };
  auto net = std::make_shared<Sequential>(
      std::initializer_list<std::shared_ptr<Module>>{conv(3, 8), make_norm(norm, 8), conv(8, 12), make_norm(norm, 12)});
  net->to(DType::float64);
  return net;
}

/// Gives all tensors numbers as training leaves them: no weight is 1, some are negative, variances are not.
void give_numbers(Module& model) {
  uint64_t seed = 10;
  for (const auto& [name, x] : model.state_dict()) {
    if (!is_floating(x.dtype())) {
      continue;
    }
    const Tensor some = random_tensor(x.sizes(), ++seed);
    const bool is_var = name.ends_with("running_var");
    copy_into(is_var                    ? add(mul(some, some), 0.5)
              : name.ends_with("alpha") ? add(mul(some, 0.1), 0.7)
                                        : some,
              x.detach());
  }
}

/// A network with another norm and all tensors of `old` that fit.
template <class Make>
std::shared_ptr<Module> with_weights_of(const Module& old, const Make& make) {
  std::shared_ptr<Module> model = make();
  NamedTensors dict;
  std::map<std::string, Tensor> own;
  for (const auto& [name, x] : model->state_dict()) {
    own.emplace(name, x);
  }
  for (const auto& [name, x] : old.state_dict()) {
    if (own.contains(name) && own.at(name).sizes() == x.sizes()) {
      dict.emplace_back(name, x);
    }
  }
  model->load_state_dict(dict, {.strict = false});
  return model;
}

std::map<std::string, Tensor> copies_of(const Module& model) {
  std::map<std::string, Tensor> copies;
  for (const auto& [name, x] : model.state_dict()) {
    copies.emplace(name, copy_of(x.detach()));
  }
  return copies;
}

bool is_unchanged(const Module& model, const std::map<std::string, Tensor>& before) {
  const NamedTensors state = model.state_dict();
  return std::ranges::all_of(state, [&](const auto& tensor) {
    return max_difference(to(tensor.second.detach(), DType::float64), to(before.at(tensor.first), DType::float64)) == 0;
  });
}

ImageBatches some_batches(DType dtype, const Sizes& sizes = {4, 3, 6, 5}) {
  return {.count = 3, .at = [dtype, sizes](int64_t number) {
            return random_tensor(sizes, 50 + static_cast<uint64_t>(number), dtype);
          }};
}

Tensor tensor(const Module& model, const std::string& name) {
  for (const auto& [own, x] : model.state_dict()) {
    if (own == name) {
      return x.detach();
    }
  }
  FAIL("no tensor " << name);
  return {};
}

std::vector<double> numbers(const Module& model, const std::string& name) {
  return to(tensor(model, name), DType::float64).to_vector<double>();
}

/// (1, channels, 1, 8): each channel has exactly the running mean and variance of a batch norm.
Tensor typical_image(const BatchNorm& norm) {
  const std::vector<double> mean = norm.running_mean().to_vector<double>();
  const std::vector<double> var = norm.running_var().to_vector<double>();
  std::vector<double> values;
  for (size_t c = 0; c < mean.size(); ++c) {
    for (int i = 0; i < 8; ++i) {
      values.push_back(mean[c] + ((i + static_cast<int>(c)) % 2 == 0 ? 1 : -1) * std::sqrt(var[c]));
    }
  }
  return from_vector(values, {1, static_cast<int64_t>(mean.size()), 1, 8});
}

}  // namespace

TEST_CASE("calibrate_norms: mean and deviation of each channel become the old network's") {
  const std::vector<std::string> norms{"batch",      "group:4",    "layer2d",
                                       "instance",   "dyt",        "frozen_batch",
                                       "evonorm_s0", "evonorm_b0", "instance[track_running_stats=true]"};
  for (const std::string& from : norms) {
    for (const std::string& to : norms) {
      if (from == to) {
        continue;
      }
      CAPTURE(from);
      CAPTURE(to);
      const auto old = two_norms(from);
      give_numbers(*old);
      const auto model = with_weights_of(*old, [&] { return two_norms(to); });
      const ImageBatches batches = some_batches(DType::float64);
      CHECK(calibrate_norms(*model, *old, batches) == 2);
      CHECK(model->is_training());
      const auto matches = compare_norms(*model, *old, batches);
      REQUIRE(matches.size() == 2);
      CHECK(matches[0].path == "1");
      CHECK(matches[1].path == "3");
      for (const NormMatch& match : matches) {
        CHECK(match.mean <= 1e-9);
        CHECK(match.deviation <= 1e-9);
        CHECK(std::isfinite(match.output));
      }
      const std::vector<double> before = numbers(*old, "1.weight");
      const std::vector<double> after = numbers(*model, "1.weight");
      for (size_t c = 0; c < before.size(); ++c) {
        CHECK(std::signbit(before[c]) == std::signbit(after[c]));
      }
    }
  }
}

TEST_CASE("calibrate_norms: norms that are the same function give the same outputs") {
  for (const auto& [from, to] :
       std::vector<std::pair<std::string, std::string>>{{"batch", "batch[eps=1e-2]"},
                                                        {"batch", "sync_batch"},
                                                        {"batch", "frozen_batch"},
                                                        {"batch", "batch_renorm"},
                                                        {"group:4", "group:4[statistics=two_pass]"},
                                                        {"dyt", "dyt[alpha=0.25]"}}) {
    CAPTURE(from);
    CAPTURE(to);
    const auto old = two_norms(from);
    give_numbers(*old);
    const auto model = with_weights_of(*old, [&] { return two_norms(to); });
    const ImageBatches batches = some_batches(DType::float64);
    CHECK(calibrate_norms(*model, *old, batches) == 2);
    for (const NormMatch& match : compare_norms(*model, *old, batches)) {
      CHECK(match.output <= 1e-9);
    }
    model->eval();
    old->eval();
    const Tensor x = random_tensor({2, 3, 5, 7}, 9);  // not of the calibration
    CHECK(max_difference((*model)(x), (*old)(x)) <= 1e-9);
  }
}

TEST_CASE("calibrate_norms, fold_statistics: norms that stay are left as they are") {
  const auto old = two_norms("batch");
  give_numbers(*old);
  const auto model = with_weights_of(*old, [] { return two_norms("batch"); });
  const auto before = copies_of(*model);
  CHECK(calibrate_norms(*model, *old, some_batches(DType::float64)) == 0);
  CHECK(fold_statistics(*model, *old) == 0);
  CHECK(compare_norms(*model, *old, some_batches(DType::float64)).empty());
  CHECK(is_unchanged(*model, before));

  // One of two norms is of another kind now, and it alone is fitted.
  model->replace_module("3", make_norm("group:4", 12));
  model->to(DType::float64);
  CHECK(calibrate_norms(*model, *old, some_batches(DType::float64)) == 1);
  CHECK(max_difference(tensor(*model, "1.weight"), before.at("1.weight")) == 0);
}

TEST_CASE("calibrate_norms: a norm without a bias comes as near as one factor can") {
  const auto old = two_norms("batch");
  give_numbers(*old);
  for (const std::string to : {"rms2d", "simple2d", "seednorm"}) {
    CAPTURE(to);
    const auto model = with_weights_of(*old, [&] { return two_norms(to); });
    const ImageBatches batches = some_batches(DType::float64);
    CHECK(calibrate_norms(*model, *old, batches) == 2);
    ChannelMoments before;
    ChannelMoments after;
    old->eval();
    for (int64_t i = 0; i < batches.count; ++i) {
      const Tensor x = (*old->children()[0].second)(batches.at(i));
      before.add((*old->children()[1].second)(x));
      after.add((*model->children()[1].second)(x));
    }
    const MeanAndDeviation want = before.result();
    const MeanAndDeviation got = after.result();
    const std::vector<double> old_weight = numbers(*old, "1.weight");
    const std::vector<double> weight = numbers(*model, "1.weight");
    for (size_t c = 0; c < weight.size(); ++c) {
      CHECK(weight[c] * old_weight[c] >= 0);
      // The derivative of the squared distance by the factor.
      const double slope =
          got.mean[c] * (want.mean[c] - got.mean[c]) + got.deviation[c] * (want.deviation[c] - got.deviation[c]);
      CHECK(std::abs(slope) <= 1e-9);
    }
    CHECK(std::ranges::any_of(weight, [](double w) { return w != 0; }));
  }
}

TEST_CASE("calibrate_norms: a channel without deviation keeps its weight, and gets the old mean") {
  const auto old = two_norms("batch");
  give_numbers(*old);
  const Tensor weight = tensor(*old, "0.weight");
  fill_(narrow(weight, 0, 2, 1), 0);  // channel 2 of the first norm is 0 everywhere
  const auto model = with_weights_of(*old, [] { return two_norms("instance"); });
  const ImageBatches batches = some_batches(DType::float64);
  CHECK(calibrate_norms(*model, *old, batches) == 2);
  CHECK(numbers(*model, "1.weight")[2] == numbers(*old, "1.weight")[2]);
  CHECK(std::isfinite(numbers(*model, "1.bias")[2]));
  CHECK(compare_norms(*model, *old, batches)[0].mean <= 1e-9);
}

TEST_CASE("calibrate_norms, fold_statistics: a norm whose weight is 0, as timm's last one of a block begins") {
  const auto old = two_norms("batch");
  give_numbers(*old);
  fill_(tensor(*old, "1.weight"), 0);
  const ImageBatches batches = some_batches(DType::float64);
  for (const bool fold : {false, true}) {
    const auto model = with_weights_of(*old, [] { return two_norms("group:4"); });
    fold ? fold_statistics(*model, *old) : calibrate_norms(*model, *old, batches);
    const std::vector<NormMatch> matches = compare_norms(*model, *old, batches);
    CHECK(matches[0].is_constant);
    CHECK(!matches[1].is_constant);
    for (const double distance : {matches[0].mean, matches[0].deviation, matches[0].output}) {
      CHECK(distance <= 1e-12);
    }
  }
}

TEST_CASE("calibrate_norms: dyt's alpha follows the size of the inputs") {
  const auto old = two_norms("batch");
  give_numbers(*old);
  for (const double factor : {1.0, 100.0}) {
    const auto model = with_weights_of(*old, [] { return two_norms("dyt[alpha=0.25]"); });
    const ImageBatches batches{.count = 1, .at = [factor](int64_t) {
                                 return mul(random_tensor({4, 3, 6, 5}, 5), factor);
                               }};
    CHECK(calibrate_norms(*model, *old, batches) == 2);
    double squares = 0;
    const Tensor x = (*old->children()[0].second)(batches.at(0));
    squares = norma::mean(mul(x, x)).item<double>();
    CHECK(std::abs(numbers(*model, "1.alpha")[0] * std::sqrt(squares) - 0.25) <= 1e-9);
  }
}

TEST_CASE("calibrate_norms, fold_statistics: norms that they cannot fit are refused") {
  const auto old = two_norms("batch");
  give_numbers(*old);
  const auto refused = [&](const std::string& norm, const std::string& text) {
    const auto model = with_weights_of(*old, [&] { return two_norms(norm); });
    CHECK(error_of([&] { calibrate_norms(*model, *old, some_batches(DType::float64)); }) == "calibrate_norms: " + text);
  };
  refused("frn", "'1': expected a norm whose output is weight · v + bias, got FilterResponseNormTlu2d(8, eps=1e-05)");
  refused("grn", "'1': expected a norm whose output is weight · v + bias, got GlobalResponseNorm(8, eps=1e-06)");
  refused("none", "'1': expected a norm with a weight for each channel, got NoNorm");
  refused("group:4[affine=false]",
          "'1': expected a norm with a weight for each channel, got GroupNorm(4, 8, eps=1e-05, affine=false)");
  const auto model = with_weights_of(*old, [] { return two_norms("group:4"); });
  CHECK(error_of([&] { calibrate_norms(*model, *old, {}); }) ==
        "calibrate_norms: batches: expected at least one, got 0");
  CHECK(error_of([&] { compare_norms(*model, *old, {}); }) == "compare_norms: batches: expected at least one, got 0");

  const auto before = copies_of(*model);
  const auto group = two_norms("group:2");
  CHECK(error_of([&] { fold_statistics(*model, *group); }) ==
        "fold_statistics: '1': expected running statistics to fold, got GroupNorm(2, 8, eps=1e-05)");
  CHECK(error_of([&] {
          fold_statistics(*model, *two_norms("batch[track_running_stats=false]"));
        }).starts_with("fold_statistics: '1': expected running statistics to fold, got BatchNorm2d(8, "));
  CHECK(is_unchanged(*model, before));
  CHECK(error_of([&] { fold_statistics(*two_norms("frn"), *old); }) ==
        "fold_statistics: '1': expected batch, group, layer2d, instance, simple2d, rms2d, dyt or derf, got "
        "FilterResponseNormTlu2d(8, eps=1e-05)");
  const auto seed = two_norms("seednorm");
  const auto before_seed = copies_of(*seed);
  CHECK(error_of([&] {
          fold_statistics(*seed, *old);
        }).starts_with("fold_statistics: '1': expected batch, group, layer2d, instance, simple2d, rms2d, dyt or derf"));
  CHECK(is_unchanged(*seed, before_seed));
}

TEST_CASE("fold_statistics: images with the running statistics get batch norm's outputs") {
  const auto old = two_norms("batch[eps=0.03]");
  give_numbers(*old);
  const auto& norm = dynamic_cast<const BatchNorm&>(*old->children()[1].second);
  const Tensor x = typical_image(norm);
  old->eval();
  const Tensor expected = old->children()[1].second->forward(x);
  for (const std::string to : {"group:4", "group:1", "group:2[eps=0.1]", "instance", "batch", "frozen_batch[eps=1e-3]",
                               "sync_batch", "instance[track_running_stats=true]"}) {
    CAPTURE(to);
    const auto model = with_weights_of(*old, [&] { return two_norms(to); });
    CHECK(fold_statistics(*model, *old) == 2);
    model->eval();
    CHECK(max_difference(model->children()[1].second->forward(x), expected) <= 1e-12);
  }

  // A pixel's channels have the statistics of a group of all channels, by the formula.
  const auto group = with_weights_of(*old, [] { return two_norms("group:1"); });
  const auto layer = with_weights_of(*old, [] { return two_norms("layer2d[eps=1e-5]"); });
  fold_statistics(*group, *old);
  fold_statistics(*layer, *old);
  CHECK(max_difference(tensor(*group, "1.weight"), tensor(*layer, "1.weight")) == 0);
  CHECK(max_difference(tensor(*group, "1.bias"), tensor(*layer, "1.bias")) == 0);

  const auto rms = with_weights_of(*old, [] { return two_norms("rms2d[eps=1e-5]"); });
  const auto simple = with_weights_of(*old, [] { return two_norms("simple2d[eps=1e-5]"); });
  fold_statistics(*rms, *old);
  fold_statistics(*simple, *old);
  const std::vector<double> mean = norm.running_mean().to_vector<double>();
  const std::vector<double> var = norm.running_var().to_vector<double>();
  double first = 0;
  double second = 0;
  for (size_t c = 0; c < 8; ++c) {
    first += mean[c] / 8;
    second += (var[c] + mean[c] * mean[c]) / 8;
  }
  for (size_t c = 0; c < 8; ++c) {
    const double gamma = numbers(*old, "1.weight")[c];
    const double target = gamma * std::sqrt(var[c] / (var[c] + 0.03));
    for (const auto& [model, size] :
         {std::pair(rms, std::sqrt(second + 1e-5)), {simple, std::sqrt(second - first * first + 1e-5)}}) {
      const double nearest =
          (mean[c] * numbers(*old, "1.bias")[c] + std::sqrt(var[c]) * target) * size / (mean[c] * mean[c] + var[c]);
      const double best = nearest * gamma > 0 ? nearest : 0;
      CHECK(std::abs(numbers(*model, "1.weight")[c] - best) <= 1e-12);
    }
  }
}

TEST_CASE("fold_statistics: dyt gets mean and deviation of normal inputs") {
  const auto old = two_norms("batch");
  give_numbers(*old);
  const auto model = with_weights_of(*old, [] { return two_norms("dyt"); });
  CHECK(fold_statistics(*model, *old) == 2);
  const auto& norm = dynamic_cast<const BatchNorm&>(*old->children()[1].second);
  const std::vector<double> mean = norm.running_mean().to_vector<double>();
  const std::vector<double> var = norm.running_var().to_vector<double>();
  constexpr int64_t kCount = 20000;
  std::vector<double> values = random_tensor({1, 8, 1, kCount}, 3).to_vector<double>();
  for (size_t i = 0; i < values.size(); ++i) {
    values[i] = mean[i / kCount] + std::sqrt(var[i / kCount]) * values[i];
  }
  const Tensor y = model->children()[1].second->forward(from_vector(values, {1, 8, 1, kCount}));
  const std::vector<double> got_mean = norma::mean(y, {0, 2, 3}).to_vector<double>();
  const std::vector<double> got_var = norma::var(y, {0, 2, 3}).to_vector<double>();
  for (size_t c = 0; c < 8; ++c) {
    const double deviation = std::abs(numbers(*old, "1.weight")[c]) * std::sqrt(var[c] / (var[c] + 1e-5));
    CHECK(std::abs(got_mean[c] - numbers(*old, "1.bias")[c]) <= 0.03 * deviation);
    CHECK(std::abs(std::sqrt(got_var[c]) - deviation) <= 0.03 * deviation);
  }
}

TEST_CASE("fold_statistics: a user's bounded norm whose slope is an alpha is fitted as dyt is") {
  class OwnTanh : public Norm {
   public:
    explicit OwnTanh(int64_t channels) : channels_(channels) {
      alpha_ = register_parameter("alpha", full({1}, 0.5, {.dtype = DType::float64}));
      weight_ = register_parameter("weight", ones({channels}, {.dtype = DType::float64}));
      bias_ = register_parameter("bias", zeros({channels}, {.dtype = DType::float64}));
    }
    Tensor forward_act(const Tensor& x, const ActOptions& then) override {
      return activate(dynamic_tanh(x, alpha_, weight_, bias_), then);
    }
    [[nodiscard]] std::string name() const override { return "OwnTanh"; }
    [[nodiscard]] int64_t channels() const override { return channels_; }
    [[nodiscard]] std::optional<Bend> bend() const override {
      return Bend{.scale = alpha_.to_vector<double>()[0], .shift = 0, .limit = 1.8};
    }

   private:
    int64_t channels_;
    Tensor alpha_, weight_, bias_;
  };
  const auto old = two_norms("batch");
  give_numbers(*old);
  const auto dyt = with_weights_of(*old, [] { return two_norms("dyt"); });
  const auto own = with_weights_of(*old, [] {
    auto net = two_norms("dyt");
    net->replace_module("1", std::make_shared<OwnTanh>(8));
    net->replace_module("3", std::make_shared<OwnTanh>(12));
    return net;
  });
  CHECK(fold_statistics(*dyt, *old) == 2);
  CHECK(fold_statistics(*own, *old) == 2);
  for (const std::string name : {"1.alpha", "1.weight", "1.bias", "3.alpha", "3.weight", "3.bias"}) {
    CHECK(numbers(*own, name) == numbers(*dyt, name));
  }
}

TEST_CASE("fold_statistics: sets and statistics of a user's norm that do not fit its channels are refused") {
  class OwnGroup : public Norm {
   public:
    OwnGroup(int64_t channels_of_set, int64_t of_mean) : channels_of_set_(channels_of_set), mean_(zeros({of_mean})) {
      weight_ = register_parameter("weight", ones({8}));
    }
    Tensor forward_act(const Tensor& x, const ActOptions& then) override { return activate(x, then); }
    [[nodiscard]] std::string name() const override { return "OwnGroup"; }
    [[nodiscard]] int64_t channels() const override { return 8; }
    [[nodiscard]] std::optional<nn::StatisticSets> sets() const override {
      return nn::StatisticSets{.channels = channels_of_set_};
    }
    [[nodiscard]] std::optional<BatchEvaluation> evaluation() const override {
      return BatchEvaluation{.mean = mean_, .var = ones_like(mean_), .weight = weight_, .bias = {}};
    }

   private:
    int64_t channels_of_set_;
    Tensor mean_, weight_;
  };
  const auto with_own = [](int64_t channels_of_set, int64_t of_mean) {
    auto net = two_norms("batch");
    net->replace_module("1", std::make_shared<OwnGroup>(channels_of_set, of_mean));
    return net;
  };
  const auto batch = two_norms("batch");
  for (const int64_t wrong : {-1, 0, 3, 16}) {
    CHECK(error_of([&] { fold_statistics(*with_own(wrong, 8), *batch); }) ==
          fmt::format("fold_statistics: '1': sets(): expected channels that divide 8, got {}", wrong));
  }
  CHECK(error_of([&] { fold_statistics(*batch, *with_own(8, 9)); }) ==
        "fold_statistics: '1': expected running mean and variance of 8 channels, got 9 and 9");
  CHECK(fold_statistics(*with_own(4, 8), *batch) == 1);
}

TEST_CASE("calibrate_norms: all layers of a ResNet and a ConvNeXt, in both directions") {
  for (const std::string name : {"resnet18", "convnext_atto"}) {
    const bool is_resnet = name == "resnet18";
    const auto make = [&](const std::string& norm) {
      return [&, norm] {
        models::ModelOptions options{.num_classes = 10, .norm = norm};
        if (!is_resnet) {
          options.layer_scale = 1;
          options.patch_size = 4;
        }
        return models::create_model(name, options);
      };
    };
    for (const auto& [from, to] : {std::pair("batch", "group:8"), {"layer2d", "batch"}}) {
      CAPTURE(name);
      CAPTURE(std::string(from));
      CAPTURE(std::string(to));
      const auto old = make(from)();
      const ImageBatches batches = some_batches(DType::float32, {4, 3, 32, 32});
      for (int64_t i = 0; i < batches.count; ++i) {
        (*old)(batches.at(i));  // running statistics that are not those of a new network
      }
      const auto model = with_weights_of(*old, make(to));
      const int64_t changed = calibrate_norms(*model, *old, batches);
      CHECK(changed == (is_resnet ? 20 : 17));
      for (const NormMatch& match : compare_norms(*model, *old, batches)) {
        CAPTURE(match.path);
        CHECK(match.mean <= 1e-3);
        CHECK(match.deviation <= 1e-3);
      }
    }
  }
}
