#include "ops/norm/cuda/norm_kernels.h"
#include "ops/norm/cuda/norm_table.h"

namespace norma::kernels {
constinit const NormKernels norm_emulated = emulated::kNormTable;
}
