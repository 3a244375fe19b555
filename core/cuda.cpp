#include "core/cuda/device.h"
#include "core/cuda/tensor_kernels.h"

// The devices of a build with CUDA.

namespace norma {

constinit const ByDevice<DeviceFunctions> device_functions{
    .cpu = &cpu_functions, .cuda = &cuda_functions, .emulated = &emulated_functions};

namespace kernels {
constinit const ByDevice<TensorKernels> tensor_kernels{
    .cpu = &tensor_cpu, .cuda = &tensor_cuda, .emulated = &tensor_emulated};
}

}  // namespace norma
