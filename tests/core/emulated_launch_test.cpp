#include "core/cuda/kernel.h"
#include "error_text.h"
#include "launch_checks_guard.h"

#include <doctest/doctest.h>

#include <cmath>
#include <vector>

// Kernels on the host: what they compute, and that what a GPU would not forgive, or would forgive only sometimes, is
// an error here.

namespace norma::test {
namespace {

using kernels::kWarp;
using namespace kernels::emulated;

void note_places(int64_t* to) {
  to[global_thread()] = 1000 * block() + thread();
}

/// The sum of 1 … threads in each thread of a block, by shuffles and shared memory.
void sum_of_block(int64_t* to) {
  int64_t sum = thread() + 1;
  for (int mask = 16; mask > 0; mask /= 2) {
    sum += shuffle_xor(sum, mask);
  }
  auto* of_warps = shared_memory<int64_t>();
  if (lane() == 0) {
    of_warps[thread() / kWarp] = sum;
  }
  sync_threads();
  int64_t total = 0;
  for (int warp = 0; warp < threads() / kWarp; ++warp) {
    total += of_warps[warp];
  }
  to[global_thread()] = total;
}

/// The same without the barrier.
void sum_without_barrier(double* to) {
  auto* shared = shared_memory<double>();
  shared[thread()] = 1;
  double total = 0;
  for (int i = 0; i < threads(); ++i) {
    total += shared[i];
  }
  to[thread()] = total;
}

void read_uninitialized(double* to) {
  *to = shared_memory<double>()[thread()];
}
void leave_before_barrier(int threads_that_stay) {
  if (thread() < threads_that_stay) {
    sync_threads();
  }
}
void leave_before_shuffle(int lanes_that_stay) {
  if (lane() < lanes_that_stay) {
    (void)shuffle(1, 0);
  }
}
void barrier_against_shuffle(int) {
  if (lane() == 3) {
    sync_threads();
  } else {
    (void)shuffle(1, 0);
  }
}
void write_behind(int first) {
  shared_memory<char>()[first] = 1;
}

template <class Kernel, class Argument>
std::string launch_error(int threads, size_t shared_bytes, Kernel kernel, Argument argument) {
  return error_of([&] { launch(1, threads, shared_bytes, current_stream(), kernel, argument); });
}

}  // namespace

TEST_CASE("emulated launch: every thread of every block runs once, in any order") {
  for (const uint64_t seed : {0, 1, 2, 7}) {
    const LaunchChecksGuard guard({.order_seed = seed});
    std::vector<int64_t> places(5 * 64, -1);
    launch(5, 64, 0, current_stream(), note_places, places.data());
    for (int64_t i = 0; i < 5 * 64; ++i) {
      CHECK(places[static_cast<size_t>(i)] == 1000 * (i / 64) + i % 64);
    }
  }
}

TEST_CASE("emulated launch: shuffles and barriers hold in any order of lanes and warps") {
  for (uint64_t seed = 0; seed < 20; ++seed) {
    const LaunchChecksGuard guard({.order_seed = seed});
    std::vector<int64_t> sums(3 * 96, -1);
    launch(3, 96, 3 * sizeof(int64_t), current_stream(), sum_of_block, sums.data());
    CHECK(sums == std::vector<int64_t>(3 * 96, 96 * 97 / 2));
  }
}

TEST_CASE("emulated launch: a missing barrier and uninitialized shared memory show as NaN") {
  std::vector<double> totals(64);
  launch(1, 64, 64 * sizeof(double), current_stream(), sum_without_barrier, totals.data());
  CHECK(std::isnan(totals[0]));
  CHECK(totals[63] == 64);  // the last one sees all: only another order shows that it should not
  const LaunchChecksGuard guard({.order_seed = 5});
  launch(1, 64, 64 * sizeof(double), current_stream(), sum_without_barrier, totals.data());
  CHECK(std::isnan(totals[63]));
  double value = 0;
  launch(1, 32, 32 * sizeof(double), current_stream(), read_uninitialized, &value);
  CHECK(std::isnan(value));
}

TEST_CASE("emulated launch: who waits for a thread that does not come is an error") {
  CHECK(launch_error(64, 0, leave_before_barrier, 64) == "no error");
  CHECK(launch_error(64, 0, leave_before_barrier, 40) ==
        "launch: 40 of the 64 threads of block 0 wait at a barrier, the others have ended");
  CHECK(launch_error(64, 0, leave_before_shuffle, 31) ==
        "launch: 31 of the 32 lanes of warp 0 of block 0 take part in a shuffle, the others have ended or wait at a "
        "barrier");
  CHECK(launch_error(32, 0, barrier_against_shuffle, 0) ==
        "launch: 31 of the 32 lanes of warp 0 of block 0 take part in a shuffle, the others have ended or wait at a "
        "barrier");
  // What was left in the middle does not disturb the next launch.
  std::vector<int64_t> sums(64, -1);
  launch(1, 64, 2 * sizeof(int64_t), current_stream(), sum_of_block, sums.data());
  CHECK(sums == std::vector<int64_t>(64, 64 * 65 / 2));
}

TEST_CASE("emulated launch: shared memory has an end, and a launch its limits") {
  CHECK(launch_error(32, 100, write_behind, 99) == "no error");
  CHECK(launch_error(32, 100, write_behind, 100) == "launch: block 0 wrote behind the 100 bytes of its shared memory");
  CHECK(launch_error(48, 0, leave_before_barrier, 48) ==
        "launch: expected a multiple of 32 threads, at most 1024, got 48");
  CHECK(launch_error(1056, 0, leave_before_barrier, 48) ==
        "launch: expected a multiple of 32 threads, at most 1024, got 1056");
  CHECK(launch_error(32, 300000, leave_before_barrier, 32) ==
        "launch: expected at most 49152 bytes of shared memory, got 300000");
  CHECK(error_of([] { launch(0, 32, 0, current_stream(), write_behind, 0); }) ==
        "launch: expected 1 to 2147483647 blocks, got 0");
}

}  // namespace norma::test
