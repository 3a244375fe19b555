#include "core/factory.h"
#include "nn/optim/optimizers.h"
#include "ops/loss/loss.h"
#include "ops/pointwise/pointwise.h"
#include "ops/reduce/reduce.h"
#include "ops/shape/copy.h"
#include "train/recipe.h"
#include "train/recipe_complaint.h"

#include <doctest/doctest.h>

#include <cmath>
#include <map>
#include <string>
#include <utility>
#include <vector>

using namespace norma;
using norma::test::complaint;
using train::Recipe;

TEST_CASE("recipe: one-cycle moves rate and momentum, its peak where the warm-up ends") {
  Recipe recipe;
  const train::Schedules usual = train::make_schedules(recipe, 100, 50);
  CHECK(usual.lr(0) == doctest::Approx(1.0 / 25));
  CHECK(usual.lr(29) == doctest::Approx(1));  // 30 % of the steps, as in PyTorch: step 0.3 * 100 - 1
  CHECK(usual.momentum(0) == doctest::Approx(0.95));
  CHECK(usual.momentum(29) == doctest::Approx(0.85));
  recipe.warmup_epochs = 1;
  const train::Schedules early = train::make_schedules(recipe, 100, 50);
  CHECK(early.lr(49) == doctest::Approx(1));
}

TEST_CASE("recipe: step schedule decays every so many epochs, after a warm-up in equal steps") {
  Recipe recipe;
  recipe.sched = "step";
  recipe.warmup_epochs = 0.4;  // 4 of 10 steps
  recipe.decay_epochs = 2;
  recipe.decay_rate = 0.5;
  const train::Schedules schedules = train::make_schedules(recipe, 100, 10);
  CHECK_FALSE(schedules.momentum);
  CHECK(schedules.lr(0) == doctest::Approx(0.25));
  CHECK(schedules.lr(1) == doctest::Approx(0.5));
  CHECK(schedules.lr(3) == doctest::Approx(1));
  CHECK(schedules.lr(19) == doctest::Approx(1));
  CHECK(schedules.lr(20) == doctest::Approx(0.5));
  CHECK(schedules.lr(40) == doctest::Approx(0.25));
}

TEST_CASE("recipe: constant and cosine schedules") {
  Recipe recipe;
  recipe.sched = "constant";
  CHECK(train::make_schedules(recipe, 100, 10).lr(99) == 1);
  recipe.sched = "cosine";
  const train::Schedules cosine = train::make_schedules(recipe, 100, 10);
  CHECK(cosine.lr(0) == doctest::Approx(1));
  CHECK(cosine.lr(50) == doctest::Approx(0.5));
}

TEST_CASE("recipe: gradients are clipped in its mode, those of a scaled loss as without the scale") {
  Recipe recipe;
  recipe.model = "convnext_atto";
  const auto model = train::make_model(recipe, 10);
  const auto optimizer = train::make_optimizer(recipe, *model);
  double scale = 1;
  SUBCASE("") {}
  SUBCASE("scaled") {
    scale = 1024;
  }
  optimizer->set_grad_scale(scale);
  const auto clipped = [&](const std::string& mode, double by) {
    for (Tensor x : model->parameters()) {
      x.set_grad(mul(ones(x.sizes()), scale));
    }
    recipe.clip_mode = mode;
    recipe.clip_grad = by;
    train::clip_gradients(recipe, *model, *optimizer);
    const auto largest = [&](const Tensor& x) { return max(abs(x.grad())).item<float>() / static_cast<float>(scale); };
    const Tensors parameters = model->parameters();
    return std::pair(largest(parameters.front()), largest(parameters.back()));
  };
  CHECK(clipped("norm", 0) == std::pair(1.0F, 1.0F));
  const auto count = static_cast<double>(model->parameter_count());
  const auto [first, last] = clipped("norm", 1);
  CHECK(first == doctest::Approx(1 / std::sqrt(count)));
  CHECK(last == first);
  CHECK(clipped("value", 0.5) == std::pair(0.5F, 0.5F));
  const auto [adapted, classifier] = clipped("agc", 0.01);
  CHECK(adapted < 0.1);
  CHECK(classifier == 1);  // left out, as in timm
}

