#pragma once

#include <cstddef>

#include <cuda_runtime_api.h>

// Launches of the kernels in test_kernels.cu, as nvcc compiles them.

namespace virtual_gpu::test {

/// x[i] += value for `count` elements.
void add(float* x, float value, int count, cudaStream_t stream = nullptr);
/// y[i] = x[count - 1 - i] by one block, through dynamic shared memory.
void reverse_by_shared(float* y, const float* x, int count, cudaStream_t stream = nullptr);
/// One block of `threads`, with `shared_bytes` of dynamic shared memory, that does nothing.
void nothing(dim3 grid, dim3 block, size_t shared_bytes = 0);
/// The host's function of `add`: __launch_bounds__(128) and 512 bytes of static shared memory.
const void* add_kernel();

}  // namespace virtual_gpu::test
