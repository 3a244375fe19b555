#include "core/tensor.h"

#include "core/allocator.h"
#include "core/copy.h"
#include "core/factory.h"
#include "core/strided_loop.h"
#include "cuda_devices.h"
#include "tests/support.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <numeric>

using namespace norma;
using test::max_difference;

TEST_CASE("sizes: hold at most eight axes") {
  Sizes sizes{1, 2, 3};
  sizes.insert(1, 9);
  sizes.erase(0);
  CHECK(sizes == Sizes{9, 2, 3});
  CHECK(sizes.numel() == 54);
  CHECK(Sizes{}.numel() == 1);
  CHECK(to_string(sizes) == "[9, 2, 3]");
  CHECK_THROWS_WITH_AS((Sizes{1, 2, 3, 4, 5, 6, 7, 8, 9}), "sizes: expected at most 8 axes, got 9", Error);
}

TEST_CASE("axes: counted from either end, each once") {
  CHECK(normalize_axes("sum", {-1, 0}, 3) == Axes{0, 2});
  CHECK(normalize_axes("sum", {}, 3) == Axes{0, 1, 2});
  CHECK_THROWS_WITH_AS(normalize_axes("sum", {1, -2}, 3), "sum: axes: expected each axis once, got [1, -2]", Error);
  CHECK_THROWS_WITH_AS(normalize_axis("sum", 3, 3), "sum: axis: expected a value in [-3, 3), got 3", Error);
}

TEST_CASE("broadcast: sizes follow NumPy's rule") {
  CHECK(broadcast_sizes("add", {3, 1}, {2, 1, 4}) == Sizes{2, 3, 4});
  CHECK(broadcast_sizes("add", {}, {0, 2}) == Sizes{0, 2});
  CHECK_THROWS_WITH_AS(broadcast_sizes("add", {3}, {4}), "add: expected sizes that broadcast, got [3] and [4]", Error);
}

TEST_CASE("tensor: views share storage and version") {
  const Tensor x = arange(24, DType::float32);
  const Tensor y = alias(x, {2, 3}, {12, 2}, 1);
  CHECK(y.to_vector<double>() == std::vector<double>{1, 3, 5, 13, 15, 17});
  const int64_t version = x.version();
  fill_(y, 7);
  CHECK(x.version() == version + 1);
  CHECK(x.to_vector<double>()[13] == 7);
  CHECK(x.to_vector<double>()[12] == 12);
  CHECK_THROWS_WITH_AS(alias(x, {2, 3}, {12, 6}, 0),
                       "tensor: expected a view inside a storage of 24 elements, got offset 0, sizes [2, 3], strides "
                       "[12, 6]",
                       Error);
}

TEST_CASE("fill_: integers take the numbers that they hold") {
  const auto filled = [](double value, DType dtype) { return full({}, value, {.dtype = dtype}).item<int64_t>(); };
  CHECK(filled(-2.7, DType::int64) == -2);
  CHECK(filled(-0x1p63, DType::int64) == std::numeric_limits<int64_t>::min());
  CHECK(filled(0x1p31 - 0.5, DType::int32) == std::numeric_limits<int32_t>::max());
  CHECK(filled(255.5, DType::uint8) == 255);
  CHECK_THROWS_WITH_AS(filled(300, DType::uint8), "fill_: value: expected a number in [0, 256) for uint8, got 300",
                       Error);
  for (const DType dtype : {DType::int64, DType::int32, DType::uint8}) {
    CHECK_THROWS_AS(filled(std::numeric_limits<double>::quiet_NaN(), dtype), Error);
    CHECK_THROWS_AS(filled(0x1p63, dtype), Error);
    CHECK_THROWS_AS(filled(-0x1p64, dtype), Error);
  }
  CHECK(full({}, std::numeric_limits<double>::quiet_NaN(), {.dtype = DType::boolean}).item<bool>());
}

TEST_CASE("tensor: errors name what was expected and what came") {
  const Tensor x = zeros({2, 3});
  CHECK_THROWS_WITH_AS(Tensor().sizes(), "tensor: expected a tensor, got none", Error);
  CHECK_THROWS_WITH_AS(x.data<double>(), "data: expected dtype float64, got float32", Error);
  CHECK_THROWS_WITH_AS(x.item<float>(), "item: expected a tensor with one element, got sizes [2, 3]", Error);
  CHECK_THROWS_WITH_AS(check_rank("conv2d", "x", x, 4), "conv2d: x: expected rank 4, got rank 2 (sizes [2, 3])", Error);
  CHECK_THROWS_WITH_AS(check_sizes("norm", "bias", x, {3}), "norm: bias: expected sizes [3], got [2, 3]", Error);
  CHECK_THROWS_WITH_AS(from_vector<float>({1, 2}, {3}), "from_vector: values: expected 3 for sizes [3], got 2", Error);
  const std::string refused = test::error_of([] { empty({2}, {.device = {DeviceType::cuda, 0}}); });
  CHECK_MESSAGE(test::is_refusal_of_cuda(refused, "empty"), refused);
  CHECK_THROWS_WITH_AS(device_from_string("tpu"), "device: expected cpu, cuda, cuda:N or cuda-emulated, got 'tpu'",
                       Error);
  CHECK(to_string(device_from_string("cuda:3")) == "cuda:3");
}

