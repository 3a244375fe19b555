#pragma once

#include "core/tensor.h"
#include "ops/norm/spec.h"

#include <cstdint>

namespace norma {

struct LocalResponseNormOptions {
  double alpha = 1e-4;
  double beta = 0.75;
  double k = 1;
  Activation activation = Activation::identity;  ///< applied to y; relu costs no pass and no memory of its own
};
/// Local response norm (Krizhevsky, Sutskever and Hinton, 2012), as in PyTorch: x (N, C, …) of rank 3 or more,
/// y = x / (k + alpha / size * sum of x² over a window of `size` channels) ^ beta.
/// Channel c sees c - size / 2 to c + (size - 1) / 2, one more below than above for an even size; channels that do not
/// exist count as 0. Caffe and cuDNN also divide alpha by the size; the paper and TensorFlow do not, and TensorFlow
/// counts a radius and has other defaults (radius 5, alpha 1, beta 0.5). Throws Error for a size below 1. The rules of
/// every norm (ops/norm/norm.h) hold here.
Tensor local_response_norm(const Tensor& x, int64_t size, const LocalResponseNormOptions& options = {});

}  // namespace norma
