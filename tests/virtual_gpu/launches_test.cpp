#include "virtual_gpu/launches.h"
#include "virtual_gpu/device.h"
#include "virtual_gpu/fatbin.h"
#include "virtual_gpu/kernels.h"
#include "virtual_gpu/test_device.h"
#include "virtual_gpu/test_kernels.h"

#include <algorithm>
#include <cstring>

// Kernels that nvcc compiled, from the fat binary of this program to their launch.

namespace virtual_gpu::test {
namespace {

using Floats = std::vector<float>;

std::vector<FatEntry> entries_of_this_program() {
  return entries_of(kernels().find(add_kernel())->binary->blob);
}

TEST_CASE("fat binary: PTX and machine code of the kernels come out of what nvcc wrote") {
  const std::vector<FatEntry> entries = entries_of_this_program();
  const auto ptx = std::find_if(entries.begin(), entries.end(),
                                [](const FatEntry& entry) { return entry.kind == FatEntry::Kind::kPtx; });
  REQUIRE(ptx != entries.end());
  const std::string text(reinterpret_cast<const char*>(ptx->bytes.data()), ptx->bytes.size());
  CHECK(text.find(".version") != std::string::npos);
  CHECK(text.find("bar.sync") != std::string::npos);
  CHECK(text.find(kernels().find(add_kernel())->mangled + "(") != std::string::npos);
  CHECK(std::any_of(entries.begin(), entries.end(),
                    [](const FatEntry& entry) { return entry.kind == FatEntry::Kind::kMachineCode; }));
}

TEST_CASE("fat binary: what is damaged is refused") {
  const std::byte* const blob = kernels().find(add_kernel())->binary->blob;
  uint64_t bytes = 0;
  std::memcpy(&bytes, blob + 8, sizeof bytes);
  const std::vector<std::byte> good(blob, blob + 16 + bytes);
  const auto fault_of = [&](size_t at, std::byte value) -> std::string {
    std::vector<std::byte> bad = good;
    bad[at] = value;
    try {
      (void)entries_of(bad.data());
    } catch (const Fault& fault) {
      CHECK(fault.kind() == Fault::Kind::kUnsupported);
      return fault.what();
    }
    return "no fault";
  };
  CHECK(fault_of(0, std::byte{0}) == "fat binary: expected 0xba55ed50 at its begin, got 0xba55ed00");
  CHECK(fault_of(16 + 4, std::byte{1}).starts_with("fat binary: the entry at 16 has 1 + "));
  CHECK(fault_of(16 + 14, std::byte{1}).ends_with("more than there are"));
  CHECK(fault_of(16 + 0x29, std::byte{0x20}).starts_with("fat binary: an entry is packed by LZ4"));
}

TEST_CASE("machine code: registers, shared memory and launch bounds of a kernel") {
  const std::string name = kernels().find(add_kernel())->mangled;
  for (const FatEntry& entry : entries_of_this_program()) {
    if (entry.kind == FatEntry::Kind::kMachineCode) {
      const auto resources = resources_of(entry.bytes);
      REQUIRE(resources.contains(name));
      CHECK(resources.at(name).registers >= 8);
      CHECK(resources.at(name).registers <= 32);
      CHECK(resources.at(name).static_shared_bytes == 512);
      CHECK(resources.at(name).max_threads == 128);
    }
  }
  CHECK_THROWS_WITH_AS((void)resources_of(std::vector<std::byte>(100)),
                       "machine code: expected an ELF file, got something else", Fault);
}

TEST_CASE("launches: a kernel runs with its arguments, late, and in its stream's order") {
  const Fresh fresh;
  const DeviceFloats x(Floats(300, 1.0F));
  add(x.get(), 2.5F, 299);
  add(x.get(), -1.0F, 1);
  CHECK(cudaGetLastError() == cudaSuccess);
  Floats expected(300, 3.5F);
  expected[0] = 2.5F;
  expected[299] = 1.0F;
  CHECK(x.values() == expected);
}

TEST_CASE("launches: dynamic shared memory comes from the launch") {
  const Fresh fresh;
  const DeviceFloats x(Floats{1, 2, 3, 4});
  const DeviceFloats y(4);
  reverse_by_shared(y.get(), x.get(), 4);
  CHECK(y.values() == Floats{4, 3, 2, 1});
}

TEST_CASE("launches: two streams without an event between them are seen in both orders") {
  const Fresh fresh;
  const OwnStream a;
  const OwnStream b;
  bool first = false;
  bool second = false;
  const DeviceFloats x(Floats{0});
  REQUIRE(cudaDeviceSynchronize() == cudaSuccess);
  for (int i = 0; i < 40; ++i) {
    REQUIRE(cudaMemsetAsync(x.get(), 0, 4, a.get()) == cudaSuccess);
    add(x.get(), 1, 1, b.get());
    REQUIRE(cudaDeviceSynchronize() == cudaSuccess);
    (x.values()[0] == 0 ? first : second) = true;
  }
  CHECK(first);
  CHECK(second);
}

TEST_CASE("launches: a kernel that uses freed memory is a fault that names it") {
  const Fresh fresh;
  float* memory = nullptr;
  REQUIRE(cudaMalloc(reinterpret_cast<void**>(&memory), 64) == cudaSuccess);
  REQUIRE(cudaMemset(memory, 0, 64) == cudaSuccess);
  REQUIRE(cudaFree(memory) == cudaSuccess);
  add(memory, 1, 1);
  CHECK(cudaGetLastError() == cudaSuccess);
  CHECK(cudaDeviceSynchronize() == cudaErrorIllegalAddress);
  CHECK_MESSAGE(fresh.fault().find("add_value(float*, float, int)<<<(1, 1, 1), (128, 1, 1), 0>>>") != std::string::npos,
                fresh.fault());
  CHECK_MESSAGE(fresh.fault().find("freed") != std::string::npos, fresh.fault());
}

TEST_CASE("launches: shapes and resources that no GPU has are refused at once") {
  const Fresh fresh;
  const auto error_of_launch = [](dim3 grid, dim3 block, size_t shared) {
    nothing(grid, block, shared);
    return cudaGetLastError();
  };
  CHECK(error_of_launch(1, 1024, 0) == cudaSuccess);
  CHECK(error_of_launch(1, 1025, 0) == cudaErrorInvalidConfiguration);
  CHECK(error_of_launch(1, dim3(32, 33), 0) == cudaErrorInvalidConfiguration);
  CHECK(error_of_launch(1, dim3(1, 1, 65), 0) == cudaErrorInvalidConfiguration);
  CHECK(error_of_launch(0, 32, 0) == cudaErrorInvalidConfiguration);
  CHECK(error_of_launch(dim3(1, 65536), 32, 0) == cudaErrorInvalidConfiguration);
  CHECK(error_of_launch(1, 32, 48 << 10) == cudaSuccess);
  CHECK(error_of_launch(1, 32, (48 << 10) + 1) == cudaErrorInvalidValue);
  CHECK(cudaDeviceSynchronize() == cudaSuccess);
}

TEST_CASE("launches: more shared memory is there for a kernel that asks for it") {
  const Fresh fresh;
  const int most = 232448 - 512;
  CHECK(cudaFuncSetAttribute(add_kernel(), cudaFuncAttributeMaxDynamicSharedMemorySize, most + 1) ==
        cudaErrorInvalidValue);
  CHECK(cudaFuncSetAttribute(add_kernel(), cudaFuncAttributeMaxDynamicSharedMemorySize, most) == cudaSuccess);
  cudaFuncAttributes attributes{};
  REQUIRE(cudaFuncGetAttributes(&attributes, add_kernel()) == cudaSuccess);
  CHECK(attributes.maxDynamicSharedSizeBytes == most);
  CHECK(attributes.sharedSizeBytes == 512);
  CHECK(attributes.maxThreadsPerBlock == 128);
  CHECK(attributes.numRegs > 0);
}

TEST_CASE("launches: blocks that a multiprocessor holds") {
  const Fresh fresh;
  const auto blocks = [](int threads, size_t shared) {
    int result = -1;
    CHECK(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&result, add_kernel(), threads, shared) == cudaSuccess);
    return result;
  };
  CHECK(blocks(128, 0) == 16);  // 2048 threads
  CHECK(blocks(32, 0) == 32);   // the most
  // 228 KiB: each block takes what it asks for, its 512 bytes, and 1 KiB of CUDA's own.
  CHECK(blocks(128, 40 << 10) == 5);
  int other = 0;
  CHECK(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&other, &other, 32, 0) == cudaErrorInvalidDeviceFunction);
}

