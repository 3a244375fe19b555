#include "core/cuda/tensor_kernels.h"
#include "core/device_functions.h"
#include "core/kernels.h"

// The devices of a build without CUDA.

namespace norma {

constinit const ByDevice<DeviceFunctions> device_functions{
    .cpu = &cpu_functions, .cuda = nullptr, .emulated = &emulated_functions};

namespace kernels {
constinit const ByDevice<TensorKernels> tensor_kernels{
    .cpu = &tensor_cpu, .cuda = nullptr, .emulated = &tensor_emulated};
}

}  // namespace norma
