#include "ops/conv/kernels.h"
#include "ops/loss/kernels.h"
#include "ops/map_norm/kernels.h"
#include "ops/matmul/kernels.h"
#include "ops/norm/cuda/norm_kernels.h"
#include "ops/norm/kernels.h"
#include "ops/optimizer/kernels.h"
#include "ops/pointwise/kernels.h"
#include "ops/pool/kernels.h"
#include "ops/random/kernels.h"
#include "ops/reduce/kernels.h"
#include "ops/shape/kernels.h"

// The kernels of a build without CUDA, a line for each family.

namespace norma::kernels {

constinit const ByDevice<ConvKernels> conv_kernels{.cpu = &conv_cpu, .cuda = nullptr, .emulated = &conv_cpu};
constinit const ByDevice<IndexKernels> index_kernels{.cpu = &index_cpu, .cuda = nullptr, .emulated = &index_cpu};
constinit const ByDevice<LossKernels> loss_kernels{.cpu = &loss_cpu, .cuda = nullptr, .emulated = &loss_cpu};
constinit const ByDevice<MatmulKernels> matmul_kernels{.cpu = &matmul_cpu, .cuda = nullptr, .emulated = &matmul_cpu};
constinit const ByDevice<MapNormKernels> map_norm_kernels{
    .cpu = &map_norm_cpu, .cuda = nullptr, .emulated = &map_norm_cpu};
constinit const ByDevice<NormKernels> norm_kernels{.cpu = &norm_cpu, .cuda = nullptr, .emulated = &norm_emulated};
constinit const ByDevice<OptimizerKernels> optimizer_kernels{
    .cpu = &optimizer_cpu, .cuda = nullptr, .emulated = &optimizer_cpu};
constinit const ByDevice<PointwiseKernels> pointwise_kernels{
    .cpu = &pointwise_cpu, .cuda = nullptr, .emulated = &pointwise_cpu};
constinit const ByDevice<PoolKernels> pool_kernels{.cpu = &pool_cpu, .cuda = nullptr, .emulated = &pool_cpu};
constinit const ByDevice<RandomKernels> random_kernels{.cpu = &random_cpu, .cuda = nullptr, .emulated = &random_cpu};
constinit const ByDevice<ReduceKernels> reduce_kernels{.cpu = &reduce_cpu, .cuda = nullptr, .emulated = &reduce_cpu};

}  // namespace norma::kernels
