#include "virtual_gpu/device_properties.h"
#include "virtual_gpu/runtime.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

// CUDA's functions for devices and errors.

namespace virtual_gpu {
namespace {

constexpr int kReservedShared = 1024;  // of each block, for CUDA itself, since compute capability 8.0

void require_device(const Runtime& runtime, int device) {
  if (device < 0 || device >= runtime.devices) {
    throw Refused(cudaErrorInvalidDevice,
                  fmt::format("expected a device below {}, as many as there are, got {}", runtime.devices, device));
  }
}

}  // namespace

cudaDeviceProp device_properties_of(const Properties& gpu) {
  cudaDeviceProp result{};
  // Nobody shall take a figure of this one for a measurement.
  const std::string name = gpu.name + " (virtual)";
  name.copy(result.name, sizeof result.name - 1);
  result.totalGlobalMem = gpu.memory_bytes;
  result.sharedMemPerBlock = gpu.shared_bytes_per_block;
  result.regsPerBlock = gpu.registers_per_multiprocessor;
  result.warpSize = 32;
  result.maxThreadsPerBlock = gpu.threads_per_block;
  std::ranges::copy(kLargestBlock, result.maxThreadsDim);
  std::ranges::copy(kLargestGrid, result.maxGridSize);
  result.totalConstMem = 64 << 10;
  result.major = gpu.major;
  result.minor = gpu.minor;
  result.multiProcessorCount = gpu.multiprocessors;
  result.concurrentKernels = 1;
  result.asyncEngineCount = 2;
  result.unifiedAddressing = 1;
  result.l2CacheSize = static_cast<int>(gpu.l2_bytes);
  result.maxThreadsPerMultiProcessor = gpu.threads_per_multiprocessor;
  result.sharedMemPerMultiprocessor = gpu.shared_bytes_per_multiprocessor;
  result.regsPerMultiprocessor = gpu.registers_per_multiprocessor;
  result.sharedMemPerBlockOptin = gpu.shared_bytes_per_multiprocessor - kReservedShared;
  result.reservedSharedMemPerBlock = kReservedShared;
  result.maxBlocksPerMultiProcessor = gpu.blocks_per_multiprocessor;
  result.hostRegisterSupported = 1;
  return result;
}

}  // namespace virtual_gpu

using virtual_gpu::call;
using virtual_gpu::last_error;
using virtual_gpu::Refused;
using virtual_gpu::require_device;
using virtual_gpu::Runtime;

extern "C" {

cudaError_t cudaGetDeviceCount(int* count) {
  *count = Runtime::get().devices;
  return cudaSuccess;
}

cudaError_t cudaGetDevice(int* device) {
  *device = virtual_gpu::current_device();
  return cudaSuccess;
}

cudaError_t cudaSetDevice(int device) {
  return call("cudaSetDevice", [&](const Runtime& runtime) {
    require_device(runtime, device);
    virtual_gpu::current_device() = device;
    return cudaSuccess;
  });
}

cudaError_t cudaDriverGetVersion(int* version) {
  *version = CUDART_VERSION;
  return cudaSuccess;
}

cudaError_t cudaRuntimeGetVersion(int* version) {
  *version = CUDART_VERSION;
  return cudaSuccess;
}

cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int device) {
  return call("cudaGetDeviceProperties", [&](const Runtime& runtime) {
    require_device(runtime, device);
    *properties = virtual_gpu::device_properties_of(runtime.properties);
    return cudaSuccess;
  });
}

cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int device) {
  return call("cudaDeviceGetAttribute", [&](const Runtime& runtime) {
    require_device(runtime, device);
    const cudaDeviceProp all = virtual_gpu::device_properties_of(runtime.properties);
    const std::map<cudaDeviceAttr, int> known{
        {cudaDevAttrMaxThreadsPerBlock, all.maxThreadsPerBlock},
        {cudaDevAttrMaxBlockDimX, all.maxThreadsDim[0]},
        {cudaDevAttrMaxBlockDimY, all.maxThreadsDim[1]},
        {cudaDevAttrMaxBlockDimZ, all.maxThreadsDim[2]},
        {cudaDevAttrMaxGridDimX, all.maxGridSize[0]},
        {cudaDevAttrMaxGridDimY, all.maxGridSize[1]},
        {cudaDevAttrMaxGridDimZ, all.maxGridSize[2]},
        {cudaDevAttrMaxSharedMemoryPerBlock, static_cast<int>(all.sharedMemPerBlock)},
        {cudaDevAttrMaxSharedMemoryPerBlockOptin, static_cast<int>(all.sharedMemPerBlockOptin)},
        {cudaDevAttrMaxSharedMemoryPerMultiprocessor, static_cast<int>(all.sharedMemPerMultiprocessor)},
        {cudaDevAttrReservedSharedMemoryPerBlock, static_cast<int>(all.reservedSharedMemPerBlock)},
        {cudaDevAttrTotalConstantMemory, static_cast<int>(all.totalConstMem)},
        {cudaDevAttrWarpSize, all.warpSize},
        {cudaDevAttrMaxRegistersPerBlock, all.regsPerBlock},
        {cudaDevAttrMaxRegistersPerMultiprocessor, all.regsPerMultiprocessor},
        {cudaDevAttrMultiProcessorCount, all.multiProcessorCount},
        {cudaDevAttrMaxThreadsPerMultiProcessor, all.maxThreadsPerMultiProcessor},
        {cudaDevAttrMaxBlocksPerMultiprocessor, all.maxBlocksPerMultiProcessor},
        {cudaDevAttrComputeCapabilityMajor, all.major},
        {cudaDevAttrComputeCapabilityMinor, all.minor},
        {cudaDevAttrL2CacheSize, all.l2CacheSize},
        {cudaDevAttrClockRate, static_cast<int>(runtime.properties.clock_hz / 1e3)},
        {cudaDevAttrConcurrentKernels, all.concurrentKernels},
        {cudaDevAttrAsyncEngineCount, all.asyncEngineCount},
        {cudaDevAttrUnifiedAddressing, all.unifiedAddressing},
        {cudaDevAttrIntegrated, all.integrated},
        {cudaDevAttrMemoryPoolsSupported, all.memoryPoolsSupported},
        {cudaDevAttrHostRegisterSupported, all.hostRegisterSupported}};
    const auto found = known.find(attribute);
    if (found == known.end()) {
      throw Refused(cudaErrorInvalidValue,
                    fmt::format("attribute {} is not known to the virtual GPU", static_cast<int>(attribute)));
    }
    *value = found->second;
    return cudaSuccess;
  });
}

cudaError_t cudaDeviceSynchronize() {
  return call("cudaDeviceSynchronize", [](Runtime& runtime) {
    runtime.forbid_in_capture("cudaDeviceSynchronize");
    runtime.streams.finish_all();
    return cudaSuccess;
  });
}

cudaError_t cudaGetLastError() {
  const cudaError_t result = cudaPeekAtLastError();
  last_error() = cudaSuccess;
  return result;
}

cudaError_t cudaPeekAtLastError() {
  const Runtime* runtime = Runtime::get_if_used();
  // The error of a fault stays.
  return runtime != nullptr && runtime->error() != cudaSuccess ? runtime->error() : last_error();
}

}  // extern "C"
