#include "error_text.h"
#include "ops/conv/conv.h"
#include "ops/map_norm/norms.h"
#include "ops/matmul/matmul.h"
#include "ops/norm/norm.h"
#include "ops/pointwise/pointwise.h"
#include "ops/reduce/reduce.h"
#include "ops/shape/copy.h"
#include "ops/shape/view.h"
#include "support.h"

#include <string>

using namespace norma;
using namespace norma::test;

namespace {

/// Something cheap behind a convolution, of which the next convolution saves the output.
struct Between {
  std::string name;
  std::function<Tensor(const Tensor& x, const Tensor& weight, const Tensor& bias)> f;
};

/// Numbers in the dtype that statistics of x have.
Tensor filled(const Tensor& x, int64_t size, double value) {
  return full({size}, value, {.dtype = compute_dtype(x.dtype())});
}

const Between kBetween[] = {
    {"batch norm", [](const Tensor& x, const Tensor& w, const Tensor& b) { return batch_norm(x, {}, {}, w, b); }},
    {"batch norm, relu",
     [](const Tensor& x, const Tensor& w, const Tensor& b) {
       return batch_norm(x, {}, {}, w, b, {}, {.activation = Activation::relu});
     }},
    {"batch norm, relu behind a residual, whose output is kept",
     [](const Tensor& x, const Tensor& w, const Tensor& b) {
       return batch_norm(x, {}, {}, w, b, {}, {.activation = Activation::relu, .residual = x});
     }},
    {"batch norm, gelu behind a residual",
     [](const Tensor& x, const Tensor& w, const Tensor& b) {
       return batch_norm(x, {}, {}, w, b, {}, {.activation = Activation::gelu, .residual = x});
     }},
    {"batch norm in evaluation",
     [](const Tensor& x, const Tensor& w, const Tensor& b) {
       return batch_norm(x, to(b, compute_dtype(x.dtype())).detach(), abs(to(w, compute_dtype(x.dtype()))).detach(), w,
                         b, {.training = false});
     }},
    {"batch renorm", [](const Tensor& x, const Tensor& w,
                        const Tensor& b) { return batch_renorm(x, filled(x, 6, 0), filled(x, 6, 1), w, b); }},
    {"group norm, silu", [](const Tensor& x, const Tensor& w,
                            const Tensor& b) { return group_norm(x, 3, w, b, {}, {.activation = Activation::silu}); }},
    {"layer norm over pixels",
     [](const Tensor& x, const Tensor& w, const Tensor& b) { return layer_norm_2d(x, w, b); }},
    {"instance norm without weights", [](const Tensor& x, const Tensor&, const Tensor&) { return instance_norm(x); }},
    {"rms norm, gelu of its own",
     [](const Tensor& x, const Tensor& w, const Tensor&) { return gelu(rms_norm_2d(x, w)); }},
    {"simple norm without a bias",
     [](const Tensor& x, const Tensor& w, const Tensor&) { return simple_norm_2d(x, w); }},
    {"dynamic tanh",
     [](const Tensor& x, const Tensor& w, const Tensor& b) { return dynamic_tanh(x, filled(x, 1, 0.7), w, b); }},
    {"dynamic erf, relu",
     [](const Tensor& x, const Tensor& w, const Tensor& b) {
       return dynamic_erf(x, filled(x, 1, 0.7), filled(x, 1, 0.1), w, b, {.activation = Activation::relu});
     }},
    {"filter response norm",
     [](const Tensor& x, const Tensor& w, const Tensor& b) { return filter_response_norm(x, w, b, b); }},
    {"global response norm",
     [](const Tensor& x, const Tensor& w, const Tensor& b) { return global_response_norm(x, w, b); }},
    {"evo norm S0", [](const Tensor& x, const Tensor& w, const Tensor& b) { return evo_norm_s0(x, 2, w, w, b); }},
    {"gelu", [](const Tensor& x, const Tensor&, const Tensor&) { return gelu(x); }},
    {"gelu by tanh, through permuted axes",
     [](const Tensor& x, const Tensor&, const Tensor&) {
       return permute(permute(gelu(x, GeluApproximation::tanh), {0, 2, 3, 1}), {0, 3, 1, 2});
     }},
};

struct Outcome {
  Tensors gradients;
  size_t saved_bytes = 0;
};

/// The outcome of a convolution, `between` and another convolution.
Outcome outcome_of(const Between& between, DType dtype, Layout layout, bool remakes) {
  const auto parameter = [&](const Sizes& sizes, uint64_t seed) {
    return to(random_tensor(sizes, seed), dtype).detach().set_requires_grad();
  };
  const Tensor x = in_layout(to(random_tensor({2, 5, 5, 4}, 1), dtype), layout).set_requires_grad();
  const Tensor first = parameter({6, 5, 1, 1}, 2);
  const Tensor second = parameter({3, 6, 3, 3}, 3);
  const Tensor weight = parameter({6}, 4);
  const Tensor bias = parameter({6}, 5);
  Tensor loss;
  {
    const RemakeGuard guard(remakes);
    const Tensor y = conv2d(between.f(conv2d(x, first), weight, bias), second);
    loss = sum(mul(y, y));
  }
  Outcome outcome{.gradients = {}, .saved_bytes = Tape(loss).saved_bytes()};
  outcome.gradients = grad({loss}, {x, first, second, weight, bias});
  return outcome;
}

}  // namespace

