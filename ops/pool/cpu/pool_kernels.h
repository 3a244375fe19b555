#pragma once

#include "ops/pool/kernels.h"

// The CPU kernels behind PoolKernels.

namespace norma::kernels::cpu {

// max_pool.cpp
void max_pool(const PoolCase& pool, const void* x, void* y, int32_t* index);
void max_pool_gradient(const PoolCase& pool, const void* dy, const int32_t* index, void* dx);
void max_pool_pick(const PoolCase& pool, const void* x, const int32_t* index, void* y);
// average_pool.cpp
void average_pool(const PoolCase& pool, const void* x, void* y);
void average_pool_gradient(const PoolCase& pool, const void* dy, void* dx);

}  // namespace norma::kernels::cpu
