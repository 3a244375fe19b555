// What your answers must do: the right numbers for every length, and nothing written beyond a row.

#include "exercise.h"

#include <norma/norma.h>

#include <doctest/doctest.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <ctime>
#include <string>
#include <thread>
#include <vector>

namespace {

// Around the widths of vectors, so that something is left over, or everything, or nothing.
constexpr int64_t kLengths[] = {1, 3, 15, 16, 17, 31, 32, 33, 64, 1000};

std::vector<float> numbers(int64_t count) {
  norma::Generator generator(8);
  std::vector<float> x(static_cast<size_t>(count));
  for (float& element : x) {
    element = static_cast<float>(4 * generator.uniform() + 1);
  }
  return x;
}

}  // namespace

TEST_CASE("gap 1: squares about a mean") {
  for (const int64_t n : kLengths) {
    const std::vector<float> x = numbers(n);
    double right = 0;
    for (const float element : x) {
      right += (element - 2.5) * (element - 2.5);
    }
    const double yours = squares_about(2.5F, x.data(), n);
    INFO("\n  n = ", n, ": expected ", right, ", yours is ", yours,
         std::string(n % 32 == 0 ? "" : "\n  The elements after the last whole vector must be added too."));
    REQUIRE(std::abs(yours - right) <= 1e-5 * (1 + right));
  }
}

TEST_CASE("gap 1: several sums side by side") {
  // One square of 2^24, then 1023 squares of 1. A float sum of 2^24 stays there when 1 is added, so a loop that adds
  // all of them to one number loses them. Of several sums, one alone stays where it is.
  std::vector<float> x(1024, 1);
  x[0] = 4096;
  const double lost = 16777216 + 1023 - static_cast<double>(squares_about(0, x.data(), 1024));
  CHECK_MESSAGE(
      lost < 512, "\n  of 1023 squares of 1 beside one of 2^24, ", lost,
      " are lost: they all go into one sum.\n  Use two vectors of sums, as sum_of() does. This is also quicker.");
}

TEST_CASE("gap 2: a row is written") {
  constexpr float kUntouched = -77;
  for (const int64_t n : kLengths) {
    const std::vector<float> x = numbers(n);
    std::vector<float> y(x.size() + 20, kUntouched);
    write_row(x.data(), 2.5F, 0.75F, n, y.data());
    for (size_t i = 0; i < y.size(); ++i) {
      const float right = i < x.size() ? (x[i] - 2.5F) * 0.75F : kUntouched;
      INFO("\n  n = ", n, ", element ", i, std::string(i < x.size() ? "" : ", which lies after the row"), ": expected ",
           right, ", yours is ", y[i], std::string(y[i] == kUntouched ? "\n  Nothing has been written there." : ""),
           std::string(i < x.size() ? "" : "\n  A whole vector was written where fewer elements are left."));
      REQUIRE(y[i] == doctest::Approx(right).epsilon(1e-6));
    }
  }
}

TEST_CASE("gap 3: rows are those of Norma's layer norm (needs gaps 1 and 2)") {
  using namespace norma;  // NOLINT
  for (const int64_t n : kLengths) {
    constexpr int64_t kRows = 7;
    const std::vector<float> x = numbers(kRows * n);
    std::vector<float> y(x.size(), NAN);
    norm_rows(x.data(), kRows, n, y.data());
    const std::vector<float> right = layer_norm(from_vector(x, {kRows, n}), {n}).to_vector<float>();
    for (size_t i = 0; i < y.size(); ++i) {
      INFO("\n  ", kRows, " rows, n = ", n, ", row ", i / static_cast<size_t>(n), ": expected ", right[i],
           ", yours is ", y[i],
           std::string(std::isnan(y[i]) ? "\n  Nothing has been written there, or var is below 0, or 0 / 0." : ""));
      REQUIRE(std::abs(y[i] - right[i]) <= 1e-4F);
    }
  }
}

TEST_CASE("gap 3: rows whose numbers are nearly the same (needs gaps 1 and 2)") {
  using namespace norma;  // NOLINT
  std::vector<float> x = numbers(4 * 64);
  for (float& element : x) {
    element = 1e-3F * element;  // a variance near 1e-6, which is less than eps
  }
  std::vector<float> y(x.size(), NAN);
  norm_rows(x.data(), 4, 64, y.data());
  const std::vector<float> right = layer_norm(from_vector(x, {4, 64}), {64}).to_vector<float>();
  for (size_t i = 0; i < y.size(); ++i) {
    INFO("\n  rows with a variance near 1e-6, element ", i, ": expected ", right[i], ", yours is ", y[i],
         "\n  eps must stand inside the root: 1 / sqrt(var + eps)");
    REQUIRE(std::abs(y[i] - right[i]) <= 1e-3F);
  }
}

TEST_CASE("gap 3: the rows are shared by threads") {
  const std::vector<float> x = numbers(64 * 32768);
  std::vector<float> y(x.size());
  const int before = norma::num_threads();
  norma::set_num_threads(2);
  // The processor time of this thread and that of all threads: they are equal when the others had nothing to do.
  const auto seconds = [](clockid_t clock) {
    timespec time{};
    clock_gettime(clock, &time);
    return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
  };
  std::this_thread::sleep_for(std::chrono::milliseconds(20));  // threads of earlier loops fall asleep
  const double all = seconds(CLOCK_PROCESS_CPUTIME_ID);
  const double mine = seconds(CLOCK_THREAD_CPUTIME_ID);
  norm_rows(x.data(), 64, 32768, y.data());
  const double of_mine = seconds(CLOCK_THREAD_CPUTIME_ID) - mine;
  const double of_others = seconds(CLOCK_PROCESS_CPUTIME_ID) - all - of_mine;
  // For information only: how long a machine takes is no matter of right or wrong.
  const norma::Tensor rows = norma::from_vector(x, {64, 32768});
  const auto shortest = [](const auto& run) {
    double best = 1e9;
    for (int round = 0; round < 5; ++round) {
      const auto start = std::chrono::steady_clock::now();
      run();
      best =
          std::min(best, std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count());
    }
    return best;
  };
  const double yours = shortest([&] { norm_rows(x.data(), 64, 32768, y.data()); });
  const double norma_s = shortest([&] { (void)norma::layer_norm(rows, {32768}); });
  MESSAGE("64 rows of 32768 floats: your kernel takes ", yours, " ms, Norma's layer norm ", norma_s, " ms");
  norma::set_num_threads(before);
  CHECK_MESSAGE(of_others > 0.1 * of_mine,
                "\n  2 threads, 64 rows: one thread did all of the work. Let parallel_for share the rows.");
}

TEST_CASE("gap 3: any number of threads gives the same bits") {
  const std::vector<float> x = numbers(9 * 100);
  std::vector<float> one(x.size(), 0);
  std::vector<float> several(x.size(), 0);
  const int before = norma::num_threads();
  norma::set_num_threads(1);
  norm_rows(x.data(), 9, 100, one.data());
  norma::set_num_threads(3);
  norm_rows(x.data(), 9, 100, several.data());
  norma::set_num_threads(before);
  CHECK_MESSAGE(one == several, "\n  one thread and three gave other numbers: does each row depend on itself alone?");
}
