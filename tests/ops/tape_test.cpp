#include "core/op.h"

#include "core/anomaly.h"
#include "core/copy.h"
#include "core/factory.h"
#include "ops/pointwise/pointwise.h"
#include "ops/reduce/reduce.h"
#include "ops/shape/copy.h"
#include "ops/shape/view.h"
#include "tests/support.h"

#include <doctest/doctest.h>

using namespace norma;
using test::max_difference;

namespace {

Tensor leaf(const std::vector<double>& values, const Sizes& sizes) {
  return from_vector<double>(values, sizes).set_requires_grad();
}

/// x², saving its input.
Tensor square(const Tensor& x) {
  const Tensor y = copy_of(x.detach());
  test::change_elements<double>(y, [&](double* elements) {
    for (int64_t i = 0; i < y.numel(); ++i) {
      elements[i] *= elements[i];
    }
  });
  return Op("square").record({x}, y, {x}, [](const Tensor& dy, const BackwardContext& context) -> Tensors {
    return {mul(mul(dy, context.saved(0)), 2)};
  });
}

}  // namespace

TEST_CASE("tape: gradients of a diamond are summed") {
  const Tensor x = leaf({1, 2, 3}, {3});
  const Tensor a = square(x);
  const Tensor y = add(mul(a, a), a);  // x⁴ + x²
  sum(y).backward();
  CHECK(max_difference(x.grad(), from_vector<double>({6, 36, 114}, {3})) == 0);
}

TEST_CASE("tape: backward accumulates into .grad of leaves only") {
  const Tensor x = leaf({2}, {1});
  const Tensor y = square(x);
  sum(y).backward();
  sum(square(x)).backward();
  CHECK(x.grad().item<double>() == 8);
  CHECK(!y.grad().defined());
}

TEST_CASE("tape: backward knows which leaves required a gradient when the ops were recorded") {
  Tensor frozen = leaf({2, 3}, {2});
  Tensor thawed = leaf({5, 7}, {2});
  thawed.set_requires_grad(false);
  const Tensor y = sum(mul(square(frozen), thawed));
  frozen.set_requires_grad(false);
  thawed.set_requires_grad();
  y.backward();
  REQUIRE(frozen.grad().defined());
  CHECK(max_difference(frozen.grad(), from_vector<double>({20, 42}, {2})) == 0);
  CHECK_FALSE(thawed.grad().defined());
  CHECK_FALSE(frozen.requires_grad());
  // An op that is recorded now reads the other one alone.
  sum(mul(square(frozen), thawed)).backward();
  CHECK(max_difference(frozen.grad(), from_vector<double>({20, 42}, {2})) == 0);
  CHECK(max_difference(thawed.grad(), from_vector<double>({4, 9}, {2})) == 0);
}

TEST_CASE("tape: backward on a non-scalar wants a gradient of the same sizes") {
  const Tensor x = leaf({1, 2}, {2});
  CHECK_THROWS_WITH_AS(square(x).backward(),
                       "backward: gradient: expected one, since only a root with one element has 1 as default (sizes "
                       "[2])",
                       Error);
  CHECK_THROWS_WITH_AS(square(x).backward(ones({3}, {.dtype = DType::float64})),
                       "backward: gradient: expected sizes [2], got [3]", Error);
  CHECK_THROWS_WITH_AS(square(x).backward(ones({2})), "backward: gradient: expected dtype float64, got float32", Error);
  CHECK_THROWS_WITH_AS(zeros({1}).backward(),
                       "backward: root: expected a tensor that requires a gradient, got float32 [1] that does not",
                       Error);
  square(x).backward(from_vector<double>({10, 100}, {2}));
  CHECK(max_difference(x.grad(), from_vector<double>({20, 400}, {2})) == 0);
}

TEST_CASE("tape: a second backward needs retain_graph") {
  const Tensor x = leaf({3}, {1});
  const Tensor once = sum(square(x));
  once.backward();
  CHECK_THROWS_WITH_AS(once.backward(),
                       "backward: this graph was walked before and what square had saved is gone; pass retain_graph = "
                       "true the first time",
                       Error);
  const Tensor twice = sum(square(x));
  backward(twice, {}, {.retain_graph = true});
  twice.backward();
  CHECK(x.grad().item<double>() == 18);
  CHECK_THROWS_WITH_AS(twice.backward(),
                       "backward: this graph was walked before and what square had saved is gone; pass retain_graph = "
                       "true the first time",
                       Error);
}

