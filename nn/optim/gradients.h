#pragma once

#include "core/tensor.h"

namespace norma::nn {

/// The gradients of the parameters that have one.
inline Tensors gradients_of(const Tensors& parameters) {
  Tensors gradients;
  for (const Tensor& x : parameters) {
    if (x.grad().defined()) {
      gradients.push_back(x.grad());
    }
  }
  return gradients;
}

}  // namespace norma::nn
