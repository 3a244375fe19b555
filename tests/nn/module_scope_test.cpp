#include "nn/module_scope.h"

#include "base/error.h"
#include "core/factory.h"
#include "nn/conv.h"
#include "nn/layers.h"
#include "nn/norm/batch_norm.h"
#include "nn/norm/norm.h"
#include "nn/sequential.h"
#include "support.h"

#include <doctest/doctest.h>

#include <memory>
#include <string>
#include <vector>

using namespace norma;

namespace {

/// "+name" and "-name" in the order in which modules begin and end; "!name" for one that threw.
class Diary : public nn::ModuleObserver {
 public:
  void enter(const nn::Module& module) override { text += "+" + short_name(module); }
  void leave(const nn::Module& module, const Tensor& input, const Tensor& output) override {
    text += (output.defined() ? "-" : "!") + short_name(module);
    inputs.push_back(input);
    outputs.push_back(output);
  }

  std::string text;
  Tensors inputs;
  Tensors outputs;

 private:
  static std::string short_name(const nn::Module& module) { return module.name().substr(0, module.name().find('(')); }
};

class Throwing : public nn::Module {
 public:
  Tensor forward(const Tensor&) override { fail("throwing", "as it should"); }
  [[nodiscard]] std::string name() const override { return "Throwing"; }
};

}  // namespace

TEST_CASE("module scope: the observer sees each module once, with its input and output") {
  nn::Sequential model{std::make_shared<nn::Conv2d>(2, 3, 1), std::make_shared<nn::BatchNorm2d>(3)};
  const Tensor x = randn({2, 2, 4, 4});
  const Tensor before = model(x);  // nobody watches
  Diary diary;
  const Tensor y = model(x);
  CHECK(diary.text == "+Sequential+Conv2d-Conv2d+BatchNorm2d-BatchNorm2d-Sequential");
  CHECK(diary.inputs[0].is_same(x));
  CHECK(diary.inputs[1].is_same(diary.outputs[0]));
  CHECK(diary.outputs[2].is_same(y));
  CHECK(test::max_difference(before, y) == 0);
}

TEST_CASE("module scope: a norm with an activation in one op stays one op, and is seen") {
  nn::Conv2d conv(2, 3, 1);
  nn::BatchNorm2d norm(3);
  Diary diary;
  const Tensor y = nn::conv_norm_act(conv, norm, randn({2, 2, 4, 4}), {.activation = Activation::relu});
  CHECK(diary.text == "+Conv2d-Conv2d+BatchNorm2d-BatchNorm2d");
  REQUIRE(diary.outputs.size() == 2);
  CHECK(diary.outputs[1].is_same(y));
  CHECK_FALSE(norm.has_forward_hooks());
}

TEST_CASE("module scope: what throws is left too, and the inner of two observers sees alone") {
  nn::Sequential model{std::make_shared<nn::ReLU>(), std::make_shared<Throwing>()};
  const Tensor x = ones({2, 2});
  Diary outer;
  {
    Diary inner;
    CHECK_THROWS_AS(model(x), Error);
    CHECK(inner.text == "+Sequential+ReLU-ReLU+Throwing!Throwing!Sequential");
  }
  CHECK(outer.text.empty());
  nn::ReLU relu;
  relu(x);
  CHECK(outer.text == "+ReLU-ReLU");
}
