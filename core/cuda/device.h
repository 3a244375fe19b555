#pragma once

#include "core/device_functions.h"

#include <string_view>

namespace norma {

namespace cuda {
/// Throws Error("op: expected a GPU, got none: …") without a GPU, and an Error for a number that no GPU has.
void check_there(std::string_view op, int index);
}  // namespace cuda

}  // namespace norma
