// Your kernel beside a copy: how close is it to the limit?
#include <norma/norma.h>

#include <fmt/format.h>

#include <cstdint>
#include <cstring>
#include <exception>
#include <string>
#include <vector>

#include "clock.h"
#include "exercise.h"

using namespace norma;  // NOLINT: a lesson reads better without prefixes

int main() {
  constexpr int64_t kRows = 8192;
  constexpr int64_t kLength = 1024;
  const Tensor x = randn({kRows, kLength});
  const Tensor y = empty_like(x);
  const auto copy = [&] {
    parallel_for(0, kRows, 1, [&](int64_t first, int64_t last) {
      for (int64_t row = first; row < last; ++row) {
        std::memcpy(y.data<float>() + row * kLength, x.data<float>() + row * kLength, kLength * sizeof(float));
      }
    });
  };
  try {
    const std::vector<double> seconds =
        quickest({copy, [&] { (void)layer_norm(x, {kLength}); },
                  [&] { norm_rows(x.data<float>(), kRows, kLength, y.data<float>()); }});
    const char* const names[] = {"a copy", "Norma's layer norm", "your kernel"};
    for (size_t i = 0; i < seconds.size(); ++i) {
      const double share = seconds[0] / seconds[i];
      fmt::print("{:20} {:6.1f} GB/s, {:3.0f} % of a copy {}\n", names[i], 2.0 * kRows * kLength * 4 / seconds[i] / 1e9,
                 100 * share, bar(share));
    }
  } catch (const std::exception& error) {
    fmt::print("your kernel: {}\n", error.what());
    return 1;
  }
}
