#include "core/op.h"
#include "ops/map_norm/norms.h"
#include "ops/norm/norm.h"
#include "ops/pointwise/pointwise.h"
#include "ops/reduce/reduce.h"
#include "support.h"

// Derivatives of norms whose arguments depend on each other or are the same tensor. Their backward functions take
// derivatives of composed functions, which must not be walked past the op's own inputs: the paths behind them are
// walked anyway.

using namespace norma;
using namespace norma::test;

namespace {

Tensor leaf(const Sizes& sizes, uint64_t seed) {
  Tensor x = random_tensor(sizes, seed);
  x.set_requires_grad();
  return x;
}

/// A norm of an image (N, 4, H, W) and parameters of (4).
using Norm = std::function<Tensor(const Tensor& x, const Tensor& a, const Tensor& b)>;

std::vector<std::pair<std::string, Norm>> norms() {
  const auto running = [](double value) { return full({4}, value, {.dtype = DType::float64}); };
  return {
      {"batch_norm", [](const Tensor& x, const Tensor& a, const Tensor& b) { return batch_norm(x, {}, {}, a, b); }},
      {"batch_norm in evaluation",
       [=](const Tensor& x, const Tensor& a, const Tensor& b) {
         return batch_norm(x, running(0.1), running(0.9), a, b, {.training = false});
       }},
      {"layer_norm_2d with a residual and silu",
       [](const Tensor& x, const Tensor& a, const Tensor& b) {
         return layer_norm_2d(x, a, b, {}, {.activation = Activation::silu, .residual = x});
       }},
      {"group_norm with a residual and relu",
       [](const Tensor& x, const Tensor& a, const Tensor& b) {
         return group_norm(x, 2, a, b, {}, {.activation = Activation::relu, .residual = x});
       }},
      {"rms_norm_2d", [](const Tensor& x, const Tensor& a, const Tensor&) { return rms_norm_2d(x, a); }},
      {"evo_norm_b0", [](const Tensor& x, const Tensor& a, const Tensor& b) { return evo_norm_b0(x, {}, a, b, a); }},
      {"evo_norm_s0", [](const Tensor& x, const Tensor& a, const Tensor& b) { return evo_norm_s0(x, 2, a, a, b); }},
      {"filter_response_norm",
       [](const Tensor& x, const Tensor& a, const Tensor& b) { return filter_response_norm(x, a, b, a); }},
      {"global_response_norm",
       [](const Tensor& x, const Tensor& a, const Tensor& b) { return global_response_norm(x, a, b); }},
      {"local_response_norm", [](const Tensor& x, const Tensor&, const Tensor&) { return local_response_norm(x, 3); }},
      {"dynamic_tanh",
       [](const Tensor& x, const Tensor& a, const Tensor& b) { return dynamic_tanh(x, mean(x, {}, {}), a, b); }},
      {"dynamic_erf", [](const Tensor& x, const Tensor& a,
                         const Tensor& b) { return dynamic_erf(x, mean(x, {}, {}), mean(a, {}, {}), a, b); }},
      {"seed_norm", [](const Tensor& x, const Tensor& a, const Tensor& b) { return seed_norm(x, a, b, a); }},
  };
}

/// sum(y³), so that the gradient that arrives depends on the inputs too.
Tensor cubes(const Tensor& y) {
  return sum(mul(mul(y, y), y));
}

}  // namespace

TEST_CASE("norms: arguments that are the same tensor or depend on each other, derivatives of every order") {
  const Tensor x = leaf({2, 4, 3, 2}, 1);
  const Tensor w = leaf({4}, 2);
  for (const auto& [name, norm] : norms()) {
    const std::pair<std::string, TensorFunction> relations[] = {
        {"a parameter that comes twice", [&](const Tensors& in) { return Tensors{norm(in[0], in[1], in[1])}; }},
        {"parameters made of x",
         [&](const Tensors& in) {
           const Tensor of_x = mean(in[0], {0, 2, 3});
           return Tensors{norm(in[0], add(of_x, in[1]), of_x)};
         }},
        {"x made of the parameter",
         [&](const Tensors& in) {
           const Tensor scaled = mul(in[0], add(sum(in[1]), 2));
           return Tensors{norm(scaled, in[1], in[1])};
         }},
    };
    for (const auto& [relation, f] : relations) {
      CAPTURE(name);
      CAPTURE(relation);
      const GradcheckResult second = gradgradcheck(f, {x, w}, {.atol = 1e-5});
      CHECK_MESSAGE(second.passed, second.message);

      const auto first = [&f = f](const Tensors& in) {
        const Tensors own{identity(in[0]), identity(in[1])};
        Tensors result = grad({cubes(f(own)[0])}, own, {}, {.create_graph = true});
        result[1] = result[1].defined() ? result[1] : zeros_like(own[1]);
        return result;
      };
      const GradcheckResult third = gradcheck(first, {x, w}, {.atol = 1e-4});
      CHECK_MESSAGE(third.passed, third.message);
    }
  }
}

TEST_CASE("norms: the second derivative with create_graph is the one without") {
  const Tensor x = leaf({3, 5}, 1);
  const Tensor y = rms_norm(x, {5});
  const Tensor g = grad({cubes(y)}, {x}, {}, {.create_graph = true})[0];
  const Tensor a = grad({sum(mul(g, g))}, {x}, {}, {.retain_graph = true})[0];
  const Tensor b = grad({sum(mul(g, g))}, {x}, {}, {.create_graph = true})[0];
  CHECK(max_difference(a, b) < 1e-12);
  CHECK(b.requires_grad());
}

TEST_CASE("norms: plain second derivatives are off the tape and can be used") {
  for (const auto& [name, norm] : norms()) {
    CAPTURE(name);
    const Tensor x = leaf({2, 4, 3, 2}, 1);
    const Tensor w = leaf({4}, 2);
    const Tensor g = grad({cubes(norm(x, w, w))}, {x}, {}, {.create_graph = true})[0];
    const Tensor a = grad({sum(mul(g, g))}, {x}, {}, {.retain_graph = true})[0];
    CHECK(!a.requires_grad());
    CHECK(a.is_leaf());
    CHECK(mul(a, 2).numel() == x.numel());

    add(cubes(norm(x, w, w)), sum(mul(g, g))).backward();  // a gradient penalty
    for (const Tensor& input : {x, w}) {
      if (input.grad().defined()) {
        CHECK(!input.grad().requires_grad());
        CHECK(input.grad().is_leaf());
        CHECK(mul(input.grad(), 2).numel() == input.numel());
      }
    }
    CHECK(x.grad().defined());
  }
}
