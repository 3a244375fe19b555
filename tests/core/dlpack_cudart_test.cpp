#include "core/copy.h"
#include "core/dlpack.h"
#include "core/factory.h"
#include "core/tensor.h"
#include "cuda_devices.h"

#include <cuda_runtime.h>
#include <dlpack/dlpack.h>
#include <doctest/doctest.h>

#include <cstddef>
#include <vector>

// Memory that Norma shares with a library whose work is in CUDA's default stream, which Norma's own does not wait for.

using namespace norma;

namespace {

constexpr int64_t kCount = 1 << 20;
constexpr size_t kBytes = kCount * sizeof(int32_t);
constexpr int kTries = 8;  // whether the streams meet is chance

/// Calls f(device) where the tests of CUDA run on a GPU, or on the virtual one.
template <class F>
void on_gpu(F&& f) {
  const DefaultDeviceGuard guard(kCpu);
  for (const Device device : test::cuda_devices()) {
    if (device.type == DeviceType::cuda) {
      check_available("test", device);
      const DefaultDeviceGuard on_device(device);
      for (int i = 0; i < kTries; ++i) {
        f();
      }
    }
  }
}

/// int32 numbers of another library. Once they are given back, the library fills them with 0xFF.
struct Foreign {
  void* memory = nullptr;
  std::vector<int64_t> sizes{kCount};
  int released = 0;
  DLManagedTensor managed{};

  Foreign() {
    REQUIRE(cudaMalloc(&memory, kBytes) == cudaSuccess);
    fill(0);
    REQUIRE(cudaStreamSynchronize(cudaStreamLegacy) == cudaSuccess);
    managed.dl_tensor = {.data = memory,
                         .device = {kDLCUDA, 0},
                         .ndim = 1,
                         .dtype = {kDLInt, 32, 1},
                         .shape = sizes.data(),
                         .strides = nullptr,
                         .byte_offset = 0};
    managed.manager_ctx = this;
    managed.deleter = [](DLManagedTensor* self) {
      auto* const foreign = static_cast<Foreign*>(self->manager_ctx);
      ++foreign->released;
      foreign->fill(0xFF);
      CHECK(cudaStreamSynchronize(cudaStreamLegacy) == cudaSuccess);
    };
  }
  ~Foreign() { (void)cudaFree(memory); }
  Foreign(const Foreign&) = delete;
  Foreign& operator=(const Foreign&) = delete;

  void fill(int byte) const { REQUIRE(cudaMemsetAsync(memory, byte, kBytes, cudaStreamLegacy) == cudaSuccess); }
};

int32_t first_of(const Tensor& x) {
  return x.to_vector<int32_t>().front();
}

}  // namespace

TEST_CASE("cuda dlpack: foreign memory is read behind the work of the default stream") {
  on_gpu([] {
    Foreign foreign;
    foreign.fill(1);
    const Tensor x = from_dlpack(&foreign.managed);
    CHECK(first_of(x) == 0x01010101);
  });
}

TEST_CASE("cuda dlpack: foreign memory is given back when the kernels that read it are done") {
  on_gpu([] {
    Foreign foreign;
    foreign.fill(1);
    REQUIRE(cudaStreamSynchronize(cudaStreamLegacy) == cudaSuccess);
    Tensor y;
    {
      const Tensor x = from_dlpack(&foreign.managed);
      y = copy_of(x);
    }
    CHECK(foreign.released == 1);
    CHECK(first_of(y) == 0x01010101);
  });
}

TEST_CASE("cuda dlpack: memory is Norma's again when the default stream has read it") {
  on_gpu([] {
    void* taken = nullptr;
    REQUIRE(cudaMalloc(&taken, kBytes) == cudaSuccess);
    DLManagedTensor* const managed = to_dlpack(full({kCount}, 7, {.dtype = DType::int32}));
    REQUIRE(cudaMemcpyAsync(taken, managed->dl_tensor.data, kBytes, cudaMemcpyDeviceToDevice, cudaStreamLegacy) ==
            cudaSuccess);
    managed->deleter(managed);
    const Tensor next = full({kCount}, 8, {.dtype = DType::int32});  // may get the memory
    CHECK(first_of(next) == 8);
    std::vector<int32_t> numbers(kCount);
    REQUIRE(cudaMemcpy(numbers.data(), taken, kBytes, cudaMemcpyDeviceToHost) == cudaSuccess);
    CHECK(numbers.front() == 7);
    CHECK(numbers.back() == 7);
    REQUIRE(cudaFree(taken) == cudaSuccess);
  });
}
