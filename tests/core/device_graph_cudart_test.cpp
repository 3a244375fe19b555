#include "core/allocator.h"
#include "core/device_graph.h"
#include "core/factory.h"
#include "core/tensor.h"
#include "cuda_devices.h"

#include <cuda_runtime.h>
#include <doctest/doctest.h>

#include <vector>

using namespace norma;

TEST_CASE("cuda graph: what CUDA itself takes for a graph fits into memory that the recorded work has freed") {
  for (const Device device : test::devices_with_graphs()) {
    const DefaultDeviceGuard guard(device);
    const Tensor x = ones({3});
    fill_(x, 1);
    Tensors all;  // of the device's memory
    for (int64_t bytes = int64_t{1} << 37; bytes >= 1 << 20; bytes /= 2) {
      try {
        for (;;) {
          all.push_back(empty({bytes}, {.dtype = DType::uint8}));
        }
      } catch (const OutOfMemory&) {
      }
    }
    const auto graph = make_device_graph(device);
    graph->record([&] {
      all.clear();
      fill_(x, 2);
    });
    CHECK(cudaGetLastError() == cudaSuccess);  // of the first try
    graph->launch();
    CHECK(x.to_vector<float>() == std::vector<float>{2, 2, 2});
    allocator(device).empty_cache();
  }
}
