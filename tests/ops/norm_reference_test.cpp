#include "norm_reference.h"
#include "core/op_profile.h"
#include "core/tape.h"
#include "ops/shape/copy.h"

using namespace norma;
using namespace norma::test;

namespace {

/// y and the gradients of x, weight, bias and residual, and the statistics.
Tensors results_of(const NormSpec& spec, const Tensors& inputs, Activation activation, const Tensor& dy) {
  Tensors leaves;
  for (const Tensor& input : inputs) {
    leaves.push_back(copy_of(input).set_requires_grad());
  }
  NormStatistics statistics;
  const Tensor y =
      norm_act(leaves[0], spec, leaves[1], leaves[2], {.activation = activation, .residual = leaves[3]}, &statistics);
  Tensors results = grad({y}, leaves, {dy});
  results.insert(results.begin(), {y, statistics.mean, statistics.var});
  return results;
}

}  // namespace

TEST_CASE("norm reference: takes the place of the kernels, forward and backward") {
  const Sizes sizes{3, 6, 5, 7};
  for (const NormSpec& spec :
       std::vector<NormSpec>{{.reduce = {0, 2, 3}, .affine = {1}},
                             {.reduce = {1}, .affine = {1}},
                             {.reduce = {2, 3}, .affine = {2, 3}},
                             {.reduce = {1, 2, 3}, .affine = {1}, .groups = 3},
                             {.reduce = {1, 2, 3}, .affine = {1, 3}, .centring = Centring::none},
                             {.reduce = {2, 3}, .affine = {1}, .centring = Centring::deviation, .correction = 1}}) {
    for (const Layout layout : kLayouts) {
      for (const Activation activation : {Activation::identity, Activation::relu, Activation::gelu, Activation::silu}) {
        CAPTURE(to_string(spec.reduce));
        CAPTURE(to_string(layout));
        CAPTURE(static_cast<int>(activation));
        const Tensor x = in_layout(random_tensor(sizes, 1), layout);
        const Sizes affine = affine_sizes(x, spec);
        const Tensors inputs{x, random_tensor(affine, 2), random_tensor(affine, 3), random_tensor(sizes, 4)};
        const Tensor dy = random_tensor(sizes, 5);
        const Tensors fast = results_of(spec, inputs, activation, dy);
        const ByReference guard;
        const Tensors plain = results_of(spec, inputs, activation, dy);
        for (size_t i = 0; i < fast.size(); ++i) {
          CAPTURE(i);
          CHECK(max_difference(fast[i], plain[i]) <= 1e-11);
          CHECK(fast[i].strides() == plain[i].strides());
        }
      }
    }
  }
}

TEST_CASE("norm reference: fixed statistics, 16 bits and second derivatives") {
  const Tensor x = random_tensor({2, 4, 3, 5}, 1);
  const Tensor mean = random_tensor({4}, 2);
  const Tensor var = add(abs(random_tensor({4}, 3)), 0.5);
  const Tensor dy = random_tensor(x.sizes(), 4);
  const auto gradient = [&](DType dtype) {
    Tensor leaf = to(x, dtype).set_requires_grad();
    const Tensor y = batch_norm(leaf, to(mean, DType::float32), to(var, DType::float32), {}, {}, {.training = false});
    return grad({y}, {leaf}, {to(dy, dtype)})[0];
  };
  const auto second = [&] {
    Tensor leaf = copy_of(x).set_requires_grad();
    const Tensor y = group_norm(leaf, 2);
    const Tensor first = grad({y}, {leaf}, {dy}, {.create_graph = true})[0];
    return grad({first}, {leaf}, {x})[0];
  };
  const Tensor fixed = gradient(DType::float32);
  const Tensor fixed_half = gradient(DType::bfloat16);
  const Tensor twice = second();
  const ByReference guard;
  CHECK(max_difference(gradient(DType::float32), fixed) <= 1e-6);
  CHECK(max_difference(gradient(DType::bfloat16), fixed_half) <= 0.02);
  CHECK(max_difference(second(), twice) <= 1e-10);
}

TEST_CASE("norm reference: the profile names it") {
  const ByReference guard;
  const OpProfile profile;
  layer_norm(random_tensor({3, 5}, 1), {5});
  bool found = false;
  for (const OpRecord& record : profile.records()) {
    found = found || record.work.implementation == "reference";
  }
  CHECK(found);
}
