#pragma once

#include "core/tensor.h"

#include <string>
#include <string_view>

namespace norma::data {

// Files of NumPy (https://numpy.org/doc/stable/reference/generated/numpy.lib.format.html): a header that says dtype,
// order and shape, then the elements. NumPy has no bfloat16.

/// x as the content of a .npy file, row-major, whatever its strides and device. Throws Error for bfloat16.
std::string npy_bytes(const Tensor& x);

/// The tensor in the content of a .npy file, on the CPU. A column-major array gets column-major strides. `file` is for
/// error texts. Throws Error "npy: FILE: …" for a damaged header, another dtype (big-endian numbers included), more
/// than 8 axes, and bytes that do not fit the shape.
Tensor tensor_of_npy(std::string_view file, std::string_view bytes);

}  // namespace norma::data
