#include "ops/conv/kernels.h"
#include "ops/loss/cuda/loss_kernels.h"
#include "ops/loss/kernels.h"
#include "ops/map_norm/cuda/map_norm_kernels.h"
#include "ops/map_norm/kernels.h"
#include "ops/matmul/kernels.h"
#include "ops/norm/cuda/norm_kernels.h"
#include "ops/norm/kernels.h"
#include "ops/optimizer/cuda/optimizer_kernels.h"
#include "ops/optimizer/kernels.h"
#include "ops/pointwise/cuda/pointwise_kernels.h"
#include "ops/pointwise/kernels.h"
#include "ops/pool/cuda/pool_kernels.h"
#include "ops/pool/kernels.h"
#include "ops/random/cuda/random_kernels.h"
#include "ops/random/kernels.h"
#include "ops/reduce/cuda/reduce_kernels.h"
#include "ops/reduce/kernels.h"
#include "ops/shape/cuda/index_kernels.h"
#include "ops/shape/kernels.h"

// The kernels of a build with CUDA, a line for each family.

namespace norma::kernels {

constinit const ByDevice<ConvKernels> conv_kernels{.cpu = &conv_cpu, .cuda = &conv_cuda, .emulated = &conv_emulated};
constinit const ByDevice<IndexKernels> index_kernels{
    .cpu = &index_cpu, .cuda = &index_cuda, .emulated = &index_emulated};
constinit const ByDevice<LossKernels> loss_kernels{.cpu = &loss_cpu, .cuda = &loss_cuda, .emulated = &loss_emulated};
constinit const ByDevice<MatmulKernels> matmul_kernels{
    .cpu = &matmul_cpu, .cuda = &matmul_cuda, .emulated = &matmul_cpu};
constinit const ByDevice<MapNormKernels> map_norm_kernels{
    .cpu = &map_norm_cpu, .cuda = &map_norm_cuda, .emulated = &map_norm_emulated};
constinit const ByDevice<NormKernels> norm_kernels{.cpu = &norm_cpu, .cuda = &norm_cuda, .emulated = &norm_emulated};
constinit const ByDevice<OptimizerKernels> optimizer_kernels{
    .cpu = &optimizer_cpu, .cuda = &optimizer_cuda, .emulated = &optimizer_emulated};
constinit const ByDevice<PointwiseKernels> pointwise_kernels{
    .cpu = &pointwise_cpu, .cuda = &pointwise_cuda, .emulated = &pointwise_emulated};
constinit const ByDevice<PoolKernels> pool_kernels{.cpu = &pool_cpu, .cuda = &pool_cuda, .emulated = &pool_emulated};
constinit const ByDevice<RandomKernels> random_kernels{
    .cpu = &random_cpu, .cuda = &random_cuda, .emulated = &random_emulated};
constinit const ByDevice<ReduceKernels> reduce_kernels{
    .cpu = &reduce_cpu, .cuda = &reduce_cuda, .emulated = &reduce_emulated};

}  // namespace norma::kernels
