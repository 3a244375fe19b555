#include "core/allocator.h"
#include "core/base_ops.h"
#include "core/copy.h"
#include "core/device_graph.h"
#include "core/factory.h"
#include "core/tensor.h"
#include "cuda_devices.h"
#include "error_text.h"

#include <doctest/doctest.h>

#include <vector>

// Work that is recorded once and launched many times: on a GPU, or on the virtual one.

using namespace norma;
using test::devices_with_graphs;
using test::error_of;

namespace {

using Numbers = std::vector<double>;

Tensor on_host(const Numbers& values) {
  return from_vector(values, {static_cast<int64_t>(values.size())}, {.dtype = DType::float64, .device = kCpu});
}

}  // namespace

TEST_CASE("graphs: devices whose work is done at once have none") {
  CHECK(make_device_graph(kCpu) == nullptr);
  CHECK(make_device_graph(kCudaEmulated) == nullptr);
}

TEST_CASE("cuda graph: a recording is done at each launch, with what lies at its addresses then") {
  for (const Device device : devices_with_graphs()) {
    const DefaultDeviceGuard guard(device);
    const Tensor input = to_device(on_host({1, 2}), device);
    const Tensor sum = zeros({2}, {.dtype = DType::float64});
    Tensor doubled;
    const auto graph = make_device_graph(device);
    CHECK(error_of([&] { graph->launch(); }) == "cuda graph: expected recorded work, got none");
    graph->record([&] {
      const Tensor constant = to_device(on_host({10, 10}), device);  // dies here
      doubled = empty_like(sum);
      copy_all_into({input}, {doubled});
      accumulate_all_into({doubled, sum}, {input, constant});
    });
    CHECK(graph->size() > 3);
    CHECK(sum.to_vector<double>() == Numbers{0, 0});
    graph->launch();
    CHECK(doubled.to_vector<double>() == Numbers{2, 4});
    CHECK(sum.to_vector<double>() == Numbers{10, 10});
    copy_from_host(on_host({5, -1}), input);
    graph->launch();
    graph->launch();
    CHECK(doubled.to_vector<double>() == Numbers{10, -2});
    CHECK(sum.to_vector<double>() == Numbers{30, 30});
  }
}

TEST_CASE("cuda graph: work that waits for the device is refused by name, and the graph and the stream serve again") {
  for (const Device device : devices_with_graphs()) {
    const DefaultDeviceGuard guard(device);
    const Tensor x = ones({3});
    const auto graph = make_device_graph(device);
    CHECK(error_of([&] { graph->record([&] { (void)x.to_vector<float>(); }); }) ==
          "cuda graph: expected work that asks nothing of the host, got a copy to it");
    CHECK(error_of([&] { graph->record([&] { synchronize(device); }); }) ==
          "cuda graph: expected work that asks nothing of the host, got a wait");
    CHECK(error_of([&] { graph->launch(); }) == "cuda graph: expected recorded work, got none");
    graph->record([&] { fill_(x, 2); });
    CHECK(x.to_vector<float>() == std::vector<float>{1, 1, 1});
    graph->launch();
    CHECK(x.to_vector<float>() == std::vector<float>{2, 2, 2});
  }
}

TEST_CASE("cuda graph: nobody else gets its memory, until it is gone") {
  for (const Device device : devices_with_graphs()) {
    const DefaultDeviceGuard guard(device);
    constexpr int64_t kCount = 3 << 20;
    Tensor result;
    auto graph = make_device_graph(device);
    graph->record([&] {
      const Tensor passing = full({kCount}, 7);
      result = copy_of(passing);
    });
    Tensors others;
    for (int i = 0; i < 4; ++i) {
      others.push_back(full({kCount}, i));
    }
    graph->launch();
    for (int i = 0; i < 4; ++i) {
      const std::vector<float> values = others[static_cast<size_t>(i)].to_vector<float>();
      CHECK(values.front() == i);
      CHECK(values.back() == i);
    }
    CHECK(result.to_vector<float>().back() == 7);
    const int64_t reserved = allocator(device).statistics().reserved;
    graph.reset();
    CHECK(result.to_vector<float>().back() == 7);
    result = {};
    others.clear();
    allocator(device).empty_cache();
    CHECK(allocator(device).statistics().reserved < reserved - 2 * kCount * 4);
  }
}
