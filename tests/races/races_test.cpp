#include "core/emulated/races.h"
#include "base/error.h"
#include "core/emulated/launch.h"
#include "core/factory.h"
#include "launch_checks_guard.h"
#include "races/kernels.h"

#include <doctest/doctest.h>

#include <fmt/format.h>

#include <string>

namespace norma::test {
namespace {

/// The race that a launch reports.
std::string race(void (*run)(int64_t blocks, int threads), int64_t blocks = 1, int threads = 64) {
  try {
    run(blocks, threads);
  } catch (const Error& error) {
    return error.what();
  }
  return "none";
}

TEST_CASE("races: barriers put threads of a block in order") {
  CHECK(emulated::races_are_watched());
  CHECK(race(sum_with_barriers) == "none");
  CHECK(race(sum_with_barriers, 3) == "none");
  CHECK(race(own_stack, 3) == "none");
}

TEST_CASE("races: a read of what another thread wrote, with no barrier between") {
  CHECK(race(sum_without_first_barrier) ==
        fmt::format("launch: race in shared memory: thread 1 of block 0 (kernels.cpp:{}) writes 4 bytes at byte 4 that "
                    "thread 0 of block 0 (kernels.cpp:{}) read, and no barrier is between",
                    line_of_write(), line_of_read()));
}

TEST_CASE("races: the next round's write, with no barrier before it") {
  CHECK(race(sum_without_last_barrier) ==
        fmt::format("launch: race in shared memory: thread 1 of block 0 (kernels.cpp:{}) reads 4 bytes at byte 0 that "
                    "thread 0 of block 0 (kernels.cpp:{}) wrote, and no barrier is between",
                    line_of_read(), line_of_write()));
}

TEST_CASE("races: a barrier that some threads do not reach comes before the race that follows from it") {
  CHECK(race(barrier_in_if) ==
        fmt::format("launch: 32 of the 64 threads of block 0 wait at a barrier (kernels.cpp:{}), the others have ended",
                    line_of_barrier()));
}

TEST_CASE("races: an access past the end of a tensor") {
  const auto run = [](int64_t blocks, int threads) {
    const Tensor to = zeros({blocks * threads}, {.dtype = DType::int32, .device = kCudaEmulated});
    past_the_end(blocks, threads, to.device_pointer<int>());
  };
  CHECK(race(run).find(") writes number 64 of a tensor that has 64 (of 4 bytes; the first is 0)") != std::string::npos);
}

TEST_CASE("races: a shuffle is no barrier") {
  CHECK(race(shuffle_for_a_barrier, 1, 32).find("race in shared memory") != std::string::npos);
}

TEST_CASE("races: one place that all threads write") {
  CHECK(race(all_write_one_place).find("race in global memory: thread 1 of block 0") != std::string::npos);
  CHECK(race(neighbours_write_halves) == "none");
}

TEST_CASE("races: an earlier reader than the writer itself") {
  CHECK(race(last_reader_is_the_writer).find("thread 0 of block 0") != std::string::npos);
}

TEST_CASE("races: blocks have no order") {
  CHECK(race(blocks_share_a_counter, 1) == "none");
  CHECK(race(blocks_share_a_counter, 2).find("that thread 0 of block 0 (kernels.cpp:") != std::string::npos);
  CHECK(race(blocks_share_a_counter, 2).find("wrote, and blocks have no order") != std::string::npos);
}

TEST_CASE("races: found whatever the order of threads, and nothing is left of them for the next launch") {
  for (uint64_t seed = 0; seed < 20; ++seed) {
    const LaunchChecksGuard checks({.order_seed = seed});
    INFO("seed ", seed);
    CHECK(race(sum_without_first_barrier) != "none");
    CHECK(race(sum_without_last_barrier) != "none");
    CHECK(race(shuffle_for_a_barrier, 1, 32) != "none");
    CHECK(race(blocks_share_a_counter, 2) != "none");
    CHECK(race(sum_with_barriers, 2) == "none");
    CHECK(race(last_reader_is_the_writer) != "none");
  }
}

}  // namespace
}  // namespace norma::test
