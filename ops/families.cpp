#include "ops/attention/attention.h"
#include "ops/attention/kernels.h"
#include "ops/conv/conv.h"
#include "ops/conv/kernels.h"
#include "ops/image/kernels.h"
#include "ops/loss/kernels.h"
#include "ops/loss/loss.h"
#include "ops/map_norm/kernels.h"
#include "ops/map_norm/norms.h"
#include "ops/matmul/kernels.h"
#include "ops/matmul/matmul.h"
#include "ops/norm/kernels.h"
#include "ops/norm/norm.h"
#include "ops/optimizer/kernels.h"
#include "ops/pointwise/kernels.h"
#include "ops/pointwise/pointwise.h"
#include "ops/pool/kernels.h"
#include "ops/pool/pool.h"
#include "ops/random/dropout.h"
#include "ops/random/kernels.h"
#include "ops/reduce/kernels.h"
#include "ops/reduce/reduce.h"
#include "ops/shape/kernels.h"

#include <tuple>

// The list of the families of ops, with the kernels of each device.

namespace norma::kernels {

constinit const ByDevice<AttentionKernels> attention_kernels{
    .cpu = &attention_cpu, .cuda = NORMA_IN_CUDA(attention_cuda), .emulated = NORMA_IN_EMULATED(attention_emulated)};
constinit const ByDevice<ConvKernels> conv_kernels{
    .cpu = &conv_cpu, .cuda = NORMA_IN_CUDA(conv_cuda), .emulated = NORMA_IN_EMULATED(conv_emulated)};
constinit const ByDevice<ImageKernels> image_kernels{
    .cpu = &image_cpu, .cuda = NORMA_IN_CUDA(image_cuda), .emulated = NORMA_IN_EMULATED(image_emulated)};
constinit const ByDevice<IndexKernels> index_kernels{
    .cpu = &index_cpu, .cuda = NORMA_IN_CUDA(index_cuda), .emulated = NORMA_IN_EMULATED(index_emulated)};
constinit const ByDevice<LossKernels> loss_kernels{
    .cpu = &loss_cpu, .cuda = NORMA_IN_CUDA(loss_cuda), .emulated = NORMA_IN_EMULATED(loss_emulated)};
constinit const ByDevice<MatmulKernels> matmul_kernels{
    .cpu = &matmul_cpu, .cuda = NORMA_IN_CUDA(matmul_cuda), .emulated = NORMA_IN_EMULATED(matmul_cpu)};
constinit const ByDevice<MapNormKernels> map_norm_kernels{
    .cpu = &map_norm_cpu, .cuda = NORMA_IN_CUDA(map_norm_cuda), .emulated = NORMA_IN_EMULATED(map_norm_emulated)};
constinit const ByDevice<NormKernels> norm_kernels{
    .cpu = &norm_cpu, .cuda = NORMA_IN_CUDA(norm_cuda), .emulated = NORMA_IN_EMULATED(norm_emulated)};
constinit const ByDevice<OptimizerKernels> optimizer_kernels{
    .cpu = &optimizer_cpu, .cuda = NORMA_IN_CUDA(optimizer_cuda), .emulated = NORMA_IN_EMULATED(optimizer_emulated)};
constinit const ByDevice<PointwiseKernels> pointwise_kernels{
    .cpu = &pointwise_cpu, .cuda = NORMA_IN_CUDA(pointwise_cuda), .emulated = NORMA_IN_EMULATED(pointwise_emulated)};
constinit const ByDevice<PoolKernels> pool_kernels{
    .cpu = &pool_cpu, .cuda = NORMA_IN_CUDA(pool_cuda), .emulated = NORMA_IN_EMULATED(pool_emulated)};
constinit const ByDevice<RandomKernels> random_kernels{
    .cpu = &random_cpu, .cuda = NORMA_IN_CUDA(random_cuda), .emulated = NORMA_IN_EMULATED(random_emulated)};
constinit const ByDevice<ReduceKernels> reduce_kernels{
    .cpu = &reduce_cpu, .cuda = NORMA_IN_CUDA(reduce_cuda), .emulated = NORMA_IN_EMULATED(reduce_emulated)};

}  // namespace norma::kernels

namespace norma {

// A cast policy may name ops that the program does not call. So this file, which every program with ops links, links
// each file that names some, by a function of it.
[[gnu::used]] static const std::tuple kFilesThatNameOps{&scaled_dot_product_attention,
                                                        &conv2d,
                                                        &cross_entropy,
                                                        &seed_norm,
                                                        &linear,
                                                        &matmul,
                                                        &batch_norm,
                                                        &layer_norm,
                                                        &maximum,
                                                        &neg,
                                                        &max_pool2d,
                                                        &dropout,
                                                        &prod};

}  // namespace norma
