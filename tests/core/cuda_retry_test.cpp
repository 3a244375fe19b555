#include "core/cuda/caching_allocator.h"
#include "core/cuda/capability.h"
#include "core/cuda/retry.h"

#include <doctest/doctest.h>

#include <cstdlib>
#include <string>
#include <utility>

// What the device cuda does where a GPU is too old, and where a launch lacks memory.

using namespace norma::cuda;

namespace {

/// A device with room for some bytes, which kernels that are loaded take as well.
class SmallDevice final : public DeviceMemory {
 public:
  explicit SmallDevice(size_t bytes) : free_(bytes) {}

  void* take(size_t bytes) override {
    if (bytes > free_) {
      return nullptr;
    }
    free_ -= bytes;
    last_ = bytes;
    return std::malloc(1);  // the allocator never looks into it
  }
  void give_back(void* pointer) override {
    free_ += last_;
    std::free(pointer);
  }
  [[nodiscard]] std::string text() const override { return "a small device"; }

  /// True iff there was room for the kernel.
  bool load_kernel(size_t bytes) {
    const bool fits = bytes <= free_;
    free_ -= fits ? bytes : 0;
    return fits;
  }

 private:
  size_t free_;
  size_t last_ = 0;
};

constexpr size_t kMebi = size_t{1} << 20;

}  // namespace

TEST_CASE("cuda retry: a kernel that is loaded late gets memory that the allocator keeps") {
  SmallDevice device(20 * kMebi);
  CachingAllocator allocator(device);
  allocator.deallocate(allocator.allocate(20 * kMebi));
  int starts = 0;
  const auto start = [&] {
    ++starts;
    return device.load_kernel(kMebi);
  };
  const auto failed = [](bool done) { return !done; };
  CHECK(start_with_memory(start, failed, [&] { allocator.empty_cache(); }));
  CHECK(starts == 2);
}

TEST_CASE("cuda retry: a launch that fails again, or for another reason, is started no more") {
  enum class Status { done, no_memory, broken };
  const auto lacks_memory = [](Status status) { return status == Status::no_memory; };
  for (const auto& [status, wanted] : {std::pair(Status::done, 1), {Status::no_memory, 2}, {Status::broken, 1}}) {
    int starts = 0;
    int releases = 0;
    const auto start = [&] {
      ++starts;
      return status;
    };
    CHECK(start_with_memory(start, lacks_memory, [&] { ++releases; }) == status);
    CHECK(starts == wanted);
    CHECK(releases == wanted - 1);
  }
}

TEST_CASE("cuda capability: a GPU below 8.0 is refused by name") {
  CHECK(capability_complaint(7, 5, "Tesla T4") ==
        "expected a GPU of compute capability 8.0 or above, got 7.5 (Tesla T4)");
  CHECK(capability_complaint(8, 0, "NVIDIA A100").empty());
  CHECK(capability_complaint(12, 0, "NVIDIA GeForce RTX 5090").empty());
}
