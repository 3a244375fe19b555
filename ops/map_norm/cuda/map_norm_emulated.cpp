#include "ops/map_norm/cuda/map_norm_kernels.h"
#include "ops/map_norm/cuda/map_norm_table.h"

namespace norma::kernels {
constinit const MapNormKernels map_norm_emulated = emulated::kMapNormTable;
}
