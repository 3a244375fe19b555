#include "virtual_gpu/launches.h"

#include <fmt/format.h>

// What nvcc's objects call, and CUDA's functions for kernels.

namespace virtual_gpu {
namespace {

/// What nvcc's objects hand over: the fat binary is the third field.
struct FatWrapper {
  int magic;
  int version;
  const std::byte* blob;
  const void* more;
};

/// What <<<…>>> leaves for the launch that follows it in the same thread.
struct Configuration {
  dim3 grid;
  dim3 block;
  size_t shared_bytes = 0;
  cudaStream_t stream = nullptr;
};
std::vector<Configuration>& configurations() {
  thread_local std::vector<Configuration> stack;
  return stack;
}

cudaError_t call_launch(const LaunchRequest& request) {
  return call(request.call, [&](Runtime& runtime) {
    launch(request, runtime);
    return cudaSuccess;
  });
}

}  // namespace
}  // namespace virtual_gpu

using virtual_gpu::call;
using virtual_gpu::FatBinary;
using virtual_gpu::Refused;
using virtual_gpu::RegisteredKernel;
using virtual_gpu::Runtime;

extern "C" {

void** __cudaRegisterFatBinary(void* wrapper) {
  const std::byte* blob = static_cast<const virtual_gpu::FatWrapper*>(wrapper)->blob;
  return reinterpret_cast<void**>(&virtual_gpu::kernels().add_binary(blob));
}
void __cudaRegisterFatBinaryEnd(void**) {}
void __cudaUnregisterFatBinary(void**) {}
char __cudaInitModule(void**) {
  return 1;
}

void __cudaRegisterFunction(void** binary, const char* host_function, char*, const char* mangled, int, uint3*, uint3*,
                            dim3*, dim3*, int*) {
  virtual_gpu::kernels().add_kernel(*reinterpret_cast<FatBinary*>(binary), host_function, mangled);
}

// Variables of the device come with the PTX; the program's copies to and from them are not supported.
void __cudaRegisterVar(void**, char*, char*, const char*, int, size_t, int, int) {}

unsigned __cudaPushCallConfiguration(dim3 grid, dim3 block, size_t shared_bytes, CUstream_st* stream) {
  virtual_gpu::configurations().push_back(
      {.grid = grid, .block = block, .shared_bytes = shared_bytes, .stream = stream});
  return 0;
}

cudaError_t __cudaPopCallConfiguration(dim3* grid, dim3* block, size_t* shared_bytes, void* stream) {
  auto& stack = virtual_gpu::configurations();
  if (stack.empty()) {
    return cudaErrorInvalidConfiguration;
  }
  *grid = stack.back().grid;
  *block = stack.back().block;
  *shared_bytes = stack.back().shared_bytes;
  *static_cast<cudaStream_t*>(stream) = stack.back().stream;
  stack.pop_back();
  return cudaSuccess;
}

// A kernel's handle is its host's function.
cudaError_t __cudaGetKernel(cudaKernel_t* kernel, const void* host_function) {
  *kernel = static_cast<cudaKernel_t>(const_cast<void*>(host_function));
  return cudaSuccess;
}

cudaError_t __cudaLaunchKernel(cudaKernel_t kernel, dim3 grid, dim3 block, void** arguments, size_t shared_bytes,
                               cudaStream_t stream) {
  return virtual_gpu::call_launch({.call = "kernel launch",
                                   .function = kernel,
                                   .grid = grid,
                                   .block = block,
                                   .arguments = arguments,
                                   .shared_bytes = shared_bytes,
                                   .stream = stream});
}

cudaError_t cudaLaunchKernel(const void* function, dim3 grid, dim3 block, void** arguments, size_t shared_bytes,
                             cudaStream_t stream) {
  return virtual_gpu::call_launch({.call = "cudaLaunchKernel",
                                   .function = function,
                                   .grid = grid,
                                   .block = block,
                                   .arguments = arguments,
                                   .shared_bytes = shared_bytes,
                                   .stream = stream});
}

cudaError_t cudaLaunchKernelExC(const cudaLaunchConfig_t* config, const void* function, void** arguments) {
  if (config->numAttrs != 0) {
    return call("cudaLaunchKernelExC", [](Runtime&) -> cudaError_t {
      throw Refused(cudaErrorNotSupported, "the virtual GPU knows no attributes of launches");
    });
  }
  return virtual_gpu::call_launch({.call = "cudaLaunchKernelExC",
                                   .function = function,
                                   .grid = config->gridDim,
                                   .block = config->blockDim,
                                   .arguments = arguments,
                                   .shared_bytes = config->dynamicSmemBytes,
                                   .stream = config->stream});
}

cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* attributes, const void* function) {
  return call("cudaFuncGetAttributes", [&](Runtime& runtime) {
    *attributes = virtual_gpu::attributes_of(virtual_gpu::kernel_of(runtime, function), runtime.properties);
    return cudaSuccess;
  });
}

cudaError_t cudaFuncSetAttribute(const void* function, cudaFuncAttribute attribute, int value) {
  return call("cudaFuncSetAttribute", [&](Runtime& runtime) {
    RegisteredKernel& kernel = virtual_gpu::kernel_of(runtime, function);
    if (attribute == cudaFuncAttributePreferredSharedMemoryCarveout) {
      return cudaSuccess;  // a hint
    }
    if (attribute != cudaFuncAttributeMaxDynamicSharedMemorySize) {
      throw Refused(cudaErrorInvalidValue, fmt::format("unknown attribute {}", static_cast<int>(attribute)));
    }
    const uint64_t most = virtual_gpu::device_properties_of(runtime.properties).sharedMemPerBlockOptin -
                          kernel.resources.static_shared_bytes;
    if (value < 0 || static_cast<uint64_t>(value) > most) {
      throw Refused(cudaErrorInvalidValue, fmt::format("{}: dynamic shared memory: expected at most {} bytes, got {}",
                                                       kernel.name, most, value));
    }
    kernel.dynamic_shared_limit = static_cast<uint64_t>(value);
    return cudaSuccess;
  });
}

cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, const void* function, int threads,
                                                          size_t dynamic_shared_bytes) {
  return call("cudaOccupancyMaxActiveBlocksPerMultiprocessor", [&](Runtime& runtime) {
    *blocks = virtual_gpu::resident_blocks(virtual_gpu::kernel_of(runtime, function), runtime.properties, threads,
                                           dynamic_shared_bytes);
    return cudaSuccess;
  });
}

cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int* blocks, const void* function, int threads,
                                                                   size_t dynamic_shared_bytes, unsigned) {
  return cudaOccupancyMaxActiveBlocksPerMultiprocessor(blocks, function, threads, dynamic_shared_bytes);
}

}  // extern "C"
