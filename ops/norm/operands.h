#pragma once

#include "core/tensor.h"

// What an op hands to kernels.

namespace norma::norm_detail {

/// x in another dtype with the same strides if those are dense, off the tape; x itself if it has the dtype. An
/// undefined tensor stays undefined.
Tensor converted(const Tensor& x, DType dtype);

/// The same in float64 and contiguous: for kernels over a few numbers, which compute in it.
Tensor in_float64(const Tensor& x);

}  // namespace norma::norm_detail
