#pragma once

#include "core/random.h"
#include "core/tensor.h"

namespace norma {

/// Dropout: sets each element to 0 with probability `rate` in [0, 1] and scales the others by 1 / (1 - rate). Keeps
/// strides. The mask of element i (row-major) depends only on the generator's state. Saves no mask: backward draws it
/// again. Returns x itself when rate is 0 or `training` is false.
Tensor dropout(const Tensor& x, double rate, bool training, Generator& generator = default_generator());

/// Stochastic depth (Huang et al., 2016): one draw for each sample (axis 0) instead of each element.
Tensor drop_path(const Tensor& x, double rate, bool training, Generator& generator = default_generator());

}  // namespace norma