TEST_CASE("launches: code for another GPU, or no memory for code, fails the first launch") {
  const Fresh fresh;
  Kernels own;
  FatBinary& binary = own.add_binary(kernels().find(add_kernel())->binary->blob);
  own.add_kernel(binary, &own, kernels().find(add_kernel())->mangled.c_str());
  Properties gpu = properties_of("h200");
  Memory none(16);
  Memory memory(64 << 20);
  gpu.major = 5;
  CHECK(own.load(*own.find(&own), gpu, memory) == Kernels::Load::kNoImage);
  gpu.major = 9;
  CHECK(own.load(*own.find(&own), gpu, none) == Kernels::Load::kNoMemory);
  CHECK(own.load(*own.find(&own), gpu, memory) == Kernels::Load::kDone);
  CHECK(memory.available() < memory.capacity());
  CHECK(own.load(*own.find(&own), gpu, none) == Kernels::Load::kDone);  // it is there now
}

TEST_CASE("counts: launches are counted by kernel, and those that still wait are done first") {
  const Fresh fresh;
  const auto launches = [] {
    for (const KernelCount& count : counts()) {
      if (count.kernel.find("add_value(float*, float, int)") != std::string::npos) {
        return count.counters.launches;
      }
    }
    return uint64_t{0};
  };
  const DeviceFloats x(Floats{1});
  const uint64_t before = launches();
  add(x.get(), 1, 1);
  add(x.get(), 1, 1);
  CHECK(launches() == before + 2);
}

}  // namespace
}  // namespace virtual_gpu::test
