#pragma once

#include "core/op.h"
#include "ops/pointwise/pointwise.h"
#include "ops/reduce/reduce.h"
#include "support.h"

namespace norma::test {

/// Compares the third derivatives of y = f(inputs) with finite differences: the gradients of sum(|gradients|²) of
/// sum(y² · direction).
inline void check_third_derivative(const std::string& name, const std::function<Tensor(const Tensors& in)>& f,
                                   Tensors inputs) {
  const Tensor direction = random_tensor(inputs[0].sizes(), 32);
  for (Tensor& input : inputs) {
    input.set_requires_grad();
  }
  const auto second = [&](const Tensors& arguments) {
    Tensors in;
    for (const Tensor& x : arguments) {
      in.push_back(identity(x));
    }
    const Tensor y = f(in);
    const Tensors first = grad({sum(mul(mul(y, y), direction))}, in, {}, {.create_graph = true});
    Tensor norm;
    for (const Tensor& gradient : first) {
      const Tensor square = sum(mul(gradient, gradient));
      norm = norm.defined() ? add(norm, square) : square;
    }
    return grad({norm}, in, {}, {.create_graph = true});
  };
  const GradcheckResult result = gradcheck(second, inputs, {.atol = 1e-5});
  CHECK_MESSAGE(result.passed, name, ": ", result.message);
}

}  // namespace norma::test
