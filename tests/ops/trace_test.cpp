#include "core/trace.h"

#include "error_text.h"
#include "ops/conv/conv.h"
#include "ops/map_norm/norms.h"
#include "ops/matmul/matmul.h"
#include "ops/norm/norm.h"
#include "ops/pointwise/pointwise.h"
#include "ops/reduce/reduce.h"
#include "ops/shape/pad.h"
#include "ops/shape/view.h"
#include "support.h"

#include <functional>
#include <optional>
#include <string>
#include <vector>

using namespace norma;

TEST_CASE("trace: ops in their order, with inputs, results and attributes, recorded or not") {
  const Tensor x = test::random_tensor({2, 3}, 1, DType::float32).set_requires_grad();
  for (const bool gradients : {true, false}) {
    const GradModeGuard mode(gradients);
    const Trace trace;
    const Tensor y = sum(mul(add(x, 2), x), {1}, {.keepdim = true});
    REQUIRE(trace.ops().size() == 3);
    CHECK(trace.ops()[0].op == "add");
    CHECK(std::get<double>(trace.ops()[0].attributes.at("number")) == 2);
    CHECK(trace.ops()[1].op == "mul");
    CHECK(trace.ops()[1].attributes.empty());
    CHECK(trace.ops()[1].inputs.at(0).is_same(trace.ops()[0].outputs.at(0)));
    CHECK(trace.ops()[1].inputs.at(1).is_same(x));
    CHECK(trace.ops()[2].op == "sum");
    CHECK(std::get<std::vector<int64_t>>(trace.ops()[2].attributes.at("axes")) == std::vector<int64_t>{1});
    CHECK(std::get<int64_t>(trace.ops()[2].attributes.at("keepdim")) == 1);
    CHECK(trace.ops()[2].outputs.at(0).is_same(y));
    CHECK(y.requires_grad() == gradients);
  }
}

TEST_CASE("trace: products are one op each, without views of their own") {
  const auto names_of = [](const std::function<void()>& f) {
    const Trace trace;
    f();
    std::string names;
    for (const TracedOp& op : trace.ops()) {
      names += op.op + " ";
    }
    return names;
  };
  const Tensor x = test::random_tensor({40, 30}, 1, DType::float32);
  const Tensor weight = test::random_tensor({50, 30}, 2, DType::float32).set_requires_grad();
  const Tensor left = test::random_tensor({2, 4, 5}, 3, DType::float32).set_requires_grad();
  const Tensor a = expand(left, {3, 2, 4, 5});
  const Tensor b = expand(test::random_tensor({2, 5, 6}, 4, DType::float32), {3, 2, 5, 6});
  for (const bool gradients : {true, false}) {
    const GradModeGuard mode(gradients);
    CHECK(names_of([&] { linear(x, weight); }) == "linear ");
    CHECK(names_of([&] { matmul(a, b); }) == "matmul ");
    CHECK(names_of([&] { linear_act(x, weight, {}, {.activation = Activation::gelu}); }) == "linear gelu ");
  }
}

TEST_CASE("trace: what has a kernel of its own is noted in parts, and norms are noted, recorded or not") {
  const Tensor x = test::random_tensor({2, 4, 6, 5}, 1, DType::float32).set_requires_grad();
  const Tensor weight = test::random_tensor({3, 4, 3, 3}, 2, DType::float32).set_requires_grad();
  for (const bool gradients : {true, false}) {
    const GradModeGuard mode(gradients);
    const Trace trace;
    conv2d_act(x, weight, {}, {}, {.activation = Activation::relu});
    layer_norm_2d(x);
    local_response_norm(x, 3);
    REQUIRE(trace.ops().size() > 4);
    CHECK(trace.ops()[0].op == "conv2d");
    CHECK(std::get<std::vector<int64_t>>(trace.ops()[0].attributes.at("stride")) == std::vector<int64_t>{1, 1});
    CHECK(trace.ops()[1].op == "relu");
    CHECK(trace.ops()[2].op == "layer_norm_2d");
    CHECK(std::get<std::string>(trace.ops()[2].attributes.at("activation")) == "identity");
    for (const TracedOp& op : trace.ops()) {
      CHECK(op.op != "local_response_norm");
    }
  }
}

TEST_CASE("trace: comparisons, changes in place and views") {
  const Tensor x = test::random_tensor({2, 3}, 1, DType::float32);
  const Trace trace;
  const Tensor condition = greater(x, 0);
  const Tensor same = permute(transpose(x, -1, 0), {-1, 0});
  Tensor y = where(condition, x, same);
  add_(y, 1);
  std::string names;
  for (const TracedOp& op : trace.ops()) {
    names += op.op + " ";
  }
  CHECK(names == "greater permute permute where add_ ");
  CHECK(std::get<std::vector<int64_t>>(trace.ops()[2].attributes.at("order")) == std::vector<int64_t>{1, 0});
  CHECK(std::get<Tensor>(trace.ops()[3].attributes.at("condition")).is_same(trace.ops()[0].outputs[0]));
}

TEST_CASE("trace: an op that is made of others is one op, a pause, one trace at a time") {
  const Tensor x = test::random_tensor({2, 3}, 1, DType::float32);
  std::optional<Trace> trace(std::in_place);
  pad(x, {0, 1}, {1, 0}, 0.5);
  REQUIRE(trace->ops().size() == 1);
  CHECK(trace->ops()[0].op == "pad");
  CHECK(std::get<std::vector<int64_t>>(trace->ops()[0].attributes.at("before")) == std::vector<int64_t>{0, 1});
  CHECK(is_tracing());
  {
    const TracePause pause;
    CHECK_FALSE(is_tracing());
    neg(x);
  }
  CHECK(trace->ops().size() == 1);
  CHECK(test::error_of([] { const Trace second; }) == "trace: expected no other trace on this thread");
  CHECK(is_tracing());
  trace.reset();
  CHECK_FALSE(is_tracing());
}
