#include "core/gradcheck.h"

#include "core/factory.h"
#include "core/op.h"
#include "ops/pointwise/pointwise.h"

#include <doctest/doctest.h>

#include <limits>

using namespace norma;

namespace {

Tensor leaf(const std::vector<double>& values, const Sizes& sizes) {
  return from_vector<double>(values, sizes).set_requires_grad();
}

/// x²
Tensor square(const Tensor& x) {
  return mul(x, x);
}

}  // namespace

TEST_CASE("gradcheck: the inputs are what they were, also if the function throws") {
  for (const int failing : {2, 3}) {  // of the calls with a moved element
    const Tensor x = leaf({1, 2}, {2});
    int calls = 0;
    const auto f = [&](const Tensors& in) -> Tensors {
      check(++calls != failing, "f", "expected another call");
      return {square(in[0])};
    };
    CHECK_THROWS_WITH_AS(gradcheck(f, {x}), "f: expected another call", Error);
    CHECK(x.to_vector<double>() == std::vector<double>{1, 2});
  }
}

TEST_CASE("gradcheck: finds gradients that are wrong with create_graph, stay on the tape, or count a path twice") {
  const Tensor x = leaf({1, 2}, {2});
  const Tensor w = leaf({3, 4}, {2});
  const auto wrong_recorded = [](const Tensors& xs) -> Tensors {
    return {Op("wrong").record({xs[0]}, square(xs[0].detach()), {xs[0]},
                               [](const Tensor& dy, const BackwardContext& c) -> Tensors {
                                 return {mul(mul(dy, c.saved(0)), c.create_graph() ? 3.0 : 2.0)};
                               })};
  };
  CHECK(gradcheck(wrong_recorded, {x}).message ==
        "input 0 (float64 [2]), element 0: create_graph gives -5.413670071, backward -3.60911338");
  const auto on_the_tape = [](const Tensors& xs) -> Tensors {
    return {Op("kept").record({xs[0]}, square(xs[0].detach()), {xs[0]},
                              [](const Tensor& dy, const BackwardContext& c) -> Tensors {
                                const GradModeGuard on(true);
                                return {mul(mul(dy, c.saved(0)), 2)};
                              })};
  };
  CHECK(gradcheck(on_the_tape, {x}).message ==
        "input 0 (float64 [2]), its gradient stays on the tape without create_graph");
  // x w, whose derivatives are those of a composed function walked to the end
  const auto counts_twice = [](const Tensors& xs) -> Tensors {
    return {Op("twice").record(xs, mul(xs[0].detach(), xs[1].detach()), xs,
                               [](const Tensor& dy, const BackwardContext& c) -> Tensors {
                                 const GradModeGuard on(true);
                                 Tensors in{c.saved(0), c.saved(1)};
                                 if (!c.create_graph()) {
                                   in = {in[0].detach().set_requires_grad(), in[1].detach().set_requires_grad()};
                                 }
                                 return grad({mul(in[0], in[1])}, in, {dy}, {.create_graph = c.create_graph()});
                               })};
  };
  CHECK(gradcheck(counts_twice, {x, w})
            .message.find(
                "input 0 (float64 [2]), element 0: for inputs that depend on each other, create_graph gives ") == 0);
  const auto right = [](const Tensors& xs) -> Tensors {
    return {Op("right").record(xs, mul(xs[0].detach(), xs[1].detach()), xs,
                               [](const Tensor& dy, const BackwardContext& c) -> Tensors {
                                 const auto product = [](const Tensors& in) { return Tensors{mul(in[0], in[1])}; };
                                 return gradients_of_composed(product, {c.saved(0), c.saved(1)}, {dy}, c);
                               })};
  };
  CHECK(gradcheck(right, {x, w}).passed);
  CHECK(gradgradcheck(right, {x, w}).passed);
}

TEST_CASE("gradcheck: finds a wrong gradient, a NaN and a missing dependence") {
  const Tensor x = leaf({1, 2}, {2});
  auto wrong = [](const Tensors& xs) -> Tensors {
    return {Op("wrong").record({xs[0]}, square(xs[0].detach()), {},
                               [](const Tensor& dy, const BackwardContext&) -> Tensors { return {dy}; })};
  };
  const GradcheckResult result = gradcheck(wrong, {x});
  CHECK(!result.passed);
  CHECK(result.message.find("input 0 (float64 [2]), element 0: backward gives") == 0);
  auto nan = [](const Tensors& xs) -> Tensors {
    return {
        Op("nan").record({xs[0]}, square(xs[0].detach()), {}, [](const Tensor& dy, const BackwardContext&) -> Tensors {
          return {mul(dy, std::numeric_limits<double>::quiet_NaN())};
        })};
  };
  CHECK(!gradcheck(nan, {x}).passed);
  auto cut = [](const Tensors& xs) -> Tensors { return {square(xs[0].detach())}; };
  CHECK(!gradcheck(cut, {x}).passed);
  auto right = [](const Tensors& xs) -> Tensors { return {square(xs[0])}; };
  CHECK(gradcheck(right, {x}).passed);
  CHECK(gradgradcheck(right, {x}).passed);
  CHECK_THROWS_WITH_AS(gradcheck(right, {ones({1}).set_requires_grad()}),
                       "gradcheck: inputs: expected dtype float64, got float32", Error);
}
