#include "core/cuda/tensor_kernels.h"
#include "core/cuda/tensor_table.h"

namespace norma::kernels {
constinit const TensorKernels tensor_emulated = emulated::kTensorTable;
}
