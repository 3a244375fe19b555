#pragma once

#include "core/tensor.h"

#include <cstdint>
#include <string_view>

namespace norma {

/// What may follow a norm in the same op.
enum class Activation : uint8_t { identity, relu, gelu, silu };

std::string_view to_string(Activation activation);

/// relu(x), gelu(x), silu(x) of pointwise.h, or x itself for identity.
Tensor activate(const Tensor& x, Activation activation);

}  // namespace norma
