#pragma once

#include "core/tensor.h"

#include <cstdint>
#include <optional>
#include <string_view>

namespace norma {

/// Throws Error of `op` for a class number outside [0, count) other than `ignored`, with the first such row. classes:
/// int64 (N), any strides; count: 1 or more. Returns false if it could not look without waiting for the device.
bool check_classes(std::string_view op, const Tensor& classes, int64_t count,
                   std::optional<int64_t> ignored = std::nullopt);

}  // namespace norma
