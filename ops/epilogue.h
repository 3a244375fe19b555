#pragma once

#include "ops/pointwise/activation.h"

#include <compare>

namespace norma::kernels {

/// A kernel of a convolution or a product can do this to each result before it stores it: y = activation(scale * y +
/// residual).
struct Epilogue {
  /// The parts of it that are wanted.
  struct Parts {
    Activation activation = Activation::identity;
    bool scale = false;
    bool residual = false;
    friend auto operator<=>(const Parts&, const Parts&) = default;
  };

  Activation activation = Activation::identity;
  const void* scale = nullptr;     ///< a number for each output channel or column, or nullptr: of products alone
  const void* residual = nullptr;  ///< laid out as the result, or nullptr

  [[nodiscard]] Parts parts() const {
    return {.activation = activation, .scale = scale != nullptr, .residual = residual != nullptr};
  }
};

}  // namespace norma::kernels
