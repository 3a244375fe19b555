// What your kernels must do, in any order of threads, without a race.

#include "exercise.h"

#include <norma/core/cuda/kernel.h>
#include <norma/norma.h>

#include <doctest/doctest.h>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <string>
#include <vector>

using namespace norma;  // NOLINT: a test reads better without prefixes

namespace {

Tensor on_gpu(const std::vector<float>& numbers) {
  return norma::to(from_vector(numbers, {static_cast<int64_t>(numbers.size())}), kCudaEmulated);
}
/// Memory of the GPU that no kernel has written: NaN.
Tensor unwritten(int64_t count) {
  return full({count}, NAN, {.device = kCudaEmulated});
}
std::vector<float> numbers(int64_t count) {
  Generator generator(9);
  std::vector<float> x(static_cast<size_t>(count));
  for (float& element : x) {
    element = static_cast<float>(4 * generator.uniform() - 1);
  }
  return x;
}

/// Runs a kernel with threads and warps in several orders. A GPU promises none. `launched` says what is launched.
void in_every_order(const std::string& launched, const std::function<void()>& run) {
  for (const uint64_t seed : {0, 1, 2, 3}) {
    emulated::set_launch_checks({.order_seed = seed});
    std::string fault;
    try {
      run();
    } catch (const std::exception& error) {
      fault = error.what();
    }
    emulated::set_launch_checks({});
    const bool past_end = fault.find(" of a tensor that has ") != std::string::npos;
    REQUIRE_MESSAGE(
        fault.empty(), "\n  ", launched, "\n  the launch has failed: ", fault,
        std::string(past_end ? "\n  The loop must end at the count: there may be more threads than numbers." : ""));
  }
}

}  // namespace

TEST_CASE("gap 1: more threads than numbers and fewer") {
  for (const int64_t count : {1, 100, 128, 1000}) {
    const std::vector<float> x = numbers(count);
    const Tensor from = on_gpu(x);
    in_every_order("2 blocks of 64 threads, count = " + std::to_string(count) + ": reads are of x, writes of y", [&] {
      const Tensor y = unwritten(count);
      run_scale(/* blocks= */ 2, /* threads= */ 64, count, 3, from.device_pointer<float>(), y.device_pointer<float>());
      const std::vector<float> yours = y.to_vector<float>();
      for (size_t i = 0; i < yours.size(); ++i) {
        INFO("\n  2 blocks of 64 threads, count = ", count, ", number ", i, ": expected ", 3 * x[i], ", yours is ",
             yours[i], std::string(std::isnan(yours[i]) ? "\n  No thread has written it." : ""),
             std::string(count > 128 ? " With fewer threads than numbers, each thread must take several." : ""));
        REQUIRE(yours[i] == 3 * x[i]);
      }
    });
  }
}

TEST_CASE("gap 2: the sum of a warp") {
  constexpr int64_t kRows = 3;
  const std::vector<float> x = numbers(kRows * 32);
  const Tensor from = on_gpu(x);
  in_every_order("3 blocks of 32 threads", [&] {
    const Tensor sums = unwritten(kRows);
    run_sum_of_rows(kRows, from.device_pointer<float>(), sums.device_pointer<float>());
    for (size_t row = 0; row < kRows; ++row) {
      double right = 0;
      for (size_t i = 0; i < 32; ++i) {
        right += x[row * 32 + i];
      }
      const double yours = sums.to_vector<float>()[row];
      std::string hint;
      double of_some = x[row * 32];
      for (size_t lanes = 1; lanes < 32; of_some += x[row * 32 + lanes], ++lanes) {
        if (std::abs(yours - of_some) < 1e-6 * (1 + std::abs(of_some))) {
          hint = "\n  That is the sum of lanes 0 to " + std::to_string(lanes - 1) + " alone.";
        }
      }
      INFO("\n  row ", row, ": expected ", right, ", yours is ", yours, hint);
      REQUIRE(std::abs(yours - right) <= 1e-4);
    }
  });
}

TEST_CASE("gap 3: each thread gets the sum") {
  for (const int threads : {32, 96}) {
    in_every_order("1 block of " + std::to_string(threads) + " threads", [&] {
      const Tensor to = unwritten(threads);
      run_sums_of_threads(threads, to.device_pointer<float>());
      const std::vector<float> yours = to.to_vector<float>();
      const auto right = static_cast<float>(threads * (threads + 1) / 2);
      for (size_t i = 0; i < yours.size(); ++i) {
        INFO("\n  ", threads, " threads bring 1, 2, 3, …: expected ", right, " for each, thread ", i, " gets ",
             yours[i],
             std::string(i > 0 && yours[0] == right ? "\n  Every thread must get the sum, not thread 0 alone." : ""));
        REQUIRE(yours[i] == right);
      }
    });
  }
}

TEST_CASE("gap 3: a norm by blocks") {
  constexpr int64_t kRows = 3;
  for (const int threads : {32, 96, 128}) {
    for (const int64_t n : {1, 50, 128, 300}) {
      const std::vector<float> x = numbers(kRows * n);
      const Tensor from = on_gpu(x);
      const std::vector<float> right = layer_norm(from_vector(x, {kRows, n}), {n}).to_vector<float>();
      in_every_order("3 blocks of " + std::to_string(threads) + " threads, n = " + std::to_string(n), [&] {
        const Tensor y = unwritten(kRows * n);
        run_norm_rows(kRows, threads, n, from.device_pointer<float>(), y.device_pointer<float>());
        const std::vector<float> yours = y.to_vector<float>();
        for (size_t i = 0; i < yours.size(); ++i) {
          INFO("\n  blocks of ", threads, " threads, n = ", n, ", number ", i, ": expected ", right[i], ", yours is ",
               yours[i],
               std::string(threads == 32 ? "\n  This block is one warp: its sum is that of gap 2."
                                         : "\n  Blocks of one warp are right. Now add up the sums of all warps."));
          REQUIRE(std::abs(yours[i] - right[i]) <= 1e-4F);
        }
      });
    }
  }
}
