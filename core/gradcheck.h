#pragma once

#include "core/tape.h"
#include "core/tensor.h"

#include <string>

namespace norma {

struct GradcheckOptions {
  double eps = 1e-6;   ///< step of the central difference
  double atol = 1e-6;  ///< a gradient g passes when |g - difference| <= atol + rtol * |difference|
  double rtol = 1e-4;
  uint64_t seed = 1;  ///< of the random weights that make a scalar of the outputs
};

struct GradcheckResult {
  bool passed = false;
  double worst = 0;     ///< largest |g - difference|
  std::string message;  ///< which input and element failed, and by how much; empty when passed

  explicit operator bool() const { return passed; }
};

/// Compares backward() of `f` with central differences, for every element of every floating input that requires a
/// gradient. The outputs are reduced to one number with fixed random weights. Inputs that require a gradient must be
/// float64. They may have any strides, but no two elements in the same place. NaN and Inf fail. f must give the same
/// values every time it is called. Throws Error for another dtype, and if no input requires a gradient.
///
/// The gradients must also be right with create_graph, and, with and without it, for inputs that depend on each other
/// (each but the first is moved by a twentieth of the mean of the one before). An f that calls grad() for its own
/// inputs must take identity() of them first, or it differentiates through those dependences, too.
GradcheckResult gradcheck(const TensorFunction& f, const Tensors& inputs, const GradcheckOptions& options = {});

/// Checks second derivatives: gradcheck of the function (inputs, grad_outputs) → gradients.
GradcheckResult gradgradcheck(const TensorFunction& f, const Tensors& inputs, const GradcheckOptions& options = {});

}  // namespace norma