TEST_CASE("tape: an in-place change of a saved tensor is an error that names the op and the tensor") {
  const Tensor x = leaf({1, 2}, {2});
  Tensor a = mul(x, 1);
  const Tensor y = sum(square(a));
  add_(a, 1.0);
  CHECK_THROWS_WITH_AS(y.backward(),
                       "square: saved tensor 0 (float64 [2]) was changed in place: it is at version 1, backward needs "
                       "version 0",
                       Error);
}

TEST_CASE("tape: in-place rules for leaves, views and expanded tensors") {
  Tensor x = leaf({1, 2}, {2});
  CHECK_THROWS_WITH_AS(add_(x, 1.0),
                       "add_: x: a leaf that requires a gradient cannot be changed in place while gradients are on",
                       Error);
  Tensor part = slice(mul(x, 2), 0, 0, 1);
  CHECK_THROWS_WITH_AS(add_(part, 1.0),
                       "add_: x: a view cannot be changed in place while gradients are on; clone() it first", Error);
  Tensor wide = expand(zeros({1, 2}), {3, 2});
  CHECK_THROWS_WITH_AS(add_(wide, 1.0),
                       "add_: x: expected a place in memory for each element, got an expanded tensor (sizes [3, 2], "
                       "strides [0, 1])",
                       Error);
  {
    const NoGradGuard guard;
    add_(x, 1.0);
  }
  CHECK(x.to_vector<double>() == std::vector<double>{2, 3});
}

TEST_CASE("tape: a view whose base changed since cannot be used with its old history") {
  const Tensor x = leaf({1, 2}, {2});
  Tensor base = mul(x, 2);
  const Tensor part = view(base, {2, 1});
  mul_(base, scalar(3, DType::float64));
  CHECK_THROWS_WITH_AS(
      sum(part), "sum: an input is a view made by view whose storage was changed in place since; make the view again",
      Error);
  CHECK_THROWS_WITH_AS(backward(part, from_vector<double>({1, 1}, {2, 1})),
                       "backward: root: is a view whose storage was changed in place since; make the view again",
                       Error);
  sum(view(base, {2, 1})).backward();
  CHECK(max_difference(x.grad(), from_vector<double>({6, 6}, {2})) == 0);
}

TEST_CASE("tape: a view without history whose base gets one is refused") {
  const std::string text =
      "mul: an input is a view whose storage was changed by a recorded op since; make the view again";
  Tensor base = zeros({3}, {.dtype = DType::float64});
  const Tensor part = view(base, {3, 1});
  const Tensor of_part = slice(part, 0, 0, 2);
  Tensor own = view(base, {1, 3}).set_requires_grad();
  const Tensor apart = part.detach();
  const Tensor apart_too = base.detach();
  const Tensor copy = copy_of(part);
  const Tensor w = leaf({1, 1, 1}, {3});
  Tensor p = leaf({1, 2, 3}, {3, 1});
  add_(base, 1.0);  // off the tape: the views follow
  CHECK(max_difference(mul(part, p), p) == 0);
  add_(base, w);
  CHECK_THROWS_WITH_AS(mul(part, p), text.c_str(), Error);
  CHECK_THROWS_WITH_AS(mul(p, part), text.c_str(), Error);
  CHECK_THROWS_WITH_AS(mul(of_part, 2), text.c_str(), Error);  // also where no other input is on the tape
  CHECK_THROWS_WITH_AS(mul(own, 2), text.c_str(), Error);
  CHECK_THROWS_WITH_AS(backward(own, own.detach()),
                       "backward: root: is a view whose storage was changed in place since; make the view again",
                       Error);
  CHECK_THROWS_WITH_AS(backward(part, ones_like(part)),
                       "backward: root: is a view whose storage was changed in place since; make the view again",
                       Error);
  {
    const NoGradGuard guard;
    CHECK(max_difference(mul(part, 2), from_vector<double>({4, 4, 4}, {3, 1})) == 0);
  }
  sum(mul(view(base, {3, 1}), p)).backward();
  CHECK(max_difference(w.grad(), from_vector<double>({1, 2, 3}, {3})) == 0);
  // What was detached or copied has no history to lose.
  for (const Tensor& other : {apart, copy, view(apart_too, {3, 1})}) {
    const Tensor y = mul(other, p);
    p.set_grad({});
    sum(y).backward();
    CHECK(max_difference(p.grad(), copy_of(other)) == 0);
  }
}