TEST_CASE("tensor: prints its values and layout") {
  CHECK(to_string(from_vector<float>({1, 2.5, -3, 4}, {2, 2})) == "[[1, 2.5],\n [-3, 4]]\nfloat32 [2, 2]");
  CHECK(to_string(arange(9)) == "[0, 1, 2, …, 6, 7, 8]\nint64 [9]");
  CHECK(describe(zeros({2, 3, 4, 5}, {.format = MemoryFormat::channels_last})) == "float32 [2, 3, 4, 5] channels_last");
}

TEST_CASE("copy: any strides to any strides") {
  const Tensor x = test::random_tensor({3, 37, 5, 41}, 1);
  for (const test::Layout from : test::kLayouts) {
    const Tensor source = test::in_layout(x, from);
    for (const MemoryFormat format : {MemoryFormat::contiguous, MemoryFormat::channels_last, MemoryFormat::preserve}) {
      const Tensor y = copy_of(source, format);
      CHECK(max_difference(y, x) == 0);
      if (format != MemoryFormat::preserve) {
        CHECK(y.strides() == strides_for(x.sizes(), format));
      }
    }
  }
  const Tensor row = from_vector<double>({1, 2, 3}, {3});
  const Tensor target = zeros({2, 3}, {.dtype = DType::float64});
  copy_into(row, target);
  CHECK(target.to_vector<double>() == std::vector<double>{1, 2, 3, 1, 2, 3});
  CHECK_THROWS_WITH_AS(copy_into(target, row), "copy_into: src: expected sizes that broadcast to [3], got [2, 3]",
                       Error);
}

TEST_CASE("strided loop: merges what is one run of memory") {
  const Sizes sizes{2, 3, 4, 5};
  const auto same = make_strided_loop<2>(sizes, {contiguous_strides(sizes), contiguous_strides(sizes)});
  CHECK(same.sizes == Sizes{120});
  const auto last = make_strided_loop<2>(sizes, {channels_last_strides(sizes), channels_last_strides(sizes)});
  CHECK(last.sizes == Sizes{120});
  const auto mixed = make_strided_loop<2>(sizes, {contiguous_strides(sizes), channels_last_strides(sizes)});
  CHECK(mixed.sizes == Sizes{2, 3, 20});
  const auto channels = make_strided_loop<2>(sizes, {contiguous_strides(sizes), Strides{0, 1, 0, 0}});
  CHECK(channels.sizes == Sizes{2, 3, 20});
}

TEST_CASE("strided loop: visits every element once, for any number of threads") {
  const Sizes sizes{7, 11, 13};
  const int before = num_threads();
  for (const int threads : {1, 2, 3}) {
    set_num_threads(threads);
    std::vector<int> visits(7 * 11 * 13 * 2);
    const auto loop = make_strided_loop<1>(sizes, {Strides{2, 14, 14 * 11}});
    for_each_run(
        loop,
        [&](const auto& offsets, int64_t count, const auto& strides) {
          for (int64_t i = 0; i < count; ++i) {
            ++visits[static_cast<size_t>(offsets[0] + i * strides[0])];
          }
        },
        /* grain= */ 10);
    CHECK(std::accumulate(visits.begin(), visits.end(), 0) == 7 * 11 * 13);
    CHECK(*std::max_element(visits.begin(), visits.end()) == 1);
  }
  set_num_threads(before);
}

TEST_CASE("parallel_for: passes on an exception") {
  const int before = num_threads();
  set_num_threads(2);
  CHECK_THROWS_WITH_AS(parallel_for(0, 1000, 1, [](int64_t, int64_t) { fail("loop", "broke"); }), "loop: broke", Error);
  set_num_threads(before);
}

TEST_CASE("allocator: aligned, cached and counted") {
  Allocator& cpu = allocator(kCpu);
  cpu.empty_cache();
  const AllocatorStatistics start = cpu.statistics();
  void* first = cpu.allocate(100000);
  CHECK(reinterpret_cast<uintptr_t>(first) % kAlignment == 0);
  CHECK(cpu.statistics().allocated >= start.allocated + 100000);
  cpu.deallocate(first);
  CHECK(cpu.statistics().allocated == start.allocated);
  CHECK(cpu.statistics().reserved > start.reserved);
  const int64_t from_system = cpu.statistics().system_allocations;
  void* second = cpu.allocate(99000);
  CHECK(second == first);
  CHECK(cpu.statistics().system_allocations == from_system);
  cpu.deallocate(second);
  cpu.reset_peak();
  CHECK(cpu.statistics().peak_allocated == start.allocated);
  cpu.empty_cache();
  CHECK(cpu.statistics().reserved == start.reserved);
  CHECK(cpu.allocate(0) == nullptr);
}
