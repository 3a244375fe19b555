#pragma once

#include "core/tensor.h"
#include "lab/telemetry/telemetry.h"
#include "nn/module.h"

#include <cstdint>
#include <functional>

namespace norma::lab {

/// When a power iteration ends.
struct PowerIteration {
  double tolerance = 1e-3;      ///< it ends when the estimate changes by at most this share
  int64_t most_products = 100;  ///< and after this many products with the Hessian, whatever the change
};

/// The largest eigenvalue of the Hessian of loss() by `parameters`, which loss() has on its tape: float32 or float64.
/// It takes one forward and one backward pass with create_graph, then a backward pass through both for each product
/// with the Hessian. The start vector is random, and the same at every call.
///
/// Power iteration finds the eigenvalue λ of the largest absolute value. If that is negative, a second iteration finds
/// the largest, with H shifted by -λ; it may take as many products again.
///
/// Changes nothing but what loss() does. Throws Error when interrupted() (train/processes.h), and, in the name of the
/// op, where an op on the tape does not record its gradient, so that a second one would lack its part.
Sharpness largest_eigenvalue(const Tensors& parameters, const std::function<Tensor()>& loss,
                             const PowerIteration& options = {});

/// largest_eigenvalue() of the loss by the network's parameters that require a gradient. Buffers and the default
/// generator are as before afterwards, and the memory that it took is free again. Errors are in Sharpness::problem.
Sharpness sharpness_of(const nn::Module& model, const std::function<Tensor()>& loss,
                       const PowerIteration& options = {});

}  // namespace norma::lab
