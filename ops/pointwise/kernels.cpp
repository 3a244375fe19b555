#include "ops/pointwise/kernels.h"

namespace norma::pointwise {

const Kernels& kernels_for(Device device) {
  static constexpr Kernels kCpuKernels{cpu::unary, cpu::unary_backward, cpu::binary, cpu::compare, cpu::where};
  return device.type == DeviceType::cuda ? cuda_kernels() : kCpuKernels;
}

}  // namespace norma::pointwise
