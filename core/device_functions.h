#pragma once

#include "core/allocator.h"
#include "core/by_device.h"

#include <cstddef>

namespace norma {

/// What a device must do besides running kernels.
struct DeviceFunctions {
  Allocator& (*allocator)(int index);
  /// Copies of memory between the host and the device; they have happened on return.
  void (*from_host)(void* device, const void* host, size_t bytes);
  void (*to_host)(void* host, const void* device, size_t bytes);
};

/// from_host and to_host of the devices whose memory is the host's.
void copy_host_memory(void* to, const void* from, size_t bytes);

extern const DeviceFunctions cpu_functions;
extern const DeviceFunctions emulated_functions;
extern const ByDevice<DeviceFunctions> device_functions;

}  // namespace norma
