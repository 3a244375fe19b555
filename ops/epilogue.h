#pragma once

namespace norma::kernels {

/// What a kernel does with each result of a convolution or a product before it stores it: y = max(y + residual, 0), or
/// only the one or the other.
struct Epilogue {
  bool relu = false;
  const void* residual = nullptr;  ///< laid out as the result, or nullptr
};

}  // namespace norma::kernels
