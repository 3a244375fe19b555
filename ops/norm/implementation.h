#pragma once

#include "ops/norm/norm.h"

namespace norma::norm_kernels {

/// Constants in place of statistics of x: mean and biased variance of each set, of rank 1.
struct GivenStatistics {
  Tensor mean;
  Tensor var;
};

/// normalize() for a spec whose axes are sorted and not negative, and arguments that fit; see norm.h. With `given`,
/// nothing is computed from x, and the gradient takes mean and variance for constants.
Tensor run_norm(std::string_view op, const Tensor& x, const NormSpec& spec, const Tensor& weight, const Tensor& bias,
                NormStatistics* statistics, const GivenStatistics* given);

/// Which of run_norm's inputs want a gradient.
struct NeededGradients {
  bool x;
  bool weight;
  bool bias;
};
/// The backward pass of run_norm written in differentiable functions, for higher derivatives. Undefined results where
/// `needs` is false. `statistics`: those given, as rows mean, rest, 1 / sqrt(var + eps), or undefined.
Tensors composed_backward(const NormSpec& spec, const Tensor& dy, const Tensor& x, const Tensor& weight,
                          const Tensor& statistics, NeededGradients needs);

}  // namespace norma::norm_kernels
