#include "ops/reduce/cuda/reduce_kernels.h"
#include "ops/reduce/cuda/reduce_table.h"

namespace norma::kernels {
constinit const ReduceKernels reduce_emulated = emulated::kReduceTable;
}
