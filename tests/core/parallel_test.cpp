#include "core/parallel.h"

#include "core/allocator.h"
#include "tests/error_text.h"

#include <fmt/format.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <vector>

#if defined(__SANITIZE_ADDRESS__)  // which takes terabytes of addresses, so that no limit can be set
#define NORMA_LIMITED_TEST_CASE(name) TEST_CASE(name* doctest::skip(true))
#else
#define NORMA_LIMITED_TEST_CASE(name) TEST_CASE(name)
#endif

namespace norma::test {

NORMA_LIMITED_TEST_CASE("parallel_for: the first thread is started only where its stack has room") {
  constexpr const char* kInside = "NORMA_TEST_PARALLEL_ROOM";
  if (std::getenv(kInside) == nullptr) {  // the runtime may have its threads here: a process of its own
    const auto program = std::filesystem::read_symlink("/proc/self/exe").string();
    const int status = std::system(
        fmt::format("{}=1 OMP_NUM_THREADS=2 '{}' -tc='parallel_for: the first thread*'", kInside, program).c_str());
    CHECK(WIFEXITED(status));
    CHECK(WEXITSTATUS(status) == 0);
    return;
  }
  rlim_t pages = 0;
  std::ifstream("/proc/self/statm") >> pages;
  rlimit limits{};
  REQUIRE(::getrlimit(RLIMIT_AS, &limits) == 0);
  limits.rlim_cur = pages * static_cast<rlim_t>(::sysconf(_SC_PAGESIZE)) + (1U << 20U);
  REQUIRE(::setrlimit(RLIMIT_AS, &limits) == 0);
  const std::string text = error_of([] { parallel_for(0, 1000, 1, [](int64_t, int64_t) {}); });
  CHECK(error_of([] { const FlushDenormalGuard flush; }).starts_with("threads: the stacks of 2 threads: "));
  const volatile float small = 1e-20F;
  CHECK(small * small > 0);  // the guard that could not be made changed nothing
  limits.rlim_cur = limits.rlim_max;
  REQUIRE(::setrlimit(RLIMIT_AS, &limits) == 0);
  CHECK_MESSAGE(text.starts_with("threads: the stacks of 2 threads: expected room for "), text);
  std::atomic<int64_t> sum = 0;
  parallel_for(0, 1000, 1, [&](int64_t first, int64_t last) { sum += last - first; });
  CHECK(sum == 1000);
}

TEST_CASE(
    "parallel: one thread for a while, and then as many as the environment says, though set_num_threads refuses") {
  constexpr const char* kInside = "NORMA_TEST_ONE_THREAD";
  if (std::getenv(kInside) == nullptr) {
    const auto program = std::filesystem::read_symlink("/proc/self/exe").string();
    const int status = std::system(
        fmt::format("{}=1 OMP_NUM_THREADS=1025 '{}' -tc='parallel: one thread for a while*'", kInside, program)
            .c_str());
    CHECK(WIFEXITED(status));
    CHECK(WEXITSTATUS(status) == 0);
    return;
  }
  REQUIRE(num_threads() == 1025);
  CHECK(error_of([] { set_num_threads(1025); }) != "no error");
  {
    const OneThread one;
    CHECK(num_threads() == 1);
  }
  CHECK(num_threads() == 1025);
}

#if defined(__x86_64__)
/// It says of each thread of a loop whether it keeps a subnormal product; otherwise the product is 0 there.
std::vector<bool> keeps_subnormal() {
  std::vector<char> keeps(static_cast<size_t>(num_threads()));
  const volatile float small = 1e-20F;
  parallel_for(0, num_threads(), 1,
               [&](int64_t first, int64_t) { keeps[static_cast<size_t>(first)] = small * small > 0; });
  return {keeps.begin(), keeps.end()};
}

TEST_CASE("set_flush_denormal: all threads of loops do it, also those that start later, and as before after a guard") {
  const int threads = num_threads();
  set_num_threads(3);
  CHECK(keeps_subnormal() == std::vector<bool>(3, true));
  {
    const FlushDenormalGuard flush;
    CHECK(keeps_subnormal() == std::vector<bool>(3, false));
    set_num_threads(5);
    CHECK(keeps_subnormal() == std::vector<bool>(5, false));
    { const FlushDenormalGuard inner; }
    CHECK(keeps_subnormal() == std::vector<bool>(5, false));
  }
  CHECK(keeps_subnormal() == std::vector<bool>(5, true));
  CHECK(set_flush_denormal(true));
  CHECK(keeps_subnormal() == std::vector<bool>(5, false));
  CHECK(set_flush_denormal(false));
  CHECK(keeps_subnormal() == std::vector<bool>(5, true));
  set_num_threads(threads);
}
#endif

}  // namespace norma::test
