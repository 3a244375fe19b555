#include "virtual_gpu/test_kernels.h"

namespace virtual_gpu::test {
namespace {

constexpr int kThreads = 128;

__global__ void __launch_bounds__(kThreads) add_value(float* x, float value, int count) {
  __shared__ float values[kThreads];
  values[threadIdx.x] = value;
  __syncthreads();
  const int i = blockIdx.x * kThreads + threadIdx.x;
  if (i < count) {
    x[i] += values[kThreads - 1 - threadIdx.x];
  }
}

__global__ void reverse(float* y, const float* x) {
  extern __shared__ float kept[];
  kept[threadIdx.x] = x[threadIdx.x];
  __syncthreads();
  y[threadIdx.x] = kept[blockDim.x - 1 - threadIdx.x];
}

__global__ void do_nothing() {}

}  // namespace

void add(float* x, float value, int count, cudaStream_t stream) {
  add_value<<<(count + kThreads - 1) / kThreads, kThreads, 0, stream>>>(x, value, count);
}
void reverse_by_shared(float* y, const float* x, int count, cudaStream_t stream) {
  reverse<<<1, count, count * sizeof(float), stream>>>(y, x);
}
void nothing(dim3 grid, dim3 block, size_t shared_bytes) {
  do_nothing<<<grid, block, shared_bytes>>>();
}
const void* add_kernel() {
  return reinterpret_cast<const void*>(add_value);
}

}  // namespace virtual_gpu::test
