#include "nn/freeze.h"

#include "core/tape.h"
#include "error_text.h"
#include "models/registry.h"
#include "nn/norm/batch_norm.h"
#include "nn/norm/policy.h"
#include "nn/optim/optimizers.h"
#include "nn/policy_file.h"
#include "ops/reduce/reduce.h"
#include "support.h"

#include <map>
#include <string>
#include <vector>

using namespace norma;
using namespace norma::nn;
using test::differ;
using test::error_of;
using test::max_difference;
using test::random_tensor;

namespace {

std::shared_ptr<Module> small_resnet(const std::string& norm = "batch") {
  return models::create_model("resnet18", {.num_classes = 3, .norm = norm, .small_stem = true});
}

std::vector<std::string> frozen_names(const std::string& patterns, const std::string& norm = "batch") {
  const auto model = small_resnet(norm);
  freeze(*model, freeze_patterns(patterns));
  std::vector<std::string> names;
  for (const auto& [name, x] : frozen_tensors(*model)) {
    names.push_back(name);
  }
  return names;
}

std::string error_of_freeze(const std::string& patterns) {
  const auto model = small_resnet();
  std::string error = error_of([&] { freeze(*model, freeze_patterns(patterns)); });
  CHECK(frozen_tensors(*model).empty());  // nothing has changed
  return error;
}

using Names = std::vector<std::string>;

}  // namespace

TEST_CASE("freeze: patterns name tensors, or modules with all that they hold") {
  const Names stem{"conv1.weight",     "bn1.weight",      "bn1.bias",
                   "bn1.running_mean", "bn1.running_var", "bn1.num_batches_tracked"};
  CHECK(frozen_names("conv1.*,bn1.*") == stem);
  CHECK(frozen_names(" conv1 ,\tbn1") == stem);
  CHECK(frozen_names("conv1.weight,bn1.weight,bn1.bias") == stem);  // statistics go with the parameters of their norm
  CHECK(frozen_names("bn1.weight") == Names{"bn1.weight"});
  CHECK(frozen_names("bn1.running_mean") == Names{"bn1.running_mean", "bn1.running_var", "bn1.num_batches_tracked"});
  CHECK(frozen_names("layer1").size() == 24);
  CHECK(frozen_names("layer[12].?.bn1").size() == 4 * 5);
  CHECK(frozen_names("conv1,bn1", "group:8") == Names{"conv1.weight", "bn1.weight", "bn1.bias"});
}

TEST_CASE("freeze: what names nothing or everything is refused, with the names there are") {
  CHECK(error_of_freeze("layre1.*") ==
        "freeze: 'layre1.*': expected the name of a parameter or of a part of the network, got none of them; did you "
        "mean "
        "'layer1.*'? There are conv1, bn1, layer1, layer2, layer3, layer4, fc");
  CHECK(error_of_freeze("conv1.*,layer1.7.*") ==
        "freeze: 'layer1.7.*': expected the name of a parameter or of a part of the network, got none of them; did you "
        "mean 'layer1.0.*'? There are layer1.0, layer1.1");
  CHECK(error_of_freeze("fc.wieght") ==
        "freeze: 'fc.wieght': expected the name of a parameter or of a part of the network, got none of them; did you "
        "mean "
        "'fc.weight'? There are fc.weight, fc.bias");
  CHECK(
      error_of_freeze("conv*,bn*,layer*,fc*") ==
      "freeze: expected patterns that leave a parameter to train, got 'conv*', 'bn*', 'layer*', 'fc*', which name all "
      "62");
  for (const char* list : {"", "conv1.*,", ",", " ", "conv1.*, ,bn1"}) {
    CHECK(error_of([&] { freeze_patterns(list); }) ==
          "freeze: expected patterns of names such as layer1.*,bn1.*, got '" + std::string(list) + "'");
  }
}

