#include "core/cpu/arena.h"

#include "base/error.h"
#include "core/allocator.h"

#include <doctest/doctest.h>

#include <cstring>
#include <vector>

namespace norma::test {
namespace {

constexpr size_t kUnit = 4096;

std::byte* bytes(void* pointer) {
  return static_cast<std::byte*>(pointer);
}

}  // namespace

TEST_CASE("arena: blocks follow each other, and the smallest hole that fits is filled first") {
  Arena arena(64 * kUnit);
  void* a = arena.allocate(4 * kUnit);
  void* b = arena.allocate(kUnit);
  void* c = arena.allocate(2 * kUnit);
  void* d = arena.allocate(kUnit);
  CHECK(bytes(b) == bytes(a) + 4 * kUnit);
  CHECK(bytes(d) == bytes(c) + 2 * kUnit);
  CHECK(arena.owns(a));
  CHECK_FALSE(arena.owns(&arena));
  CHECK(arena.reserved() == 8 * kUnit);
  CHECK(arena.growth_of(5 * kUnit) == 5 * kUnit);
  CHECK(arena.growth_of(500 * kUnit) == 0);  // does not fit
  arena.deallocate(a, 4 * kUnit);
  arena.deallocate(c, 2 * kUnit);
  CHECK(arena.growth_of(2 * kUnit) == 0);
  CHECK(arena.growth_of(5 * kUnit) == 5 * kUnit);
  CHECK(arena.allocate(2 * kUnit) == c);
  CHECK(arena.allocate(kUnit) == a);
  CHECK(bytes(arena.allocate(3 * kUnit)) == bytes(a) + kUnit);
  CHECK(arena.reserved() == 8 * kUnit);
}

TEST_CASE("arena: freed neighbours serve a block as large as all of them, in any order of freeing") {
  const std::vector<std::vector<size_t>> orders = {{0, 1, 2}, {0, 2, 1}, {1, 0, 2}, {1, 2, 0}, {2, 0, 1}, {2, 1, 0}};
  for (const std::vector<size_t>& order : orders) {
    Arena arena(16 * kUnit);
    const std::vector<void*> blocks = {arena.allocate(3 * kUnit), arena.allocate(kUnit), arena.allocate(2 * kUnit)};
    const std::vector<size_t> sizes = {3 * kUnit, kUnit, 2 * kUnit};
    void* last = arena.allocate(kUnit);
    for (const size_t i : order) {
      arena.deallocate(blocks[i], sizes[i]);
    }
    CHECK(arena.allocate(6 * kUnit) == blocks[0]);
    CHECK(arena.reserved() == 7 * kUnit);
    arena.deallocate(blocks[0], 6 * kUnit);
    arena.deallocate(last, kUnit);
    CHECK(arena.allocate(16 * kUnit) == blocks[0]);
  }
}

TEST_CASE("arena: full, and pages given back") {
  Arena arena(8 * kUnit);
  void* a = arena.allocate(5 * kUnit);
  CHECK(arena.allocate(4 * kUnit) == nullptr);
  void* b = arena.allocate(3 * kUnit);
  CHECK(arena.allocate(kUnit) == nullptr);
  std::memset(a, 7, 5 * kUnit);
  std::memset(b, 8, 3 * kUnit);
  arena.deallocate(a, 5 * kUnit);
  CHECK(arena.reserved() == 8 * kUnit);
  arena.release_free_pages();
  CHECK(arena.reserved() == 3 * kUnit);
  CHECK(bytes(b)[3 * kUnit - 1] == std::byte{8});
  CHECK(arena.allocate(2 * kUnit) == a);
  CHECK(arena.reserved() == 5 * kUnit);
  CHECK(bytes(a)[0] == std::byte{0});  // a fresh page
}

TEST_CASE("allocator: large blocks freed one by one serve a larger one without the system") {
  Allocator& cpu = allocator(kCpu);
  cpu.empty_cache();
  constexpr size_t kSize = size_t{2} << 20U;
  std::vector<void*> blocks;
  for (int i = 0; i < 4; ++i) {
    blocks.push_back(cpu.allocate(kSize));
  }
  const AllocatorStatistics before = cpu.statistics();
  for (void* block : blocks) {
    cpu.deallocate(block);
  }
  void* large = cpu.allocate(4 * kSize);
  CHECK(cpu.statistics().reserved == before.reserved);
  CHECK(cpu.statistics().system_allocations == before.system_allocations);
  cpu.deallocate(large);
}

TEST_CASE("allocator: more than the machine has is an error that says so") {
  Allocator& cpu = allocator(kCpu);
  CHECK_THROWS_WITH_AS(cpu.allocate(size_t{1} << 60U),
                       doctest::Contains("allocator: expected room for 1152921504.6 GB, got none: tensors hold "),
                       Error);
}

}  // namespace norma::test
