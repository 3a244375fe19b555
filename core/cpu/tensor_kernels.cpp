#include "core/cpu/tensor_kernels.h"

namespace norma {

constinit const kernels::TensorKernels kernels::tensor_cpu{.copy = cpu::copy,
                                                           .add = cpu::add,
                                                           .copy_all = cpu::copy_all,
                                                           .add_all = cpu::add_all,
                                                           .fill = cpu::fill,
                                                           .find_not_finite = cpu::find_not_finite,
                                                           .arange = cpu::arange,
                                                           .uniform = cpu::uniform,
                                                           .normal = cpu::normal,
                                                           .truncated_normal = cpu::truncated_normal,
                                                           .randint = cpu::randint};

}  // namespace norma
