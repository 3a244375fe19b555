#include "base/error.h"
#include "core/cuda/caching_allocator.h"
#include "core/cuda/separate_blocks.h"

#include "error_text.h"

#include <doctest/doctest.h>

#include <map>
#include <random>
#include <string>
#include <vector>

// The allocator of CUDA devices on a device that is none: a range of numbers that nobody may follow.

namespace norma::test {
namespace {

constexpr size_t kMebi = size_t{1} << 20;

class FakeDevice final : public cuda::DeviceMemory {
 public:
  explicit FakeDevice(size_t bytes) : left_(bytes) {}

  void* take(size_t bytes) override {
    ++asked;
    if (bytes > left_) {
      return nullptr;
    }
    left_ -= bytes;
    void* pointer = reinterpret_cast<void*>(next_);
    next_ += bytes + kMebi;  // segments are never neighbours
    segments[pointer] = bytes;
    return pointer;
  }
  void give_back(void* pointer) override {
    check(!is_faulty, "cuda", "as after a fault");
    REQUIRE(segments.contains(pointer));
    left_ += segments.at(pointer);
    segments.erase(pointer);
  }
  [[nodiscard]] std::string text() const override { return "the device has less"; }

  std::map<void*, size_t> segments;
  int asked = 0;
  bool is_faulty = false;