TEST_CASE("tape: identity is a view, and shares its rules") {
  const Tensor w = leaf({1, 1}, {2});
  Tensor x = leaf({3, 4}, {2});
  Tensor of_leaf = identity(x);
  CHECK_THROWS_WITH_AS(add_(of_leaf, w),
                       "add_: x: a view cannot be changed in place while gradients are on; clone() it first", Error);
  Tensor base = zeros({2}, {.dtype = DType::float64});
  const Tensor y = identity(base);
  add_(base, w);
  CHECK_THROWS_WITH_AS(
      sum(y), "sum: an input is a view whose storage was changed by a recorded op since; make the view again", Error);
}

TEST_CASE("tape: an operand that is refused is refused before anything changes") {
  Tensor base = zeros({2}, {.dtype = DType::float64});
  const Tensor stale = view(base, {2});
  const Tensor w = leaf({1, 1}, {2});
  add_(base, w);
  Tensor y = mul(w, 3);
  CHECK_THROWS_WITH_AS(add_(y, stale),
                       "add_: an input is a view whose storage was changed by a recorded op since; make the view again",
                       Error);
  CHECK(y.version() == 0);
  CHECK(max_difference(y, from_vector<double>({3, 3}, {2})) == 0);
}

TEST_CASE("tape: a recorded change of a detached tensor is that of its own views alone") {
  const Tensor base = zeros({2}, {.dtype = DType::float64});
  const Tensor of_base = view(base, {2, 1});
  Tensor apart = base.detach();
  const Tensor of_apart = view(apart, {2, 1});
  add_(apart, leaf({1, 1}, {2}));
  CHECK(max_difference(mul(of_base, leaf({2, 2}, {2, 1})), full({2, 1}, 2, {.dtype = DType::float64})) == 0);
  CHECK_THROWS_WITH_AS(mul(of_apart, 2),
                       "mul: an input is a view whose storage was changed by a recorded op since; make the view again",
                       Error);
}

TEST_CASE("tape: no_grad and detach cut it") {
  const Tensor x = leaf({3}, {1});
  {
    const NoGradGuard guard;
    CHECK(!square(x).requires_grad());
  }
  CHECK(square(x).requires_grad());
  CHECK(!square(x).detach().requires_grad());
  sum(mul(square(x), square(x).detach())).backward();
  CHECK(x.grad().item<double>() == 54);
  CHECK_THROWS_WITH_AS(square(x).set_requires_grad(false),
                       "set_requires_grad: expected a leaf, got the result of a recorded op; use detach()", Error);
  CHECK_THROWS_WITH_AS(arange(3).set_requires_grad(), "set_requires_grad: tensor: expected a floating dtype, got int64",
                       Error);
}

TEST_CASE("tape: hooks see and replace the complete gradient") {
  const Tensor x = leaf({1, 2}, {2});
  const Tensor a = square(x);
  std::vector<double> seen;
  a.register_hook([&](const Tensor& gradient) {
    seen = gradient.to_vector<double>();
    return mul(gradient, 10);
  });
  int leaf_calls = 0;
  x.register_hook([&](const Tensor&) {
    ++leaf_calls;
    return Tensor();
  });
  // grad() finds what the hook returned.
  CHECK(grad({sum(add(a, a))}, {a})[0].to_vector<double>() == std::vector<double>{20, 20});
  sum(add(a, a)).backward();
  CHECK(seen == std::vector<double>{2, 2});
  CHECK(leaf_calls == 1);
  CHECK(max_difference(x.grad(), from_vector<double>({40, 80}, {2})) == 0);
}

TEST_CASE("tape: grad() returns gradients of inner tensors and runs only what leads to them") {
  const Tensor x = leaf({2}, {1});
  const Tensor other = leaf({5}, {1});
  const Tensor a = square(x);
  const Tensor y = sum(mul(square(a), other));
  const Tensors gradients = grad({y}, {a, other, leaf({1}, {1})}, {}, {.retain_graph = true});
  CHECK(gradients[0].item<double>() == 40);
  CHECK(gradients[1].item<double>() == 16);
  CHECK(!gradients[2].defined());
  CHECK(!x.grad().defined());
  CHECK(!other.grad().defined());
}