TEST_CASE("recipe: optimizers get the recipe's numbers, and vectors no weight decay") {
  Recipe recipe;
  const auto model = train::make_model(recipe, 10);
  recipe.momentum = 0.7;
  CHECK(train::make_optimizer(recipe, *model)->momentum() == 0.7);
  recipe.opt = "nesterov";
  const auto optimizer = train::make_optimizer(recipe, *model);
  CHECK(optimizer->lr() == recipe.lr);
  for (const nn::ParameterGroup& group : optimizer->groups()) {
    for (const auto& [name, parameter] : group.parameters) {
      CHECK_MESSAGE(group.weight_decay == (parameter.rank() > 1 ? recipe.weight_decay : 0), name);
    }
  }
}

TEST_CASE("recipe: weight decay of norms and of biases") {
  Recipe recipe;
  recipe.norm_weight_decay = 0.01;
  recipe.bias_weight_decay = 0.02;
  for (const char* model_name : {"resnet18", "convnext_atto"}) {
    recipe.model = model_name;
    const auto model = train::make_model(recipe, 10);
    int of_norms = 0;
    int of_biases = 0;
    const auto optimizer = train::make_optimizer(recipe, *model);
    for (const nn::ParameterGroup& group : optimizer->groups()) {
      for (const auto& [name, parameter] : group.parameters) {
        if (parameter.rank() > 1 || name.ends_with("gamma")) {
          CHECK_MESSAGE(group.weight_decay == (parameter.rank() > 1 ? recipe.weight_decay : 0), name);
          continue;
        }
        of_norms += group.weight_decay == 0.01 ? 1 : 0;
        of_biases += group.weight_decay == 0.02 ? 1 : 0;
      }
    }
    // ResNet-18: 20 norms, and the classifier's bias. ConvNeXt-Atto: the stem's norm, 3 of downsampling, 12 of blocks,
    // and the head's; 3 biases in each block, and of 4 convolutions and the classifier.
    CHECK(of_norms == (recipe.model == "resnet18" ? 40 : 34));
    CHECK(of_biases == (recipe.model == "resnet18" ? 1 : 41));
  }
}

TEST_CASE("recipe: betas and eps of an optimizer, and which have none") {
  Recipe recipe;
  const auto model = train::make_model(recipe, 10);
  recipe.opt_betas = {0.7, 0.98};
  CHECK(train::make_optimizer(recipe, *model)->momentum() == 0.7);
  CHECK(complaint([](Recipe& r) { r.opt_betas = {0.9}; }) == "train: opt-betas: expected two numbers, got 1");
  CHECK(complaint([](Recipe& r) {
          r.opt = "sgd";
          r.opt_betas = {0.9, 0.95};
        }) == "train: opt-betas: expected none with opt 'sgd', which has no use for them, got 0.9, 0.95");
  CHECK(complaint([](Recipe& r) {
          r.opt = "nesterov";
          r.opt_eps = 1e-8;
        }) == "train: opt-eps: expected none with opt 'nesterov', which has no use for it, got 1e-08");
  // One update of a parameter 1 with the gradient 2: with a large eps nearly nothing of AdamW's step of lr is left.
  for (const char* name : {"adamw", "lamb", "rmsproptf"}) {
    Recipe one;
    one.opt = name;
    one.weight_decay = 0;
    one.momentum = 0;
    one.lr = 0.5;
    const auto step = [&] {
      const auto network = train::make_model(one, 10);
      const auto optimizer = train::make_optimizer(one, *network);
      Tensor weight = optimizer->groups()[0].parameters[0].second;
      const Tensor before = to(weight.detach(), DType::float64);
      weight.set_grad(full(weight.sizes(), 2));
      optimizer->step();
      return std::abs(before.to_vector<double>()[0] - weight.to_vector<double>()[0]);
    };
    const double usual = step();
    one.opt_eps = 1;
    CHECK_MESSAGE(step() < 0.9 * usual, name);
  }
}

TEST_CASE("recipe: the classifier's rate is the one given, also with a rate for a batch size") {
  Recipe recipe;
  recipe.model = "resnet18";
  recipe.head_lr = 0.25;
  recipe.lr_base = 0.125;
  recipe.batch_size = 1024;
  const auto network = train::make_model(recipe, 10);
  const auto optimizer = train::make_optimizer(recipe, *network);
  for (const nn::ParameterGroup& group : optimizer->groups()) {
    for (const auto& [name, x] : group.parameters) {
      const double expected = name.starts_with("fc.") ? 0.25 : train::base_lr(recipe);
      CHECK_MESSAGE(std::abs(group.lr_scale * optimizer->lr() - expected) < 1e-12, name);
    }
  }
}

