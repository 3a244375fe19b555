#include "core/autocast.h"

#include "core/copy.h"
#include "core/op.h"
#include "ops/attention/attention.h"
#include "ops/conv/conv.h"
#include "ops/loss/loss.h"
#include "ops/map_norm/norms.h"
#include "ops/matmul/matmul.h"
#include "ops/norm/norm.h"
#include "ops/pointwise/pointwise.h"
#include "ops/pool/pool.h"
#include "ops/random/dropout.h"
#include "ops/reduce/reduce.h"
#include "ops/shape/copy.h"
#include "ops/shape/view.h"
#include "tests/error_text.h"
#include "tests/support.h"

#include <map>
#include <memory>
#include <string>

namespace norma::test {

namespace {

Tensor parameter(const Sizes& sizes, uint64_t seed) {
  return random_tensor(sizes, seed, DType::float32).set_requires_grad();
}

/// One call of each of many ops on x (2, 4, 6, 5), with float32 parameters.
std::map<std::string, Tensor> results_of_all_ops(const Tensor& x) {
  const Tensor ones4 = ones({4});
  const Tensor zeros4 = zeros({4});
  const Tensor rows = reshape(x, {48, 5});
  const Tensor labels = zeros({48}, {.dtype = DType::int64});
  const Tensor running_mean = zeros({4});
  const Tensor running_var = ones({4});
  const Tensor positive = add(mul(x, x), 0.5);
  const NormSpec spec{.reduce = {1}, .affine = {1}};
  std::map<std::string, Tensor> y;
  y["conv2d"] = conv2d(x, zeros({3, 4, 3, 3}));
  y["linear"] = linear(rows, zeros({7, 5}), zeros({7}));
  y["matmul"] = matmul(rows, zeros({5, 2}));
  y["scaled_dot_product_attention"] = scaled_dot_product_attention(x, x, x);
  y["softmax"] = softmax(rows, 1);
  y["log_softmax"] = log_softmax(rows, 1);
  y["cross_entropy"] = cross_entropy(rows, labels);
  y["normalize"] = normalize(x, spec, ones4, zeros4);
  y["norm_act"] = norm_act(x, spec, ones4, zeros4, {.activation = Activation::relu, .residual = x});
  y["batch_norm"] = batch_norm(x, running_mean, running_var, ones4, zeros4);
  y["ghost_batch_norm"] = ghost_batch_norm(x, 1, running_mean, running_var, ones4, zeros4);
  y["batch_renorm"] = batch_renorm(x, running_mean, running_var, ones4, zeros4);
  y["layer_norm"] = layer_norm(x, {5}, ones({5}), zeros({5}));
  y["layer_norm_2d"] = layer_norm_2d(x, ones4, zeros4);
  y["group_norm"] = group_norm(x, 2, ones4, zeros4);
  y["instance_norm"] = instance_norm(x, ones4, zeros4);
  y["rms_norm"] = rms_norm(x, {5}, ones({5}));
  y["rms_norm_2d"] = rms_norm_2d(x, ones4);
  y["simple_norm"] = simple_norm(x, {5}, ones({5}));
  y["simple_norm_2d"] = simple_norm_2d(x, ones4);
  y["local_response_norm"] = local_response_norm(x, 3);
  y["filter_response_norm"] = filter_response_norm(x, ones4, zeros4, zeros4);
  y["global_response_norm"] = global_response_norm(x, ones4, zeros4);
  y["evo_norm_b0"] = evo_norm_b0(x, running_var, ones4, ones4, zeros4);
  y["evo_norm_s0"] = evo_norm_s0(x, 2, ones4, ones4, zeros4);
  y["dynamic_tanh"] = dynamic_tanh(x, ones({1}), ones4, zeros4, {.axis = 1});
  y["dynamic_erf"] = dynamic_erf(x, ones({1}), ones({1}), ones4, zeros4, {.axis = 1});
  y["seed_norm"] = seed_norm(x, ones4, ones4, zeros4);
  y["standardize_weight"] = standardize_weight(x);
  y["add"] = add(x, x);
  y["sub"] = sub(x, x);
  y["mul"] = mul(x, x);
  y["div"] = div(x, positive);
  y["maximum"] = maximum(x, positive);
  y["where"] = where(greater(x, 0), x, positive);
  y["neg"] = neg(x);
  y["exp"] = exp(x);
  y["log"] = log(positive);
  y["sqrt"] = sqrt(positive);
  y["rsqrt"] = rsqrt(positive);
  y["pow"] = pow(positive, 1.5);
  y["abs"] = abs(x);
  y["tanh"] = tanh(x);
  y["sigmoid"] = sigmoid(x);
  y["erf"] = erf(x);
  y["relu"] = relu(x);
  y["silu"] = silu(x);
  y["gelu"] = gelu(x);
  y["clamp"] = clamp(x, -1, 1);
  y["dropout"] = dropout(x, 0.5, true);
  y["drop_path"] = drop_path(x, 0.5, true);
  y["max_pool2d"] = max_pool2d(x, {});
  y["avg_pool2d"] = avg_pool2d(x, {});
  y["adaptive_avg_pool2d"] = adaptive_avg_pool2d(x, 1);
  y["sum"] = sum(x, {1});
  y["mean"] = mean(x, {1});
  y["var"] = var(x, {1});
  y["max"] = max(x, {1});
  y["max_along"] = max_along(x, 1).values;
  y["prod"] = prod(x, {1});
  return y;
}

DType expected_dtype(CastRule rule, DType lower, DType input) {
  return rule == CastRule::keep ? input : rule == CastRule::lower ? lower : DType::float32;
}

}  // namespace

TEST_CASE("autocast: ops follow their rules, by default and changed") {
  for (const DType lower : {DType::bfloat16, DType::float16}) {
    for (const DType input : {DType::float32, lower}) {
      const Tensor x = random_tensor({2, 4, 6, 5}, 1, DType::float32);
      const Tensor given = to(x, input);
      CastPolicy all_float32;
      all_float32.set("*", CastRule::float32);
      CastPolicy all_lower;
      all_lower.set("*", CastRule::lower);
      CastPolicy all_kept;
      all_kept.set("*", CastRule::keep);
      for (const CastPolicy& policy : {CastPolicy(), all_float32, all_lower, all_kept}) {
        const Autocast autocast(lower, policy);
        for (const auto& [op, y] : results_of_all_ops(given)) {
          INFO(op << " " << to_string(policy.rule(op)) << " of " << to_string(input));
          CHECK(y.dtype() == expected_dtype(policy.rule(op), lower, input));
        }
      }
    }
  }
}

TEST_CASE("autocast: an op that takes its operand past input() is refused") {
  const Tensor x = parameter({2, 3}, 1);
  const auto take = [](std::string_view name, const Tensor& operand) {
    const Op op(name);
    op.record({operand}, copy_of(operand), {}, [](const Tensor& dy, const BackwardContext&) { return Tensors{dy}; });
  };
  take("matmul", x);
  const Autocast autocast;
  take("relu", x);          // keeps dtypes
  take("of a plug-in", x);  // converts nothing
  take("softmax", x);       // float32 is what it asks for
  take("matmul", to(x, DType::bfloat16));
  CHECK(error_of([&] { take("matmul", x); }) ==
        "matmul: expected an operand that input() has converted to bfloat16, got " + describe(x));
}

TEST_CASE("autocast: off, nothing is converted") {
  CHECK_FALSE(autocast_enabled());
  for (const auto& [op, y] : results_of_all_ops(random_tensor({2, 4, 6, 5}, 1, DType::float32))) {
    INFO(op);
    CHECK(y.dtype() == DType::float32);
  }
}

TEST_CASE("autocast: float64 and integers are left alone") {
  const Autocast autocast;
  const Tensor wide = random_tensor({2, 3}, 1);
  CHECK(matmul(wide, random_tensor({3, 2}, 2)).dtype() == DType::float64);
  CHECK(softmax(wide, 1).dtype() == DType::float64);
  CHECK(add(arange(3), arange(3)).dtype() == DType::int64);
  CHECK(error_of([&] {
          matmul(zeros({2, 3}), random_tensor({3, 2}, 2));
        }) == "matmul: b: expected dtype bfloat16, got float64");
}

TEST_CASE("autocast: gradients of float32 parameters arrive in float32, and are those of bfloat16 products") {
  const Tensor x = random_tensor({2, 8, 6, 5}, 1, DType::float32);
  Tensor weight = parameter({4, 8, 3, 3}, 2);
  Tensor bias = parameter({4}, 3);
  Tensor scale = parameter({4}, 4);
  Tensor y;
  {
    const Autocast autocast;
    y = layer_norm_2d(conv2d(x, weight, bias), scale);
  }
  CHECK(y.dtype() == DType::bfloat16);
  const Tensor dy = to(random_tensor(y.sizes(), 5), DType::bfloat16);
  y.backward(dy);
  Tensor low_weight = to(weight.detach(), DType::bfloat16).set_requires_grad();
  Tensor low_bias = to(bias.detach(), DType::bfloat16).set_requires_grad();
  layer_norm_2d(conv2d(to(x, DType::bfloat16), low_weight, low_bias), scale.detach()).backward(dy);
  for (const Tensor& p : {weight, bias, scale}) {
    CHECK(p.grad().dtype() == DType::float32);
    CHECK(p.grad().strides() == p.strides());
  }
  CHECK(max_difference(weight.grad(), low_weight.grad()) == 0);
  CHECK(max_difference(bias.grad(), low_bias.grad()) == 0);
}

TEST_CASE("autocast: second derivatives pass through the conversions") {
  Tensor w = parameter({3, 3}, 1);
  const Tensor x = random_tensor({2, 3}, 2, DType::float32);
  Tensor loss;
  {
    const Autocast autocast;
    const Tensor y = matmul(x, w);
    loss = sum(to(mul(y, mul(y, y)), DType::float32));
  }
  const Tensor g = grad({loss}, {w}, {}, {.create_graph = true})[0];
  CHECK(g.dtype() == DType::float32);
  const Tensor second = grad({sum(mul(g, g))}, {w})[0];
  CHECK(second.dtype() == DType::float32);
  CHECK(std::isfinite(largest_number(second)));
  CHECK(largest_number(second) > 0);
}

namespace {

/// How many conversions of dtype the tape of y holds.
size_t conversions(const Tensor& y) {
  size_t count = 0;
  const Tape tape(y);
  for (const auto& node : tape.nodes()) {
    count += node->name == "to" ? 1 : 0;
  }
  return count;
}

}  // namespace

TEST_CASE("autocast: a parameter is converted once, and again when it changed") {
  Tensor w = parameter({4, 4}, 1);
  const Tensor x = to(random_tensor({2, 4}, 2), DType::bfloat16);
  const Autocast autocast;
  Tensor y = matmul(matmul(x, w), w);
  CHECK(conversions(y) == 1);
  const Tensor before = y.detach();
  CHECK(max_difference(matmul(matmul(x, w), w), before) == 0);
  {
    const NoGradGuard no_grad;
    mul_(w, 2);
  }
  CHECK(max_difference(matmul(matmul(x, w), w), mul(before, 4)) == 0);
}

TEST_CASE("autocast: the kept conversion serves several graphs, and evaluation between them") {
  Tensor w = parameter({4, 4}, 1);
  const Tensor x = random_tensor({2, 4}, 2, DType::float32);
  const Autocast autocast;
  for (int pass = 0; pass < 3; ++pass) {  // gradient accumulation: w does not change
    {
      const NoGradGuard no_grad;
      CHECK_FALSE(matmul(x, w).requires_grad());
    }
    const Tensor y = matmul(x, w);
    REQUIRE(y.requires_grad());
    sum(y).backward();
  }
  Tensor once = w.detach();
  once.set_requires_grad();
  sum(matmul(x, once)).backward();
  CHECK(max_difference(w.grad(), mul(once.grad(), 3)) == 0);
}

TEST_CASE("autocast: a first use without gradients does not cost the second its gradient") {
  Tensor w = parameter({4, 4}, 1);
  const Tensor x = random_tensor({2, 4}, 2, DType::float32);
  const Autocast autocast;
  {
    const NoGradGuard no_grad;
    matmul(x, w);
  }
  sum(matmul(x, w)).backward();
  CHECK(w.grad().defined());
}

TEST_CASE("autocast: guards nest, and end") {
  const Tensor x = random_tensor({2, 4}, 2, DType::float32);
  Tensor w = parameter({4, 4}, 1);
  {
    const Autocast outer(DType::bfloat16);
    CHECK(matmul(x, w).dtype() == DType::bfloat16);
    {
      CastPolicy policy;
      policy.set("matmul", CastRule::float32);
      policy.set("relu", CastRule::lower);
      const Autocast inner(DType::float16, policy);
      CHECK(matmul(x, w).dtype() == DType::float32);
      CHECK(relu(x).dtype() == DType::float16);
      const AutocastOff off;
      CHECK_FALSE(autocast_enabled());
      CHECK(relu(x).dtype() == DType::float32);
      const Autocast again(DType::float16);
      CHECK(matmul(x, w).dtype() == DType::float16);
    }
    CHECK(relu(x).dtype() == DType::float32);
    CHECK(matmul(x, w).dtype() == DType::bfloat16);
  }
  CHECK(matmul(x, w).dtype() == DType::float32);
}

TEST_CASE("autocast: an op that throws leaves it on") {
  const Autocast autocast;
  CHECK_THROWS_WITH_AS(matmul(zeros({2, 3}), zeros({2, 3})),
                       "matmul: b: expected 3 rows, as a (sizes [2, 3]) has columns, got 2 (sizes [2, 3])", Error);
  CHECK(autocast_enabled());
}

TEST_CASE("autocast: backward inside the guard is not converted") {
  Tensor x = parameter({2, 4}, 1);
  const Tensor w = random_tensor({4, 3}, 2, DType::float32);
  CastPolicy policy;
  policy.set("matmul", CastRule::float32);
  policy.set("mul", CastRule::lower);
  const Autocast autocast(DType::bfloat16, policy);
  const Tensor y = matmul(x, w);
  mul(y, y).backward(to(ones({2, 3}), DType::bfloat16));
  CHECK(x.grad().dtype() == DType::float32);
}

TEST_CASE("autocast: hooks of a backward pass run without it, those of leaves too") {
  const Tensor x = parameter({2, 4}, 1);
  const Autocast autocast;
  const Tensor y = relu(x);
  int calls = 0;
  for (const Tensor& tensor : {x, y}) {
    tensor.register_hook([&](const Tensor& dy) {
      calls += autocast_enabled() ? 100 : 1;
      return dy;
    });
  }
  sum(y).backward();
  CHECK(calls == 2);
}

TEST_CASE("autocast: a residual is converted with the input of its norm") {
  const Tensor x = to(random_tensor({2, 4, 3, 3}, 1), DType::bfloat16);
  const Tensor residual = random_tensor({2, 4, 3, 3}, 2, DType::float32);
  const Autocast autocast;
  const Tensor y = layer_norm_2d(x, {}, {}, {}, {.activation = Activation::relu, .residual = residual});
  CHECK(y.dtype() == DType::bfloat16);
}

TEST_CASE("tape: the summary names the dtypes") {
  Tensor w = parameter({4, 4}, 1);
  Tensor loss;
  {
    const Autocast autocast;
    const Tensor logits = relu(matmul(random_tensor({2, 4}, 2, DType::float32), w));
    loss = cross_entropy(logits, zeros({2}, {.dtype = DType::int64}));
  }
  const std::string summary = Tape(loss).summary();
  CHECK(summary.find("op                           dtype     recorded        saved\n") == 0);
  for (const char* line :
       {"cross_entropy                float32          1", "matmul                       bfloat16         1",
        "relu                         bfloat16         1", "to                           bfloat16         1",
        "to                           float32          1"}) {
    CHECK_MESSAGE(summary.find(line) != std::string::npos, summary);
  }
}

TEST_CASE("autocast: error texts") {
  CHECK(error_of([] { const Autocast autocast(DType::float32); }) ==
        "autocast: dtype: expected bfloat16 or float16, got float32");
  CHECK_FALSE(autocast_enabled());
  CastPolicy policy;
  CHECK(error_of([&] { policy.set("conv3d", CastRule::keep); }) ==
        "cast policy: unknown op 'conv3d'; did you mean 'conv2d'?");
  CHECK(error_of([&] { (void)policy.rule("conv3d"); }) == "cast policy: unknown op 'conv3d'; did you mean 'conv2d'?");
  CHECK(error_of([] { (void)cast_rule_from_string("fp32"); }) ==
        "cast policy: expected lower, float32 or keep, got 'fp32'");
}

TEST_CASE("autocast: an op of a program says its name and its rule") {
  const auto low = [](const Tensor& x) {
    const Op op(named<"of_this_test", CastRule::lower>);
    return op.input("x", x).dtype();
  };
  const Tensor x = random_tensor({2, 2}, 1, DType::float32);
  CHECK(low(x) == DType::float32);
  CastPolicy policy;
  CHECK(policy.rule("of_this_test") == CastRule::lower);
  const std::vector<std::string> ops = CastPolicy::ops();
  CHECK(std::is_sorted(ops.begin(), ops.end()));
  CHECK(std::count(ops.begin(), ops.end(), "of_this_test") == 1);
  {
    const Autocast autocast;
    CHECK(low(x) == DType::bfloat16);
  }
  policy.set("of_th*", CastRule::keep);
  CHECK_FALSE(policy == CastPolicy());
  {
    const Autocast autocast(DType::bfloat16, policy);
    CHECK(low(x) == DType::float32);
  }
  policy.set("of_th*", CastRule::lower);
  CHECK(policy == CastPolicy());
}

TEST_CASE("autocast: an op whose rule has no name leaves it on") {
  const Autocast autocast(DType::bfloat16);
  CHECK(error_of([] { const Op op("mine", "matmull"); }).starts_with("cast policy: "));
  const Tensor x = random_tensor({2, 2}, 1, DType::float32);
  CHECK(matmul(x, x).dtype() == DType::bfloat16);
}

TEST_CASE("autocast: a residual follows the images of a batch norm, also of one that processes share") {
  class OneProcess final : public PartsOfBatch {
   public:
    [[nodiscard]] Tensor all_gather(const Tensor& x) const override { return unsqueeze(x, 0); }
  };
  const Tensor x = random_tensor({2, 4, 6, 5}, 1, DType::float32);
  const Tensor residual = to(random_tensor({2, 4, 6, 5}, 2), DType::bfloat16).set_requires_grad();
  CastPolicy policy;
  policy.set("batch_norm", CastRule::float32);
  const auto norm_of = [&](std::shared_ptr<const PartsOfBatch> parts) {
    const Autocast autocast(DType::bfloat16, policy);
    return batch_norm(to(x, DType::bfloat16), {}, {}, {}, {}, {.parts = std::move(parts)}, {.residual = residual});
  };
  const Tensor alone = norm_of(nullptr);
  const Tensor shared = norm_of(std::make_shared<OneProcess>());
  CHECK(alone.dtype() == DType::float32);
  CHECK(shared.dtype() == DType::float32);
  CHECK(max_difference(shared, alone) <= 1e-5);
  CHECK(grad({shared}, {residual}, {ones_like(shared)})[0].dtype() == DType::bfloat16);
}

}  // namespace norma::test
