#pragma once

#include "core/random.h"
#include "core/tensor.h"

namespace norma::nn {

// Start values, written in place under no_grad. They depend only on the generator's state and the sizes, not on the
// memory format. A weight is (out, in / groups, …): fan-in is the product of all sizes but the first, fan-out that
// of all but the second.

enum class Fan { in, out };

/// sqrt(2): keeps the variance of activations through a ReLU.
inline constexpr double kReluGain = 1.4142135623730951;

/// He et al., "Delving deep into rectifiers", 2015: normal with deviation gain / sqrt(fan).
void kaiming_normal_(const Tensor& weight, Fan fan = Fan::in, double gain = kReluGain,
                     Generator& generator = default_generator());
/// Uniform in ±gain · sqrt(3 / fan).
void kaiming_uniform_(const Tensor& weight, Fan fan = Fan::in, double gain = kReluGain,
                      Generator& generator = default_generator());
/// Normal around 0, redrawn outside ±2 (an absolute bound, as in timm: next to none with deviation 0.02).
void trunc_normal_(const Tensor& weight, double std = 0.02, Generator& generator = default_generator());
/// Every element the same.
void constant_(const Tensor& x, double value);
/// What PyTorch's Linear and Conv2d start with: weight and bias uniform in ±1 / sqrt(fan-in of the weight).
void default_init_(const Tensor& weight, const Tensor& bias, Generator& generator = default_generator());

}  // namespace norma::nn
