#include "virtual_gpu/launches.h"

#include <cuda_occupancy.h>
#include <fmt/format.h>

#include <algorithm>
#include <memory>

namespace virtual_gpu {
namespace {

constexpr double kSecondsOfLaunch = 2e-6;  // of the virtual clock
constexpr int kSchedulers = 4;             // of a multiprocessor

uint64_t threads_of(dim3 block) {
  return uint64_t{block.x} * block.y * block.z;
}

/// The most dynamic shared memory that a launch of the kernel may ask for.
uint64_t dynamic_shared_limit(const RegisteredKernel& kernel, const Properties& gpu) {
  return kernel.dynamic_shared_limit.value_or(
      gpu.shared_bytes_per_block - std::min(gpu.shared_bytes_per_block, kernel.resources.static_shared_bytes));
}

void check_shape(const LaunchRequest& request, const RegisteredKernel& kernel, const Properties& gpu) {
  const auto fits = [](dim3 got, const int(&most)[3]) {
    return got.x >= 1 && got.y >= 1 && got.z >= 1 && got.x <= static_cast<unsigned>(most[0]) &&
           got.y <= static_cast<unsigned>(most[1]) && got.z <= static_cast<unsigned>(most[2]);
  };
  if (!fits(request.grid, kLargestGrid)) {
    throw Refused(
        cudaErrorInvalidConfiguration,
        fmt::format("{}: grid: expected 1 to {} × {} × {} blocks, got {} × {} × {}", kernel.name, kLargestGrid[0],
                    kLargestGrid[1], kLargestGrid[2], request.grid.x, request.grid.y, request.grid.z));
  }
  if (!fits(request.block, kLargestBlock) || threads_of(request.block) > static_cast<uint64_t>(gpu.threads_per_block)) {
    throw Refused(cudaErrorInvalidConfiguration,
                  fmt::format("{}: block: expected 1 to {} threads, got {} × {} × {}", kernel.name,
                              gpu.threads_per_block, request.block.x, request.block.y, request.block.z));
  }
}

void check_resources(const LaunchRequest& request, const RegisteredKernel& kernel, const Properties& gpu) {
  const uint64_t limit = dynamic_shared_limit(kernel, gpu);
  if (request.shared_bytes > limit) {
    throw Refused(cudaErrorInvalidValue, fmt::format("{}: dynamic shared memory: expected at most {} bytes, got {}",
                                                     kernel.name, limit, request.shared_bytes));
  }
  const auto threads = static_cast<int>(threads_of(request.block));
  if (threads > kernel.resources.max_threads) {
    throw Refused(cudaErrorLaunchOutOfResources,
                  fmt::format("{}: block: expected at most {} threads, by its __launch_bounds__, got {}", kernel.name,
                              kernel.resources.max_threads, threads));
  }
  if (kernel.resources.registers > 0 && resident_blocks(kernel, gpu, threads, request.shared_bytes) == 0) {
    throw Refused(
        cudaErrorLaunchOutOfResources,
        fmt::format("{}: {} threads of {} registers and {} bytes of shared memory do not fit", kernel.name, threads,
                    kernel.resources.registers, request.shared_bytes + kernel.resources.static_shared_bytes));
  }
}

std::vector<std::vector<std::byte>> copied_arguments(void** arguments, const std::vector<uint32_t>& bytes) {
  std::vector<std::vector<std::byte>> result;
  for (size_t i = 0; i < bytes.size(); ++i) {
    const auto* const from = static_cast<const std::byte*>(arguments[i]);
    result.emplace_back(from, from + bytes[i]);
  }
  return result;
}

/// For the virtual clock: what issuing the instructions takes, or moving the bytes.
double seconds_of(const Counters& counters, const Properties& gpu) {
  const double issue =
      static_cast<double>(counters.warp_instructions) / (gpu.multiprocessors * kSchedulers * gpu.clock_hz);
  const double bytes = 32.0 * static_cast<double>(counters.global_load_sectors + counters.global_store_sectors);
  return kSecondsOfLaunch + std::max(issue, bytes / gpu.memory_bytes_per_second);
}

}  // namespace

RegisteredKernel& kernel_of(Runtime& runtime, const void* function) {
  RegisteredKernel* kernel = kernels().find(function);
  if (kernel == nullptr) {
    throw Refused(cudaErrorInvalidDeviceFunction, "expected a kernel, got another function");
  }
  switch (kernels().load(*kernel, runtime.properties, runtime.memory)) {
    case Kernels::Load::kDone: break;
    case Kernels::Load::kNoMemory:
      throw Refused(cudaErrorMemoryAllocation, fmt::format("{}: no memory is left for its code", kernel->name));
    case Kernels::Load::kNoImage:
      throw Refused(cudaErrorNoKernelImageForDevice,
                    fmt::format("{}: the program has no code for compute capability {}.{}, or no PTX; compile it with "
                                "CUDAARCHS={}{}",
                                kernel->name, runtime.properties.major, runtime.properties.minor,
                                runtime.properties.major, runtime.properties.minor));
  }
  return *kernel;
}

cudaFuncAttributes attributes_of(const RegisteredKernel& kernel, const Properties& gpu) {
  cudaFuncAttributes result{};
  result.sharedSizeBytes = kernel.resources.static_shared_bytes;
  result.numRegs = kernel.resources.registers;
  result.maxThreadsPerBlock = kernel.resources.max_threads;
  if (result.numRegs > 0) {
    // Registers are given to warps in units of 256.
    const int per_warp = (result.numRegs * 32 + 255) / 256 * 256;
    result.maxThreadsPerBlock = std::min(result.maxThreadsPerBlock, gpu.registers_per_multiprocessor / per_warp * 32);
  }
  result.ptxVersion = result.binaryVersion = 10 * gpu.major + gpu.minor;
  result.maxDynamicSharedSizeBytes = static_cast<int>(dynamic_shared_limit(kernel, gpu));
  return result;
}

int resident_blocks(const RegisteredKernel& kernel, const Properties& gpu, int threads, size_t dynamic_shared_bytes) {
  const cudaOccDeviceProp device(device_properties_of(gpu));
  const cudaOccFuncAttributes attributes(attributes_of(kernel, gpu));
  const cudaOccDeviceState state;
  cudaOccResult result{};
  const cudaOccError error =
      cudaOccMaxActiveBlocksPerMultiprocessor(&result, &device, &attributes, &state, threads, dynamic_shared_bytes);
  if (error != CUDA_OCC_SUCCESS) {
    throw Refused(cudaErrorInvalidValue,
                  fmt::format("{}: occupancy of {} threads and {} bytes: cuda_occupancy.h gives error {}", kernel.name,
                              threads, dynamic_shared_bytes, static_cast<int>(error)));
  }
  return result.activeBlocksPerMultiprocessor;
}

void launch(const LaunchRequest& request, Runtime& runtime) {
  RegisteredKernel& kernel = kernel_of(runtime, request.function);
  check_shape(request, kernel, runtime.properties);
  check_resources(request, kernel, runtime.properties);
  Stream& stream = runtime.stream_for_work(request.stream);
  require_current(stream, kernel.name);
  const auto to_dim3 = [](dim3 from) { return Dim3{.x = from.x, .y = from.y, .z = from.z}; };
  const auto made = std::make_shared<const Launch>(
      Launch{.device = current_device(),
             .kernel = &kernel.binary->module->kernel(kernel.mangled),
             .grid = to_dim3(request.grid),
             .block = to_dim3(request.block),
             .dynamic_shared_bytes = request.shared_bytes,
             .arguments = copied_arguments(request.arguments, kernel.binary->module->parameter_bytes(kernel.mangled))});
  const std::string what =
      fmt::format("{}<<<({}, {}, {}), ({}, {}, {}), {}>>>", kernel.name, request.grid.x, request.grid.y, request.grid.z,
                  request.block.x, request.block.y, request.block.z, request.shared_bytes);
  runtime.streams.put(stream, later(what, [made, &runtime, name = kernel.name] {
                        Counters counted = run(*made, runtime.memory, runtime.properties);
                        counted.launches = 1;
                        runtime.counters[name] += counted;
                        return seconds_of(counted, runtime.properties);
                      }));
}

}  // namespace virtual_gpu
