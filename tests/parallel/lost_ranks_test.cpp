#include "core/factory.h"
#include "core/tensor.h"
#include "parallel/process_group.h"

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <memory>
#include <thread>

using namespace norma;

// Three processes: rank 1 waits for rank 0, which waits, from a second later on, for rank 2.
TEST_CASE("lost ranks: one waits for one that waits for a stopped one" * doctest::skip()) {
  const parallel::ProcessGroupOptions options{.timeout = 2};
  const std::shared_ptr<parallel::ProcessGroup> group = parallel::make_mpi_group(options);
  const Tensor x = zeros({1}, {.device = kCpu});
  try {
    if (group->rank() == 2) {
      std::raise(SIGSTOP);
    } else if (group->rank() == 1) {
      group->broadcast(x, 0);
    } else {
      std::this_thread::sleep_for(std::chrono::seconds(1));
      group->broadcast(x, 2);
    }
  } catch (const std::exception& error) {
    (void)group->leave(error.what());
    std::printf("rank %d: %s\n", group->rank(), error.what());
  }
}

// For lost_ranks_test.sh, whose virtual GPUs have faults.
TEST_CASE("lost ranks: sums on GPUs, until one is lost" * doctest::skip()) {
  constexpr int kEnded = 2;  // the exit code of an error, as the program has it
  constexpr int kSums = 20;
  const char* const timeout = std::getenv("LOST_RANKS_TIMEOUT");
  const parallel::ProcessGroupOptions options{.timeout = timeout == nullptr ? 10 : std::atof(timeout)};
  std::shared_ptr<parallel::ProcessGroup> group = parallel::make_nccl_group(parallel::make_mpi_group(options), options);
  try {
    for (int i = 0; i < kSums; ++i) {
      const Tensor x = full({1000}, i);
      group->all_reduce(x);
      const float last = x.to_vector<float>().back();  // waits, and may throw
      CHECK(last == static_cast<float>(i * group->size()));
    }
  } catch (const std::exception& error) {
    (void)group->leave(error.what());
    std::printf("rank %d: %s\n", group->rank(), error.what());
    group.reset();
    std::exit(kEnded);
  }
}
