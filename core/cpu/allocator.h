#pragma once

#include "core/allocator.h"

namespace norma {

/// The caching allocator of host memory. Lives until the process ends.
Allocator& cpu_allocator();

}  // namespace norma
