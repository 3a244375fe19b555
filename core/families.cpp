#include "core/device_functions.h"
#include "core/kernels.h"

// The lists of core: the devices, and the tensor kernels of each.

namespace norma {

constinit const ByDevice<DeviceFunctions> device_functions{
    .cpu = &cpu_functions, .cuda = NORMA_IN_CUDA(cuda_functions), .emulated = NORMA_IN_EMULATED(emulated_functions)};

namespace kernels {
constinit const ByDevice<TensorKernels> tensor_kernels{
    .cpu = &tensor_cpu, .cuda = NORMA_IN_CUDA(tensor_cuda), .emulated = NORMA_IN_EMULATED(tensor_emulated)};
}

}  // namespace norma
