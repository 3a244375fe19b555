#pragma once

#include "virtual_gpu/properties.h"

#include <cuda_runtime_api.h>

namespace virtual_gpu {

inline constexpr int kLargestBlock[] = {1024, 1024, 64};
inline constexpr int kLargestGrid[] = {2147483647, 65535, 65535};

/// The properties as CUDA tells them.
cudaDeviceProp device_properties_of(const Properties& gpu);

}  // namespace virtual_gpu
