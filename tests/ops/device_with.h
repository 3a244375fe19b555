#pragma once

#include "core/device.h"

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

namespace norma::test {

/// Where a test of one of the CPU's implementations runs: on the default device if that has it, among
/// `implementations`; a GPU has not, and leaves it to the CPU.
inline Device device_with(std::string_view name, const std::vector<std::string>& implementations) {
  return std::ranges::count(implementations, name) > 0 ? default_device() : kCpu;
}

}  // namespace norma::test
