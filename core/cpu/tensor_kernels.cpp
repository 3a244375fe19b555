#include "core/cpu/tensor_kernels.h"

#include "core/cpu/allocator.h"
#include "core/device_functions.h"

#include <cstring>

namespace norma {

namespace {

Allocator& allocator_of_host(int) {
  return cpu_allocator();
}

}  // namespace

void copy_host_memory(void* to, const void* from, size_t bytes) {
  std::memcpy(to, from, bytes);
}

constinit const DeviceFunctions cpu_functions{
    .allocator = allocator_of_host, .from_host = copy_host_memory, .to_host = copy_host_memory};

constinit const kernels::TensorKernels kernels::tensor_cpu{.copy = cpu::copy,
                                                           .add = cpu::add,
                                                           .fill = cpu::fill,
                                                           .find_not_finite = cpu::find_not_finite,
                                                           .arange = cpu::arange,
                                                           .uniform = cpu::uniform,
                                                           .normal = cpu::normal,
                                                           .truncated_normal = cpu::truncated_normal,
                                                           .randint = cpu::randint};

}  // namespace norma
