// Lesson 8: why a loop is slow. Caches, waiting for an addition, vectors, and the copy as the limit.
#include <norma/norma.h>

#include <fmt/format.h>
// For the processor of the compiler's flags alone, which is this one.
#define HWY_COMPILE_ONLY_STATIC
#include <hwy/highway.h>

#include <cstdint>
#include <cstring>
#include <map>
#include <string>
#include <vector>

#include "clock.h"
#include "picture.h"

using namespace norma;  // NOLINT: a lesson reads better without prefixes
namespace hn = hwy::HWY_NAMESPACE;

namespace {

constexpr int64_t kRows = 8192;
constexpr int64_t kLength = 1024;

/// One sum. Each addition waits for the one before it.
float one_sum(const float* x, int64_t n) {
  float sum = 0;
  for (int64_t i = 0; i < n; ++i) {
    sum += x[i];
  }
  return sum;
}

/// Four sums side by side: four additions are under way at any time.
float four_sums(const float* x, int64_t n) {
  float a = 0;
  float b = 0;
  float c = 0;
  float d = 0;
  for (int64_t i = 0; i < n; i += 4) {
    a += x[i];
    b += x[i + 1];
    c += x[i + 2];
    d += x[i + 3];
  }
  return (a + b) + (c + d);
}

/// Two vectors of sums, each of which has 4, 8 or 16 lanes.
float vector_sums(const float* x, int64_t n) {
  const hn::ScalableTag<float> d;
  const auto lanes = static_cast<int64_t>(Lanes(d));
  auto first = hn::Zero(d);
  auto second = hn::Zero(d);
  for (int64_t i = 0; i < n; i += 2 * lanes) {
    first = hn::Add(first, hn::LoadU(d, x + i));
    second = hn::Add(second, hn::LoadU(d, x + i + lanes));
  }
  return hn::GetLane(hn::SumOfLanes(d, hn::Add(first, second)));
}

/// y = x - mean of one row. The compiler makes vectors of this loop by itself: no element waits for another.
void subtract(const float* x, float mean, float* y) {
  for (int64_t i = 0; i < kLength; ++i) {
    y[i] = x[i] - mean;
  }
}

/// First the means of all rows, then all differences: x comes from memory twice.
void centre_in_two_passes(const float* x, float* y) {
  std::vector<float> means(kRows);
  for (size_t row = 0; row < kRows; ++row) {
    means[row] = vector_sums(x + row * kLength, kLength) / kLength;
  }
  for (size_t row = 0; row < kRows; ++row) {
    subtract(x + row * kLength, means[row], y + row * kLength);
  }
}

/// Row by row: when the differences are made, the row is still in the cache.
void centre_rows(const float* x, float* y, int64_t first, int64_t last) {
  for (int64_t row = first; row < last; ++row) {
    subtract(x + row * kLength, vector_sums(x + row * kLength, kLength) / kLength, y + row * kLength);
  }
}

void copy(const float* x, float* y, int64_t first, int64_t last) {
  for (int64_t row = first; row < last; ++row) {
    std::memcpy(y + row * kLength, x + row * kLength, kLength * sizeof(float));
  }
}

/// f(x, y, first, last) for parts of the rows, on all cores.
template <class F>
void on_all_cores(const F& f, const float* x, float* y) {
  parallel_for(0, kRows, 1, [&](int64_t first, int64_t last) { f(x, y, first, last); });
}

}  // namespace

int main(int argc, char** argv) {
  const Tensor from = randn({kRows, kLength});
  const Tensor to = zeros({kRows, kLength});
  const float* const x = from.data<float>();
  float* const y = to.data<float>();

  fmt::print("copying on one core\n");
  std::vector<lessons::Bar> bars;
  for (const int64_t kib : {16, 256, 4096, 32768}) {
    const auto bytes = static_cast<size_t>(kib) * 1024;
    const double rate = 2 * static_cast<double>(bytes) / quickest({[&] { std::memcpy(y, x, bytes); }})[0] / 1e9;
    fmt::print("{:6} KiB, measured {:7.1f} GB/s\n", kib, rate);
    bars.push_back({.name = fmt::format("{} KiB", kib), .value = rate, .text = fmt::format("{:.0f} GB/s", rate)});
  }
  lessons::bar_chart("Copying blocks of four sizes", "Small blocks stay in a cache and are copied faster.", "measured",
                     bars)
      .save(lessons::picture_folder(argc, argv), "caches");

  fmt::print("\nadding up 4096 floats that are in the first cache\n");
  volatile float kept = 0;  // so that the compiler does not drop the sums
  using Sum = float (*)(const float*, int64_t);
  for (const auto& [name, f] :
       std::map<std::string, Sum>{{"1 sum", one_sum}, {"4 sums", four_sums}, {"vectors", vector_sums}}) {
    const double seconds = quickest({[&, sum = f] { kept = sum(x, 4096); }})[0];
    fmt::print("{:10} measured {:6.3f} ns for each, {:6.1f} GB/s\n", name, seconds / 4096 * 1e9,
               4096 * 4 / seconds / 1e9);
  }
  fmt::print("lanes of a vector, measured on this processor: {}\n", Lanes(hn::ScalableTag<float>()));

  fmt::print("\n{} rows of {} floats: {} MiB in, {} MiB out\n", kRows, kLength, kRows * kLength * 4 >> 20,
             kRows * kLength * 4 >> 20);
  const std::vector<double> seconds = quickest({[&] { copy(x, y, 0, kRows); }, [&] { centre_in_two_passes(x, y); },
                                                [&] { centre_rows(x, y, 0, kRows); }, [&] { on_all_cores(copy, x, y); },
                                                [&] { on_all_cores(centre_rows, x, y); }});
  bars.clear();
  const auto line = [&](const std::string& name, double share) {
    fmt::print("{:24} measured {:4.0f} % of a copy {}\n", name, 100 * share, bar(share));
    bars.push_back({.name = name, .value = share, .text = fmt::format("{:.0f} %", 100 * share)});
  };
  line("two passes, one core", seconds[0] / seconds[1]);
  line("row by row, one core", seconds[0] / seconds[2]);
  line("row by row, all cores", seconds[3] / seconds[4]);
  lessons::bar_chart("Centring rows beside a copy", "Row by row comes closer to a copy by as many cores.",
                     "measured: share of a copy", bars)
      .save(lessons::picture_folder(argc, argv), "shares");
}