 private:
  size_t left_;
  uintptr_t next_ = uintptr_t{1} << 40;
};

std::vector<size_t> sizes_of(const FakeDevice& device) {
  std::vector<size_t> sizes;
  for (const auto& [pointer, bytes] : device.segments) {
    sizes.push_back(bytes);
  }
  return sizes;
}

size_t distance(const void* from, const void* to) {
  return static_cast<size_t>(static_cast<const std::byte*>(to) - static_cast<const std::byte*>(from));
}

}  // namespace

TEST_CASE("cuda allocator: small blocks share segments of 2 MiB, large ones have their own") {
  FakeDevice device(1000 * kMebi);
  cuda::CachingAllocator memory(device);
  void* a = memory.allocate(1);
  void* b = memory.allocate(513);
  void* c = memory.allocate(512);
  CHECK(distance(a, b) == 512);
  CHECK(distance(b, c) == 1024);
  CHECK(sizes_of(device) == std::vector{2 * kMebi});
  (void)memory.allocate(kMebi);  // the largest small block
  CHECK(sizes_of(device) == std::vector{2 * kMebi});
  (void)memory.allocate(kMebi);  // 1 MiB - 2 KiB is left of the first segment
  CHECK(sizes_of(device) == std::vector{2 * kMebi, 2 * kMebi});
  (void)memory.allocate(kMebi + 1);
  CHECK(sizes_of(device).back() == 20 * kMebi);
  (void)memory.allocate(21 * kMebi + 1);
  CHECK(sizes_of(device).back() == 22 * kMebi);
  CHECK(memory.statistics().system_allocations == 4);
  CHECK(memory.statistics().reserved == static_cast<int64_t>(46 * kMebi));
  CHECK(memory.allocate(0) == nullptr);
  memory.deallocate(nullptr);
}

TEST_CASE("cuda allocator: what is freed is joined to its neighbours and handed out again") {
  FakeDevice device(1000 * kMebi);
  cuda::CachingAllocator memory(device);
  std::vector<void*> blocks;
  for (int i = 0; i < 4; ++i) {
    blocks.push_back(memory.allocate(4 * kMebi));
  }
  CHECK(sizes_of(device) == std::vector{20 * kMebi});
  // In an order that joins nothing, then what lies behind, then both sides.
  for (const size_t i : {1, 3, 0, 2}) {
    memory.deallocate(blocks[i]);
  }
  CHECK(memory.statistics().allocated == 0);
  void* all = memory.allocate(20 * kMebi);
  CHECK(all == blocks[0]);
  CHECK(device.asked == 1);
  memory.deallocate(all);
}

TEST_CASE("cuda allocator: the smallest piece that is large enough is taken, the lowest address first") {
  FakeDevice device(1000 * kMebi);
  cuda::CachingAllocator memory(device);
  std::vector<void*> blocks;
  for (const size_t mebi : {8, 2, 4, 2, 2}) {
    blocks.push_back(memory.allocate(mebi * kMebi));
  }
  memory.deallocate(blocks[0]);
  memory.deallocate(blocks[2]);
  CHECK(memory.allocate(3 * kMebi) == blocks[2]);
  CHECK(memory.allocate(3 * kMebi) == blocks[0]);
}

TEST_CASE("cuda allocator: a rest of less than 1 MiB stays with its large block") {
  FakeDevice device(1000 * kMebi);
  cuda::CachingAllocator memory(device);
  (void)memory.allocate(20 * kMebi - kMebi / 2);
  CHECK(memory.statistics().allocated == static_cast<int64_t>(20 * kMebi));
}

TEST_CASE("cuda allocator: free segments go back when asked, and before the device has no memory left") {
  FakeDevice device(64 * kMebi);
  cuda::CachingAllocator memory(device);
  void* small = memory.allocate(100);
  memory.deallocate(memory.allocate(40 * kMebi));
  CHECK(memory.statistics().reserved == static_cast<int64_t>(42 * kMebi));
  void* large = memory.allocate(60 * kMebi);  // only where the 40 go back
  CHECK(sizes_of(device) == std::vector{2 * kMebi, 60 * kMebi});
  memory.deallocate(large);
  memory.empty_cache();
  CHECK(sizes_of(device) == std::vector{2 * kMebi});
  memory.deallocate(small);
  memory.empty_cache();
  CHECK(device.segments.empty());
  CHECK(memory.statistics().reserved == 0);
  CHECK(memory.statistics().peak_reserved == static_cast<int64_t>(62 * kMebi));
  memory.reset_peak();
  CHECK(memory.statistics().peak_reserved == 0);
}

TEST_CASE("cuda allocator: the error says who has the memory") {
  FakeDevice device(64 * kMebi);
  cuda::CachingAllocator memory(device);
  (void)memory.allocate(30 * kMebi);
  memory.deallocate(memory.allocate(100));
  void* kept = memory.allocate(200);
  CHECK_THROWS_WITH_AS((void)memory.allocate(40 * kMebi),
                       "allocator: expected room for 40.0 MiB, got none: tensors hold 30.0 MiB, 2.0 MiB are kept for "
                       "later, and the device has less",
                       OutOfMemory);
  CHECK_THROWS_AS((void)memory.allocate(SIZE_MAX), OutOfMemory);
  CHECK_THROWS_AS((void)memory.allocate(size_t{PTRDIFF_MAX} + 1), OutOfMemory);
  memory.deallocate(kept);
  CHECK(error_of([&] { memory.deallocate(kept); }) ==
        "allocator: pointer: expected that of a block in use, got another");
}

TEST_CASE("cuda allocator: thousands of blocks never overlap, and all comes together again") {
  FakeDevice device(4000 * kMebi);
  cuda::CachingAllocator memory(device);
  std::mt19937 random(5);
  std::map<std::byte*, size_t> in_use;
  for (int step = 0; step < 4000; ++step) {
    if (in_use.size() > 40 || (!in_use.empty() && random() % 3 == 0)) {
      const auto block = std::next(in_use.begin(), static_cast<ptrdiff_t>(random() % in_use.size()));
      memory.deallocate(block->first);
      in_use.erase(block);
      continue;
    }
    const size_t bytes = 1 + random() % (random() % 2 == 0 ? 4000 : 16 * kMebi);
    auto* start = static_cast<std::byte*>(memory.allocate(bytes));
    const auto next = in_use.lower_bound(start);
    REQUIRE((next == in_use.end() || start + bytes <= next->first));
    REQUIRE((next == in_use.begin() || std::prev(next)->first + std::prev(next)->second <= start));
    const auto segment = std::prev(device.segments.upper_bound(start));
    REQUIRE(start + bytes <= static_cast<std::byte*>(segment->first) + segment->second);
    in_use.emplace(start, bytes);
  }
  for (const auto& [start, bytes] : in_use) {
    memory.deallocate(start);
  }
  CHECK(memory.statistics().allocated == 0);
  memory.empty_cache();
  CHECK(device.segments.empty());
}

TEST_CASE("cuda allocator: separate blocks are as large as was asked for, and go back at once") {
  FakeDevice device(1000);
  cuda::SeparateBlocks memory(device);
  CHECK(memory.allocate(0) == nullptr);
  memory.deallocate(nullptr);
  void* a = memory.allocate(1);
  void* b = memory.allocate(513);
  CHECK(sizes_of(device) == std::vector<size_t>{1, 513});
  CHECK(error_of([&] { (void)memory.allocate(487); }) ==
        "allocator: expected room for 487 bytes, got none: tensors hold 514 bytes, and the device has less");
  memory.deallocate(a);
  CHECK(sizes_of(device) == std::vector<size_t>{513});
  CHECK(memory.statistics().allocated == 513);
  CHECK(error_of([&] { memory.deallocate(a); }) == "allocator: pointer: expected that of a block in use, got another");
  memory.deallocate(b);
  CHECK(device.segments.empty());
  CHECK(memory.statistics().reserved == 0);
  CHECK(memory.statistics().peak_allocated == 514);
}

TEST_CASE("cuda allocator: after a fault of the device separate blocks are freed without an error") {
  FakeDevice device(1000);
  cuda::SeparateBlocks memory(device);
  void* a = memory.allocate(8);
  device.is_faulty = true;
  CHECK_NOTHROW(memory.deallocate(a));
  CHECK(memory.statistics().allocated == 0);
  CHECK_THROWS_AS(memory.deallocate(a), Error);  // a mistake of the caller is still one
}

}  // namespace norma::test
