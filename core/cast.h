#pragma once

#include "core/tensor.h"

namespace norma {

/// x's values in another dtype, on the tape: backward converts the gradient back, but a dtype that is not floating
/// carries none. The result has x's strides if those are dense; it is x itself if x has the dtype. to() of
/// ops/shape/copy.h does the same.
Tensor cast(const Tensor& x, DType dtype);

/// As cast(), for `values` that are x's values in that dtype already.
Tensor record_cast(const Tensor& x, const Tensor& values);

}  // namespace norma
