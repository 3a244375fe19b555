#pragma once

#include "core/tensor.h"

// What an op hands to kernels.

namespace norma::norm_detail {

/// The dtype in which x is computed: float32 for bfloat16 and float16, else its own.
DType compute_dtype(DType dtype);

/// x in another dtype with the same strides if those are dense, off the tape; x itself if it has the dtype. An
/// undefined tensor stays undefined.
Tensor converted(const Tensor& x, DType dtype);

/// The same in float64 and contiguous: for kernels over a few numbers, which compute in it.
Tensor in_float64(const Tensor& x);

/// Where x lies on its device; null for an undefined tensor.
inline void* pointer_or_null(const Tensor& x) {
  return x.defined() ? x.device_pointer() : nullptr;
}

}  // namespace norma::norm_detail
