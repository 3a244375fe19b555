#include "core/copy.h"
#include "core/factory.h"
#include "core/random.h"
#include "error_text.h"
#include "nn/checkpoint.h"
#include "nn/conv.h"
#include "nn/hooks.h"
#include "nn/layers.h"
#include "nn/norm/batch_norm.h"
#include "nn/sequential.h"
#include "ops/pointwise/pointwise.h"
#include "ops/reduce/reduce.h"
#include "ops/shape/copy.h"
#include "support.h"

#include <doctest/doctest.h>

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

using namespace norma;
using norma::test::error_of;
using norma::test::max_difference;
using norma::test::random_tensor;

// What a program changes between the forward pass of a checkpoint and its second pass in backward().

namespace {

/// Convolution, batch norm, ReLU; with the same start for each caller.
std::shared_ptr<nn::Sequential> block() {
  manual_seed(3);
  auto made = std::make_shared<nn::Sequential>();
  made->push_back(std::make_shared<nn::Conv2d>(3, 5, 3));
  made->push_back(std::make_shared<nn::BatchNorm2d>(5));
  made->push_back(std::make_shared<nn::ReLU>());
  return made;
}

Tensor input() {
  return random_tensor({4, 3, 5, 7}, 1, DType::float32);
}

void set_trained(const nn::Module& module, bool on) {
  for (Tensor x : module.parameters()) {
    x.set_requires_grad(on);
  }
}

/// The gradients that arrive after a change between forward and backward; undefined where none does.
Tensors gradients_after(const std::function<void(nn::Sequential&, Tensor x)>& before,
                        const std::function<void(nn::Sequential&, Tensor x)>& change, bool checkpoints) {
  const auto module = block();
  const Tensor x = input();
  before(*module, x);
  const Tensor y = checkpoints ? nn::checkpoint(module, x) : (*module)(x);
  change(*module, x);
  sum(mul(y, y)).backward();
  Tensors gradients{x.grad()};
  for (const Tensor& parameter : module->parameters()) {
    gradients.push_back(parameter.grad());
  }
  return gradients;
}

}  // namespace

TEST_CASE("checkpoint: what is frozen or trained anew before backward changes no gradient") {
  const auto trains_x = [](const nn::Sequential&, Tensor x) { x.set_requires_grad(); };
  const auto leaves_x = [](const nn::Sequential&, const Tensor&) {};
  const auto freezes_conv = [](const nn::Sequential& module, const Tensor&) {
    set_trained(*module.children()[0].second, false);
  };
  struct Case {
    std::string name;
    std::function<void(nn::Sequential&, Tensor)> before;
    std::function<void(nn::Sequential&, Tensor)> change;
    size_t gradients;  // that arrive
  };
  for (const Case& one : {
           Case{"all is frozen", trains_x,
                [](const nn::Sequential&module, const Tensor&) { set_trained(module, false); }, 5},
           Case{"a part is trained anew", freezes_conv,
                [](const nn::Sequential&module, const Tensor&) { set_trained(module, true); }, 2},
           Case{"the input is frozen", trains_x, [](const nn::Sequential&, Tensor x) { x.set_requires_grad(false); },
                5},
           Case{"the input is trained anew", leaves_x, [](const nn::Sequential&, Tensor x) { x.set_requires_grad(); },
                4},
           Case{"statistics are frozen", leaves_x,
                [](const nn::Sequential&module, const Tensor&) { module.children()[1].second->freeze_statistics(); },
                4},
           Case{"statistics are thawed",
                [](const nn::Sequential&module, const Tensor&) { module.children()[1].second->freeze_statistics(); },
                [](const nn::Sequential&module, const Tensor&) {
                  module.children()[1].second->freeze_statistics(false);
                },
                4},
       }) {
    CAPTURE(one.name);
    const Tensors plain = gradients_after(one.before, one.change, false);
    const Tensors again = gradients_after(one.before, one.change, true);
    size_t arrived = 0;
    REQUIRE(again.size() == plain.size());
    for (size_t i = 0; i < plain.size(); ++i) {
      CAPTURE(i);
      REQUIRE(again[i].defined() == plain[i].defined());
      if (plain[i].defined()) {
        ++arrived;
        CHECK(max_difference(again[i], plain[i]) == 0);
      }
    }
    CHECK(arrived == one.gradients);
  }
}

