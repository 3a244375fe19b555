// What your answers must do. Gradients are compared with small steps, as in lesson 4; then the network must learn.

#include "exercise.h"
#include "training.h"

#include <norma/norma.h>

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <cmath>
#include <functional>
#include <string>
#include <vector>

namespace {

using norma::DType;
using Function = std::function<Tensor(const Tensor& x)>;

/// How sum(f(x) * dy) follows each element of x: central differences with a step of 1/64. The functions here are linear
/// or nearly so, and float has 7 digits.
std::vector<float> differences(const Function& f, const Tensor& x, const Tensor& dy) {
  std::vector<float> result;
  const float h = 1.0F / 64;
  std::vector<float> values = x.to_vector<float>();
  for (size_t i = 0; i < values.size(); ++i) {
    const auto at = [&](float change) {
      std::vector<float> moved = values;
      moved[i] += change;
      return norma::sum(f(norma::from_vector<float>(moved, x.sizes())) * dy).item<float>();
    };
    result.push_back((at(h) - at(-h)) / (2 * h));
  }
  return result;
}

void check_gradient(const std::string& what, const Tensor& yours, const Tensor& x, const Function& f,
                    const Tensor& dy) {
  INFO(what);
  REQUIRE_MESSAGE(yours.defined(), "there is no such gradient");
  {
    INFO("\n  a gradient has the sizes of its tensor: ", norma::to_string(x.sizes()), ", yours has ",
         norma::to_string(yours.sizes()));
    REQUIRE(yours.sizes() == x.sizes());
  }
  const std::vector<float> expected = differences(f, x, dy);
  const std::vector<float> found = yours.to_vector<float>();
  for (size_t i = 0; i < expected.size(); ++i) {
    INFO(fmt::format("\n  element {}: the difference is {:.4f}, your gradient {:.4f}", i, expected[i], found[i]));
    REQUIRE(std::abs(found[i] - expected[i]) < 2e-3);
  }
}

/// What an entry's function makes of dy. Where a function of Norma refuses, says what it was given.
std::vector<Tensor> gradients_of(const Entry& entry, const Tensor& dy, const std::string& given) {
  try {
    return entry.backward(dy);
  } catch (const norma::Error& error) {
    FAIL("your function was given ", given, ", and a call in it failed.\n  ", std::string(error.what()),
         "\n  (a and b are the first and the second argument of that call)");
    return {};
  }
}

const Tensor kX = norma::from_vector<float>({1, -2, 0.5F, 3, 0.25F, -1}, {2, 3});
const Tensor kW = norma::from_vector<float>({0.5F, 1, -1, 2, 0.75F, -0.5F, 1.5F, 0.25F, -2, 1, 3, 0.125F}, {3, 4});
const Tensor kB = norma::from_vector<float>({1, 2, 3, 4}, {4});
const Tensor kDy = norma::from_vector<float>({1, -1, 2, 0.5F, 0.25F, 3, -2, 1}, {2, 4});

}  // namespace

TEST_CASE("gap 1: the gradients of a linear layer") {
  Tape tape;
  const size_t x = tape.record(kX);
  const size_t w = tape.record(kW);
  const size_t b = tape.record(kB);
  const Entry& y = tape.entries[linear(tape, x, w, b)];
  const std::vector<Tensor> gradients = gradients_of(y, kDy, "x (2, 3), w (3, 4), b (4) and dy (2, 4)");
  REQUIRE_MESSAGE(gradients.size() == 3, "linear must return three gradients: those of x, w and b");
  check_gradient(
      "x (2, 3), w (3, 4), dy (2, 4): the gradient of x is dy times w transposed", gradients[0], kX,
      [](const Tensor& v) { return norma::matmul(v, kW); }, kDy);
  check_gradient(
      "x (2, 3), w (3, 4), dy (2, 4): the gradient of w is x transposed times dy", gradients[1], kW,
      [](const Tensor& v) { return norma::matmul(kX, v); }, kDy);
  check_gradient(
      "b (4), dy (2, 4): b is added to each row, so its gradient is the sum of the rows of dy", gradients[2], kB,
      [](const Tensor& v) {
        return norma::zeros({2, 4}) + v;
      },
      kDy);
}