TEST_CASE("tape: grad() lets go only of what it ran") {
  const Tensor x = leaf({3}, {1});
  const Tensor a = square(x);
  CHECK(grad({sum(mul(a, 2))}, {a})[0].item<double>() == 2);
  sum(mul(a, 5)).backward();  // square() has not been walked yet
  CHECK(x.grad().item<double>() == 30);
}

TEST_CASE("tape: filling is refused where a gradient would be wrong") {
  const Tensor x = leaf({1, 2}, {2});
  const Tensor y = mul(x, 2);
  const char* text = ": x: expected a tensor that takes part in no graph, got the result of an op on one";
  CHECK_THROWS_WITH_AS(zero_(y), (std::string("fill_") + text).c_str(), Error);
  CHECK_THROWS_WITH_AS(uniform_(y, 0, 1), (std::string("uniform_") + text).c_str(), Error);
  CHECK_THROWS_WITH_AS(normal_(y, 0, 1), (std::string("normal_") + text).c_str(), Error);
  CHECK_THROWS_WITH_AS(truncated_normal_(y, 0, 1, -2, 2), (std::string("truncated_normal_") + text).c_str(), Error);
  const NoGradGuard guard;
  zero_(y);
  CHECK(y.to_vector<double>() == std::vector<double>{0, 0});
}

TEST_CASE("tape: create_graph gives second and third derivatives") {
  const Tensor x = leaf({3}, {1});
  const Tensor y = sum(mul(square(x), square(x)));  // x⁴
  const Tensor first = grad({y}, {x}, {}, {.create_graph = true})[0];
  const Tensor second = grad({sum(first)}, {x}, {}, {.create_graph = true})[0];
  const Tensor third = grad({sum(second)}, {x})[0];
  CHECK(first.item<double>() == 108);
  CHECK(second.item<double>() == 108);
  CHECK(third.item<double>() == 72);
}

TEST_CASE("tape: .grad has memory of its own also with create_graph") {
  const Tensor x = test::random_tensor({2, 3}, 1).set_requires_grad();
  const Tensor y = test::random_tensor({2, 3}, 2).set_requires_grad();
  const Tensor gradient = test::random_tensor({2, 3}, 3);
  backward(add(x, y), gradient, {.create_graph = true});
  CHECK(x.grad().storage() != y.grad().storage());
  CHECK(x.grad().storage() != gradient.storage());
  CHECK(max_difference(x.grad(), gradient) == 0);

  const Tensor w = test::random_tensor({2, 3}, 4).set_requires_grad();
  backward(sum(mul(transpose(w, 0, 1), 2)), {}, {.create_graph = true});  // an expanded, transposed gradient
  CHECK(w.grad().strides() == w.strides());

  const Tensor z = test::random_tensor({2, 3}, 5).set_requires_grad();
  backward(sum(mul(z, mul(z, z))), {}, {.create_graph = true});
  CHECK(max_difference(grad({sum(z.grad())}, {z})[0], mul(z.detach(), 6)) < 1e-5);

  for (Tensor leaf : {x, y, w, z}) {
    leaf.set_grad({});  // .grad is on the tape, which holds the leaf
  }
}

TEST_CASE("tape: .grad has memory of its own in the leaf's strides") {
  const Tensor x = copy_of(test::random_tensor({2, 3, 4, 5}, 1), MemoryFormat::channels_last).set_requires_grad();
  const Tensor y = copy_of(test::random_tensor({2, 3, 4, 5}, 2)).set_requires_grad();
  const Tensor gradient = copy_of(test::random_tensor({2, 3, 4, 5}, 3));
  add(x, y).backward(gradient);
  CHECK(x.grad().strides() == x.strides());
  CHECK(y.grad().strides() == y.strides());
  CHECK(x.grad().storage() != y.grad().storage());
  CHECK(y.grad().storage() != gradient.storage());
  CHECK(max_difference(x.grad(), gradient) == 0);
}

TEST_CASE("tape: anomaly mode names the op that produced the first NaN or Inf") {
  const AnomalyGuard guard;
  const Tensor x = leaf({1, 0, -1}, {3});
  CHECK_THROWS_WITH_AS(log(x), "log: forward gave Inf in output 0 (float64 [3]), element 1", Error);
  const Tensor y = sum(sqrt(leaf({4, 0}, {2})));
  CHECK_THROWS_WITH_AS(y.backward(), "sqrt: backward gave Inf in the gradient of input 0 (float64 [2]), element 1",
                       Error);
}