TEST_CASE("checkpoint: flags have their present values after backward") {
  const auto module = block();
  const Tensor y = nn::checkpoint(module, input());
  set_trained(*module, false);
  module->children()[1].second->freeze_statistics();
  sum(y).backward();
  for (const Tensor& parameter : module->parameters()) {
    CHECK_FALSE(parameter.requires_grad());
  }
  CHECK(module->children()[1].second->has_frozen_statistics());
}

TEST_CASE("checkpoint: a module that stands in the block twice keeps its flags and its statistics") {
  manual_seed(3);
  const auto make = [] {
    const auto norm = std::make_shared<nn::BatchNorm2d>(3);
    const auto module = std::make_shared<nn::Sequential>();
    module->push_back(norm);
    module->push_back(norm);
    return std::pair{norm, module};
  };
  const auto [plain_norm, plain] = make();
  const Tensor plain_y = (*plain)(input());
  sum(mul(plain_y, plain_y)).backward();
  const auto [norm, module] = make();
  const Tensor y = nn::checkpoint(module, input());
  const Tensors statistics = {clone(norm->running_mean()), clone(norm->running_var())};
  set_trained(*norm, false);
  sum(mul(y, y)).backward();
  CHECK(max_difference(norm->running_mean(), statistics[0]) == 0);
  CHECK(max_difference(norm->running_var(), statistics[1]) == 0);
  for (size_t i = 0; i < 2; ++i) {
    const Tensor parameter = norm->parameters()[i];
    CHECK_FALSE(parameter.requires_grad());
    REQUIRE(parameter.grad().defined());
    CHECK(max_difference(parameter.grad(), plain_norm->parameters()[i].grad()) == 0);
  }
}

// A read past the end of the empty list of modules is seen by the sanitizer alone.
TEST_CASE("checkpoint: a module without modules below it is a block, too") {
  manual_seed(3);
  const auto norm = std::make_shared<nn::BatchNorm2d>(3);
  const Tensor y = nn::checkpoint(norm, input());
  sum(mul(y, y)).backward();
  CHECK(norm->parameters()[0].grad().defined());
}

TEST_CASE("checkpoint: a module that was replaced or added before backward is an error") {
  const auto error_after = [](const std::function<void(nn::Sequential&)>& change) {
    const auto inner = block();
    const auto module = std::make_shared<nn::Sequential>();
    module->push_back(inner);
    const Tensor y = nn::checkpoint(module, input());
    change(*module);
    return error_of([&] { sum(y).backward(); });
  };
  const std::string expected =
      "checkpoint(Sequential): backward: expected the modules of the forward pass, got another one at ";
  CHECK(error_after([](nn::Sequential& module) { module.replace_module("0.2", std::make_shared<nn::GELU>()); }) ==
        expected + "'0.2'");
  CHECK(error_after([](nn::Sequential& module) {
          module.replace_module("0.1", std::make_shared<nn::BatchNorm2d>(5));
        }) == expected + "'0.1'");
  CHECK(error_after([](nn::Sequential& module) { module.push_back(std::make_shared<nn::ReLU>()); }) ==
        expected + "'1'");
  CHECK(error_after([](nn::Sequential& module) {  // and back again
          const auto old = module.replace_module("0.2", std::make_shared<nn::GELU>());
          module.replace_module("0.2", old);
        }) == "no error");
}

TEST_CASE("checkpoint: a frozen parameter that was changed in place before backward is an error") {
  const auto module = block();
  set_trained(*module->children()[0].second, false);
  const Tensor y = nn::checkpoint(module, input());
  const Tensor weight = module->parameters()[0];
  copy_into(mul(weight, 2), weight);
  CHECK(error_of([&] { sum(y).backward(); }).starts_with("checkpoint(Sequential): saved tensor 1 ("));
}

TEST_CASE("checkpoint: with checkpoints inside, one pass alone is no repetition") {
  const auto inner = block();
  const auto module = std::make_shared<nn::Sequential>();
  module->push_back(inner);
  module->set_grad_checkpointing();
  std::vector<nn::CheckpointPass> passes;
  nn::Hooks hooks;
  hooks.add(*inner->children()[0].second,
            [&](const nn::Module&, const Tensor&, const Tensor&) { passes.push_back(nn::checkpoint_pass()); });
  const Tensor y = nn::checkpoint(module, input());
  sum(y).backward();
  using Pass = nn::CheckpointPass;
  CHECK((passes == std::vector{Pass::first, Pass::again, Pass::again}));
  CHECK(nn::checkpoint_pass() == Pass::none);
}