TEST_CASE("recipe: layer decay lowers the rate of each block before the last") {
  Recipe recipe;
  recipe.layer_decay = 0.5;
  const auto scales = [&](const std::string& model) {
    recipe.model = model;
    std::map<std::string, double> of;
    const auto network = train::make_model(recipe, 10);
    const auto optimizer = train::make_optimizer(recipe, *network);
    for (const nn::ParameterGroup& group : optimizer->groups()) {
      for (const auto& [name, x] : group.parameters) {
        of[name] = group.lr_scale;
        CHECK_MESSAGE(group.weight_decay == (x.rank() > 1 ? recipe.weight_decay : 0), name);
      }
    }
    return of;
  };
  // ResNet-18: stem, 2 blocks in each of 4 stages, head.
  std::map<std::string, double> resnet = scales("resnet18");
  CHECK(resnet["fc.weight"] == 1);
  CHECK(resnet["fc.bias"] == 1);
  CHECK(resnet["layer4.1.conv2.weight"] == 0.5);
  CHECK(resnet["layer4.0.downsample.0.weight"] == 0.25);
  CHECK(resnet["layer1.1.bn2.bias"] == std::pow(0.5, 7));
  CHECK(resnet["layer1.0.conv1.weight"] == std::pow(0.5, 8));
  CHECK(resnet["conv1.weight"] == std::pow(0.5, 9));
  CHECK(resnet["bn1.weight"] == std::pow(0.5, 9));
  // ConvNeXt-atto: stem, 2 + 2 + 6 + 2 blocks, head; what leads into a stage belongs to its first block.
  std::map<std::string, double> convnext = scales("convnext_atto");
  CHECK(convnext["head.fc.weight"] == 1);
  CHECK(convnext["head.norm.weight"] == 1);
  CHECK(convnext["stages.3.blocks.1.gamma"] == 0.5);
  CHECK(convnext["stages.3.blocks.0.conv_dw.weight"] == 0.25);
  CHECK(convnext["stages.3.downsample.1.weight"] == 0.25);
  CHECK(convnext["stages.2.blocks.5.mlp.fc1.weight"] == 0.125);
  CHECK(convnext["stages.0.blocks.0.norm.weight"] == std::pow(0.5, 12));
  CHECK(convnext["stem.0.weight"] == std::pow(0.5, 13));
}

TEST_CASE("recipe: the loss it trains with, of class numbers and of mixed images") {
  Recipe recipe;
  recipe.smoothing = 0.3;
  const Tensor logits = from_vector<double>({1, -2, 0.5, 0, 3, -1}, {2, 3});
  const Tensor classes = from_vector<int64_t>({2, 0}, {2});
  const Tensor shares = from_vector<double>({0, 0, 1, 1, 0, 0}, {2, 3});
  const auto loss = [&](const Tensor& target) { return train::training_loss(recipe, logits, target).item<double>(); };
  CHECK(loss(classes) == cross_entropy(logits, classes, {.label_smoothing = 0.3}).item<double>());
  CHECK(loss(shares) == doctest::Approx(loss(classes)));
  recipe.bce_loss = true;
  const auto one = [](double x, double t) { return (1 - t) * x + std::log1p(std::exp(-x)); };
  const double smoothed = one(1, 0.1) + one(-2, 0.1) + one(0.5, 0.8) + one(0, 0.8) + one(3, 0.1) + one(-1, 0.1);
  CHECK(loss(classes) == doctest::Approx(smoothed / 6));
  CHECK(loss(shares) == doctest::Approx(smoothed / 6));
  recipe.bce_target_thresh = 0.2;
  const double hard = one(1, 0) + one(-2, 0) + one(0.5, 1) + one(0, 1) + one(3, 0) + one(-1, 0);
  CHECK(loss(classes) == doctest::Approx(hard / 6));
  CHECK(loss(shares) == doctest::Approx(hard / 6));
}

TEST_CASE("recipe: lamb, rmsproptf and muon by name") {
  Recipe recipe;
  recipe.model = "convnext_atto";
  recipe.momentum = 0.7;
  const auto model = train::make_model(recipe, 10);
  recipe.opt = "lamb";
  CHECK(dynamic_cast<nn::Lamb*>(train::make_optimizer(recipe, *model).get()) != nullptr);
  recipe.opt = "rmsproptf";
  const auto optimizer = train::make_optimizer(recipe, *model);
  CHECK(dynamic_cast<nn::RmsPropTf*>(optimizer.get()) != nullptr);
  CHECK(optimizer->momentum() == 0.7);
  recipe.opt = "muon";
  const auto muon = train::make_optimizer(recipe, *model);
  CHECK(dynamic_cast<nn::Muon*>(muon.get()) != nullptr);
  CHECK(muon->momentum() == 0.7);
}
