#pragma once

#include <fmt/format.h>

#include <string>
#include <string_view>

namespace norma::cuda {

/// The complaint about a GPU that Norma's kernels do not run on: conversions to bfloat16 need compute capability 8.0.
/// Empty where there is none.
inline std::string capability_complaint(int major, int minor, std::string_view name) {
  return major >= 8
             ? std::string()
             : fmt::format("expected a GPU of compute capability 8.0 or above, got {}.{} ({})", major, minor, name);
}

}  // namespace norma::cuda
