#include "session/environment.h"

#include "core/device.h"

#include <doctest/doctest.h>
#include <sys/mman.h>

#include <cstring>
#include <regex>

using namespace norma;

TEST_CASE("environment: says what it runs on") {
  const train::Environment e = train::environment();
  CHECK_FALSE(e.norma.empty());
  CHECK_FALSE(e.compiler.empty());
  CHECK(e.cores >= 1);
  CHECK(e.threads >= 1);
  CHECK(e.memory > 0);
  CHECK(e.device == "cpu");
  {
    const DefaultDeviceGuard emulated(kCudaEmulated);
    CHECK(train::environment().device == "cuda-emulated:0");
  }
  CHECK(e.libraries.size() >= 5);
  for (const auto& [name, version] : e.libraries) {
    CHECK_MESSAGE(std::regex_search(version, std::regex("[0-9]+\\.[0-9]+")), name << " " << version);
  }
}

TEST_CASE("environment: the time has the form it promises") {
  CHECK(std::regex_match(train::local_time(), std::regex("\\d{4}-\\d\\d-\\d\\d \\d\\d:\\d\\d:\\d\\d")));
  CHECK(std::regex_match(train::local_time(/* compact= */ true), std::regex("\\d{8}-\\d{6}")));
}

TEST_CASE("environment: the peak of resident memory is that of its own span") {
  constexpr size_t kBytes = 64'000'000;
  constexpr int64_t kHalf = kBytes / 2;
  for (const bool reset : {true, false}) {  // false: as where the system does not let a process reset its mark
    CAPTURE(reset);
    train::ResidentPeak first(reset);
    const int64_t before = first.bytes();
    CHECK(before > 0);
    // Straight from the system: an allocator may keep what it is given back.
    void* memory = mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    REQUIRE(memory != MAP_FAILED);
    std::memset(memory, 1, kBytes);
    first.sample();
    REQUIRE(munmap(memory, kBytes) == 0);
    CHECK(first.bytes() >= before + kHalf);
    const train::ResidentPeak second(reset);
    CHECK(second.bytes() < before + kHalf);
  }
}
