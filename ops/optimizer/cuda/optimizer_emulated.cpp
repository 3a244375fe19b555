#include "ops/optimizer/cuda/optimizer_kernels.h"
#include "ops/optimizer/cuda/optimizer_table.h"

namespace norma::kernels {
constinit const OptimizerKernels optimizer_emulated = emulated::kOptimizerTable;
}