TEST_CASE("freeze: a line of the norm policy, which may be the only one") {
  const NormPolicy policy = parse_norm_policy("\"bn1\" = \"group:8\"\nfreeze = \"conv1.*, bn1.*\"\n", "p.toml");
  REQUIRE(policy.freeze.size() == 2);
  CHECK(policy.freeze[1].pattern == "bn1.*");
  CHECK(policy.rules.size() == 1);
  CHECK(parse_norm_policy("freeze = \"fc\"\n", "p.toml").rules.empty());
  const auto error = [](const char* text) { return error_of([&] { parse_norm_policy(text, "p.toml"); }); };
  CHECK(error("freeze = 3\n") ==
        "norm policy: p.toml:1:10: freeze: expected patterns such as \"layer1.*,bn1.*\", got another type");
  CHECK(error("freeze = \"\"\n") == "freeze: p.toml:1:10: expected patterns of names such as layer1.*,bn1.*, got ''");
  const auto model = small_resnet();
  CHECK(error_of([&] {
          freeze(*model, parse_norm_policy("\nfreeze = \"stem\"\n", "p.toml").freeze);
        }).starts_with("freeze: p.toml:2:10: 'stem': expected the name of "));
}

TEST_CASE("freeze: a norm is in evaluation, whatever train() says, and others are not") {
  const auto model = small_resnet();
  freeze(*model, freeze_patterns("bn1"));
  const auto state_of = [&] {
    std::map<std::string, std::vector<double>> state;
    for (const auto& [name, x] : model->named_buffers()) {
      state[name] = x.to_vector<double>();
    }
    return state;
  };
  const auto before = state_of();
  model->train();
  CHECK(model->is_training());
  {
    const Modes modes(*model);  // as an evaluation during training has it
    model->eval();
  }
  (*model)(random_tensor({2, 3, 16, 16}, 1, DType::float32));
  const auto after = state_of();
  for (const auto& [name, values] : before) {
    CHECK_MESSAGE((after.at(name) == values) == name.starts_with("bn1."), name);
  }
  for (const auto& [path, module] : model->named_modules()) {
    CHECK(module->is_training() == (path != "bn1"));
  }

  // Its output is that of evaluation.
  const auto norm = std::make_shared<BatchNorm2d>(3);
  const Tensor x = random_tensor({2, 3, 4, 5}, 2, DType::float32);
  (*norm)(x);
  norm->eval();
  const Tensor y = (*norm)(x);
  norm->train();
  CHECK(differ((*norm)(x), y, 0.01));
  norm->freeze_statistics();
  norm->eval();
  const Tensor held = (*norm)(x);
  norm->train();
  CHECK(max_difference((*norm)(x), held) == 0);
}

TEST_CASE("freeze: optimizers leave frozen parameters out, and the tape begins at the first one that is trained") {
  const Tensor images = random_tensor({2, 3, 16, 16}, 1, DType::float32);
  struct Recorded {
    size_t nodes = 0;
    size_t saved = 0;
    int64_t bytes = 0;
    size_t gradients = 0;
    size_t optimized = 0;
  };
  const auto recorded = [&](const std::string& patterns) {
    const auto model = small_resnet();
    if (!patterns.empty()) {
      freeze(*model, freeze_patterns(patterns));
    }
    const Tensor loss = sum((*model)(images));
    Recorded result;
    const Tape tape(loss);
    for (const auto& node : tape.nodes()) {
      ++result.nodes;
      result.saved += node->saved.size();
      for (const SavedTensor& x : node->saved) {
        result.bytes += x.value().numel() * 4;
      }
    }
    const Sgd optimizer(parameter_groups(*model, 0.1), {.lr = 0.1});
    result.optimized = optimizer.parameters().size();
    loss.backward();
    for (const Tensor& x : model->parameters()) {
      CHECK(x.grad().defined() == x.requires_grad());
      result.gradients += x.grad().defined() ? 1 : 0;
    }
    return result;
  };
  const Recorded whole = recorded("");
  const Recorded stem = recorded("conv1,bn1");
  const Recorded body = recorded("conv1,bn1,layer*");
  const Recorded middle = recorded("layer2");
  CHECK(whole.gradients == 62);
  CHECK(whole.optimized == 62);
  CHECK(stem.gradients == 59);
  CHECK(stem.optimized == 59);
  CHECK(stem.nodes == whole.nodes - 2);  // convolution, and norm with relu
  CHECK(stem.saved < whole.saved);
  CHECK(stem.bytes < whole.bytes);
  CHECK(body.gradients == 2);
  CHECK(body.nodes == 2);              // linear and sum: not even the pooling before them
  CHECK(middle.nodes == whole.nodes);  // gradients go through it
  CHECK(middle.saved < whole.saved);   // but those of its weights are not made
  CHECK(middle.gradients == 62 - 15);
}