TEST_CASE("remake: gradients have the bits of those of kept outputs, in less memory") {
  for (const Between& between : kBetween) {
    for (const DType dtype : {DType::float32, DType::float64, DType::bfloat16}) {
      for (const Layout layout : kLayouts) {
        CAPTURE(between.name);
        CAPTURE(to_string(dtype));
        CAPTURE(to_string(layout));
        const Outcome kept = outcome_of(between, dtype, layout, false);
        const Outcome remade = outcome_of(between, dtype, layout, true);
        REQUIRE(remade.gradients.size() == kept.gradients.size());
        for (size_t i = 0; i < kept.gradients.size(); ++i) {
          REQUIRE(remade.gradients[i].defined() == kept.gradients[i].defined());
          if (kept.gradients[i].defined()) {
            CHECK(remade.gradients[i].strides() == kept.gradients[i].strides());
            const auto expected = kept.gradients[i].to_vector<double>();
            CHECK(std::isfinite(expected[0]));
            CHECK(remade.gradients[i].to_vector<double>() == expected);
          }
        }
        const bool keeps = between.name.find("is kept") != std::string::npos;
        CHECK((remade.saved_bytes < kept.saved_bytes) == !keeps);
      }
    }
  }
}

TEST_CASE("remake: second derivatives go through the op whose output is remade") {
  const auto second = [](bool remakes) {
    const Tensor x = random_tensor({2, 4, 3, 3}, 1).set_requires_grad();
    const Tensor w = random_tensor({2, 4, 1, 1}, 2).set_requires_grad();
    const RemakeGuard guard(remakes);
    const Tensor y = conv2d(gelu(group_norm(x, 2)), w);
    const Tensors first = grad({sum(mul(y, y))}, {x, w}, {}, {.create_graph = true});
    Tensors all = grad({sum(mul(first[0], first[0])) + sum(mul(first[1], first[1]))}, {x, w});
    return std::pair{all[0].to_vector<double>(), all[1].to_vector<double>()};
  };
  const auto kept = second(false);
  CHECK(std::isfinite(kept.first[0]));
  CHECK(second(true) == kept);
}

TEST_CASE("remake: the memory of an output is free when only an op needs it that saves it") {
  const auto held = [](bool remakes) {
    const Tensor x = random_tensor({4, 8, 16, 16}, 1, DType::float32).set_requires_grad();
    const Tensor w = random_tensor({8, 8, 1, 1}, 2, DType::float32).set_requires_grad();
    const int64_t before = allocator(default_device()).statistics().allocated;
    const RemakeGuard guard(remakes);
    const Tensor loss = sum(conv2d(group_norm(x, 2), w));
    return allocator(default_device()).statistics().allocated - before;
  };
  held(false);  // a first time allocates more
  CHECK(held(false) - held(true) == 4 * 8 * 16 * 16 * 4);
}

TEST_CASE("remake: an output that was changed in place since is not remade but kept") {
  const auto gradient = [](bool remakes) {
    const Tensor x = random_tensor({2, 4, 3, 3}, 1).set_requires_grad();
    const Tensor w = random_tensor({2, 4, 1, 1}, 2).set_requires_grad();
    const RemakeGuard guard(remakes);
    Tensor y = group_norm(x, 2);
    {
      const NoGradGuard no_grad;
      mul_(y, 2);
    }
    return grad({sum(conv2d(y, w))}, {w})[0].to_vector<double>();
  };
  CHECK(gradient(true) == gradient(false));
}

TEST_CASE("remake: what an output is remade of must not change") {
  Tensor x = random_tensor({2, 4, 3, 3}, 1).set_requires_grad();
  const Tensor w = random_tensor({2, 4, 1, 1}, 2).set_requires_grad();
  const RemakeGuard guard;
  Tensor z = mul(x, 2);
  const Tensor loss = sum(conv2d(group_norm(z, 2), w));
  {
    const NoGradGuard no_grad;
    mul_(z, 2);
  }
  CHECK(error_of([&] { grad({loss}, {w}); }).find("group_norm: saved tensor 0") == 0);
}

TEST_CASE("remake: a second backward pass is as without it: refused, unless the graph is kept") {
  const Tensor x = random_tensor({2, 4, 3, 3}, 1).set_requires_grad();
  const Tensor w = random_tensor({2, 4, 1, 1}, 2).set_requires_grad();
  const RemakeGuard guard;
  const Tensor y = group_norm(x, 2);
  const Tensor a = sum(conv2d(y, w));
  const Tensor b = sum(conv2d(y, w));
  backward(a, {}, {.retain_graph = true});
  const auto first = w.grad().to_vector<double>();
  backward(a);
  CHECK(w.grad().to_vector<double>()[0] == 2 * first[0]);
  CHECK(error_of([&] { backward(b); }) ==
        "backward: this graph was walked before and what group_norm had saved is gone; pass retain_graph = true the "
        "first time");
}

TEST_CASE("remake: a long chain remakes a few ops at a time") {
  const Tensor x = from_vector<double>({0.5}, {1}).set_requires_grad();
  const RemakeGuard guard;
  Tensor y = x;
  for (int i = 0; i < 20000; ++i) {
    y = silu(y);
  }
  CHECK(Tape(y).saved_bytes() == 4999 * 8);
  y.backward();
  CHECK(x.grad().defined());
}
