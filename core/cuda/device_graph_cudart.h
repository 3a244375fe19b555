#pragma once

#include "core/cuda/caching_allocator.h"
#include "core/device_graph.h"

#include <memory>

namespace norma::cuda {

/// A graph whose tensors come from a reserve of `memory`.
std::unique_ptr<DeviceGraph> make_graph(CachingAllocator& memory);

}  // namespace norma::cuda
