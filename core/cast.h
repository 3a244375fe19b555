#pragma once

#include "core/tensor.h"

namespace norma {

/// x's values in another dtype with x's strides if those are dense, on the tape: the gradient is converted back. x
/// itself if it has the dtype. A conversion to a dtype that is not floating carries no gradient. ops/shape/copy.h has
/// the same under the name to().
Tensor cast(const Tensor& x, DType dtype);

/// The same, where `values` are x's values in that dtype already.
Tensor record_cast(const Tensor& x, const Tensor& values);

}  // namespace norma
