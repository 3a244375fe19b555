#pragma once

#include "core/random.h"
#include "core/tensor.h"

namespace norma::nn {

// Functions that write start values in place, off the tape. The values depend only on the generator's state and the
// sizes, not on the memory format. A weight is (out, in / groups, …): fan-in is the product of all sizes but the first,
// fan-out the product of all but the second. Functions that need a fan throw Error for a rank below 2. Random values
// are for float32 and float64; other dtypes are an Error.

enum class Fan { in, out };

/// sqrt(2): keeps the variance of activations through a ReLU.
inline constexpr double kReluGain = 1.4142135623730951;

/// He et al., "Delving deep into rectifiers", 2015: normal with deviation gain / sqrt(fan).
void kaiming_normal_(const Tensor& weight, Fan fan = Fan::in, double gain = kReluGain,
                     Generator& generator = default_generator());
/// As kaiming_normal_() with the same deviation, but uniform in ±gain · sqrt(3 / fan).
void kaiming_uniform_(const Tensor& weight, Fan fan = Fan::in, double gain = kReluGain,
                      Generator& generator = default_generator());
/// Normal around 0, drawn again outside ±2 (an absolute bound, as in timm: with deviation 0.02 it hardly ever acts).
void trunc_normal_(const Tensor& weight, double std = 0.02, Generator& generator = default_generator());
/// Sets every element to `value`.
void constant_(const Tensor& x, double value);
/// The start values of PyTorch's Linear and Conv2d: weight and bias uniform in ±1 / sqrt(fan-in of the weight).
void default_init_(const Tensor& weight, const Tensor& bias, Generator& generator = default_generator());

}  // namespace norma::nn
