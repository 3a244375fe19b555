#pragma once

#include "virtual_gpu/device_properties.h"
#include "virtual_gpu/kernels.h"
#include "virtual_gpu/runtime.h"

namespace virtual_gpu {

/// A launch as CUDA's functions get it.
struct LaunchRequest {
  const char* call = nullptr;
  const void* function = nullptr;
  dim3 grid;
  dim3 block;
  void** arguments = nullptr;
  size_t shared_bytes = 0;
  cudaStream_t stream = nullptr;
};

/// Checks a launch, copies its arguments, and gives it to its stream. Throws Refused as CUDA refuses launches.
void launch(const LaunchRequest& request, Runtime& runtime);

/// The kernel behind a host's function, loaded. Throws Refused where there is none for this GPU.
RegisteredKernel& kernel_of(Runtime& runtime, const void* function);

/// What CUDA tells of a kernel.
cudaFuncAttributes attributes_of(const RegisteredKernel& kernel, const Properties& gpu);

/// Blocks of the kernel that a multiprocessor holds at once, by NVIDIA's cuda_occupancy.h.
int resident_blocks(const RegisteredKernel& kernel, const Properties& gpu, int threads, size_t dynamic_shared_bytes);

}  // namespace virtual_gpu