TEST_CASE("gap 2: the gradient of the loss") {
  const Tensor one_hot = norma::from_vector<float>({0, 1, 0, 0, 0, 0, 0, 1}, {2, 4});
  const Tensor dy = norma::scalar(2);
  Tape tape;
  const size_t z = tape.record(kDy);
  const Entry& loss = tape.entries[cross_entropy(tape, z, one_hot)];
  const std::vector<Tensor> gradients = gradients_of(loss, dy, "logits (2, 4), one_hot (2, 4) and dy, one number");
  REQUIRE_MESSAGE(gradients.size() == 1, "cross_entropy must return one gradient: that of the logits");
  check_gradient(
      "two images, four classes, dy = 2: (probability - one_hot) / 2 images * dy", gradients[0], kDy,
      [&](const Tensor& v) { return norma::sum(one_hot * norma::log_softmax(v, 1)) / -2; }, dy);
}

TEST_CASE("gap 3: the walk") {
  Tape tape;
  const auto times = [&tape](size_t parent, double factor) {
    return tape.record(tape.entries[parent].value * factor, {parent},
                       [factor](const Tensor& dy) -> std::vector<Tensor> { return {dy * factor}; });
  };
  const size_t a = tape.record(norma::scalar(1));
  const size_t twice = times(a, 2);
  const size_t thrice = times(a, 3);
  const size_t sum = tape.record(tape.entries[twice].value + tape.entries[thrice].value, {twice, thrice},
                                 [](const Tensor& dy) -> std::vector<Tensor> {
                                   return {dy, dy};
                                 });
  const size_t alone = tape.record(norma::scalar(7));
  const size_t root = times(sum, 10);
  const auto check_entry = [&](const std::string& what, size_t entry, float expected) {
    const Tensor& gradient = tape.entries[entry].gradient;
    INFO("root = 10 * (2 a + 3 a). ", what, ": expected ", expected, ", yours ",
         gradient.defined() ? fmt::format("{:g}", gradient.item<float>()) : "none");
    REQUIRE(gradient.defined());
    CHECK(gradient.item<float>() == expected);
  };
  for (int walk = 0; walk < 2; ++walk) {
    backward(tape, root);
    const std::string when = walk == 0 ? "" : " in a second walk (are the old gradients gone?)";
    check_entry("the root" + when, root, 1);
    check_entry("the sum" + when, sum, 10);
    check_entry("a, which gets 2 * 10 and 3 * 10: do you add them up" + when, a, 50);
  }
  INFO("an entry that the root does not depend on has no gradient");
  CHECK(!tape.entries[alone].gradient.defined());
}

TEST_CASE("gap 3: the network learns (needs gaps 1 and 2)") {
  norma::manual_seed(1);
  const Images train = load_images(norma::data::Split::train, 3000);
  const Images test = load_images(norma::data::Split::test, 1000);
  Network network({784, 128, 64, 10});
  try {
    for (int epoch = 0; epoch < 2; ++epoch) {
      network.train(train, 50, 0.05);
    }
  } catch (const norma::Error& error) {
    FAIL("this test needs all three gaps, and one of them stops it: fill those first whose tests fail above.\n  ",
         std::string(error.what()));
  }
  const double accuracy = network.accuracy(test);
  MESSAGE(fmt::format("your tape has trained a network: {:.1f} % of 1000 new images are right", accuracy));
  INFO(fmt::format("after 120 steps, {:.1f} % of new images are right; expected at least 65 %, and guessing gives 10 %",
                   accuracy),
       "\n  this test needs all three gaps: fill those first whose tests fail above");
  CHECK(accuracy >= 65);
}
