#pragma once

#include "core/cuda/caching_allocator.h"
#include "core/device_graph.h"

#include <memory>

namespace norma::cuda {

/// A graph of the device with this number, whose tensors come from a reserve of `memory`, its allocator.
std::unique_ptr<DeviceGraph> make_graph(CachingAllocator& memory, int index);

}  // namespace norma::cuda