TEST_CASE("tape: the summary counts saved bytes once") {
  const Tensor x = leaf(std::vector<double>(100, 1.0), {100});
  const Tensor a = mul(x, 2);
  const Tensor y = sum(add(square(a), square(a)));
  const Tape tape(y);
  CHECK(tape.nodes().size() == 5);
  CHECK(tape.saved_bytes() == 800);  // `a` is saved twice and lives once
  const std::string summary = tape.summary();
  CHECK(summary.find("square                       float64          2    800 bytes") != std::string::npos);
  CHECK(summary.find("total                                         5    800 bytes") != std::string::npos);
  const std::string picture = tape.graphviz();
  CHECK(picture.find("digraph tape") == 0);
  CHECK(picture.find("label = \"square\\nsaves 800 bytes\"") != std::string::npos);
  y.backward();
  CHECK(tape.summary().find("square                       float64          2     released\n") != std::string::npos);
  CHECK(tape.summary().find("total                                         5     released\n") != std::string::npos);
  CHECK(tape.graphviz().find("label = \"square\\nreleased\"") != std::string::npos);
}

TEST_CASE("tape: the picture names leaves, and is the same text each time") {
  const auto picture = [](const char* name) {
    const Tensor x = leaf({1, 2}, {2});
    const Tensor w = leaf({3, 4}, {2});
    return Tape(sum(mul(mul(x, w), x))).graphviz({{name, w}, {"not there", Tensor()}});
  };
  CHECK(picture("a \"w\\") ==
        "digraph tape {\n  rankdir = BT;\n  node [shape = box];\n"
        "  op1 [label = \"mul\\nsaves 0 bytes\"];\n"
        "  leaf1 [shape = ellipse, label = \"leaf 1\\n[2]\"];\n"
        "  leaf1 -> op1;\n"
        "  leaf2 [shape = ellipse, label = \"a \\\"w\\\\\\n[2]\"];\n"
        "  leaf2 -> op1;\n"
        "  op2 [label = \"mul\\nsaves 16 bytes\"];\n"
        "  op1 -> op2 [label = \"[2]\"];\n"
        "  leaf1 -> op2;\n"
        "  op3 [label = \"sum\\nsaves 0 bytes\"];\n"
        "  op2 -> op3 [label = \"[2]\"];\n"
        "}\n");
  CHECK(picture("w") == picture("w"));
}

TEST_CASE("tape: what is given as undefined is not saved, and comes back as undefined") {
  const Tensor x = leaf({1, 2}, {2});
  const Tensor factor = from_vector<double>({3, 4}, {2});
  const Tensor y = Op("scale").record({x}, mul(x, factor).detach(), {Tensor(), factor, Tensor(), x, Tensor()},
                                      [](const Tensor& dy, const BackwardContext& c) -> Tensors {
                                        for (const size_t i : {0, 2, 4, 5}) {
                                          CHECK(!c.saved(i).defined());
                                        }
                                        CHECK(c.saved(3).to_vector<double>() == std::vector<double>{1, 2});
                                        return {mul(dy, c.saved(1))};
                                      });
  REQUIRE(y.impl().node->saved.size() == 2);
  for (const SavedTensor& saved : y.impl().node->saved) {
    CHECK(saved.value().defined());
  }
  CHECK(grad({sum(y)}, {x})[0].to_vector<double>() == std::vector<double>{3, 4});
}

TEST_CASE("tape: a very long chain is walked and freed without recursion") {
  const Tensor x = leaf({1}, {1});
  Tensor y = x;
  for (int i = 0; i < 200000; ++i) {
    y = Op("identity").record({y}, copy_of(y), {}, [](const Tensor& dy, const BackwardContext&) -> Tensors {
      return {dy};
    });
  }
  y.backward();
  CHECK(x.grad().item<double>() == 1);
}

TEST_CASE("tape: memory is free again after backward") {
  const int64_t before = allocator(default_device()).statistics().allocated;
  {
    const Tensor x = leaf(std::vector<double>(1000, 1.0), {1000});
    Tensor y = sum(exp(square(x)));  // exp saves its own output
    y.backward();
  }
  {
    const Tensor x = leaf(std::vector<double>(1000, 1.0), {1000});
    const Tensor y = sum(exp(square(x)));  // dropped without backward
  }
  CHECK(allocator(default_device()).statistics().allocated == before);
}
