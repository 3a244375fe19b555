#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

namespace virtual_gpu {

/// Who wrote and read a word last.
class GlobalRaces {};

}  // namespace virtual_gpu
