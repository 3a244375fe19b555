#include "core/cpu/host_memory.h"

#include "base/error.h"
#include "core/allocator.h"
#include "core/cpu/arena.h"
#include "files.h"

#include <doctest/doctest.h>

#include <cstdint>
#include <filesystem>
#include <string>

namespace norma::test {
namespace {

/// A folder with the files of /proc and /sys that are looked at.
class System {
 public:
  void put(const std::string& file, const std::string& text) {
    std::filesystem::create_directories((folder_ / file).parent_path());
    write_file(folder_ / file, text);
  }
  [[nodiscard]] size_t available() const { return available_memory(folder_.path()); }

 private:
  TemporaryFolder folder_;
};

constexpr const char* kMemory = "MemTotal:       1000 kB\nMemFree:  10 kB\nMemAvailable:    500 kB\nSwapFree: 20 kB\n";

}  // namespace

TEST_CASE("available memory: what the machine has, and free swap") {
  System system;
  CHECK(system.available() == SIZE_MAX);
  system.put("proc/meminfo", "MemTotal:       1000 kB\n");
  CHECK(system.available() == SIZE_MAX);
  system.put("proc/meminfo", kMemory);
  CHECK(system.available() == 520 * 1024);
}

TEST_CASE("available memory: the control groups of version 2, each that the process lies in") {
  System system;
  system.put("proc/meminfo", kMemory);
  system.put("proc/self/cgroup", "0::/slice/job\n");
  CHECK(system.available() == 520 * 1024);
  system.put("sys/fs/cgroup/slice/job/memory.max", "max\n");
  system.put("sys/fs/cgroup/slice/job/memory.current", "900\n");
  CHECK(system.available() == 520 * 1024);
  system.put("sys/fs/cgroup/slice/job/memory.max", "100000\n");
  system.put("sys/fs/cgroup/slice/job/memory.current", "90000\n");
  CHECK(system.available() == 10000);
  system.put("sys/fs/cgroup/slice/job/memory.stat",
             "anon 1\ninactive_file 5000\nactive_file 700\nfile 77777\nslab_reclaimable 30\n");
  CHECK(system.available() == 15730);
  system.put("sys/fs/cgroup/slice/memory.max", "4000\n");
  system.put("sys/fs/cgroup/slice/memory.current", "5000\n");
  CHECK(system.available() == 0);
}

TEST_CASE("available memory: a container sees its own group at the top") {
  System system;
  system.put("proc/self/cgroup", "0::/\n");
  system.put("sys/fs/cgroup/memory.max", "3000\n");
  system.put("sys/fs/cgroup/memory.current", "1000\n");
  CHECK(system.available() == 2000);
}

TEST_CASE("available memory: control groups of version 1") {
  System system;
  system.put("proc/meminfo", kMemory);
  system.put("proc/self/cgroup", "9:name=systemd:/\n4:cpu,memory:/docker/abc\nnonsense\n0::/\n");
  system.put("sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
  system.put("sys/fs/cgroup/memory/memory.usage_in_bytes", "800000\n");
  CHECK(system.available() == 520 * 1024);
  system.put("sys/fs/cgroup/memory/docker/abc/memory.limit_in_bytes", "70000\n");
  system.put("sys/fs/cgroup/memory/docker/abc/memory.usage_in_bytes", "60000\n");
  system.put("sys/fs/cgroup/memory/docker/abc/memory.stat", "inactive_file 9\ntotal_inactive_file 500\n");
  CHECK(system.available() == 10500);
}

TEST_CASE("allocator: more than the system has left is an error, though the machine has more") {
  const size_t available = available_memory();
  REQUIRE(available < SIZE_MAX);
  // Other tests may end meanwhile: twice as much, with an eye on machines that have next to nothing left.
  const size_t more = 2 * available + (size_t{1} << 30U);
  CHECK_THROWS_WITH_AS(allocator(kCpu).allocate(more), doctest::Contains("got none"), OutOfMemory);
  // Smaller blocks go on.
  void* block = allocator(kCpu).allocate(size_t{3} << 20U);
  allocator(kCpu).deallocate(block);
}

}  // namespace norma::test
