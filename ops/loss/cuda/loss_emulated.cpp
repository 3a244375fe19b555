#include "ops/loss/cuda/loss_kernels.h"
#include "ops/loss/cuda/loss_table.h"

namespace norma::kernels {
constinit const LossKernels loss_emulated = emulated::kLossTable;
}
