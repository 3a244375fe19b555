#pragma once

#include "ops/norm/norm.h"

// Differentiable ops that compose the norms of this family, for higher derivatives; nothing here is for other families.
// Between in_compute_dtype() and back_to() a norm is computed in float32 or float64.

namespace norma::norm_detail {

/// x in the dtype of the computation, or in `dtype`. The gradient comes back in x's dtype and strides.
Tensor in_compute_dtype(const Tensor& x);
Tensor computed_in(DType dtype, const Tensor& x);
/// y in x's dtype and strides: the end of a computation that in_compute_dtype() began. The gradient goes in with these
/// strides whatever it came with, so that the whole computation has one memory format.
Tensor back_to(const Tensor& x, const Tensor& y);

/// x in another dtype, on the tape; an undefined tensor stays undefined.
Tensor in_dtype(const Tensor& x, DType dtype);

/// A parameter of (C) in x's dtype, with sizes that broadcast along axis 1 of x.
Tensor along_channels(const Tensor& parameter, const Tensor& x);

/// x * weight + bias along the channels; either may be undefined.
Tensor scale_and_shift(const Tensor& x, const Tensor& weight, const Tensor& bias);

/// sqrt(var + eps) of each set, with the biased variance, or the mean square for Centring::none; reduced axes have size
/// 1. Its gradient at 0 is 0. Differentiable any number of times. `spec` has no groups.
Tensor deviation(std::string_view op, const Tensor& x, const NormSpec& spec);

/// A power of two near 1 / x for each element, as a constant: products with it are exact, and squares of scaled numbers
/// stay in the range of the dtype.
Tensor inverse_power_of_two(std::string_view op, const Tensor& x);

}  // namespace norma::norm_detail
