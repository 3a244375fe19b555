#include "core/kernels.h"

#include <doctest/doctest.h>

#include <cmath>
#include <cstdint>
#include <memory>

using namespace norma;

namespace {

template <class To, class From>
void check_runs() {
  // Sizes around the vector width, in memory of exactly that size; 2: every second number.
  for (const int64_t count : {1, 7, 8, 9, 15, 16, 17, 31, 33, 100}) {
    for (const int64_t step : {1, 2}) {
      CAPTURE(count);
      CAPTURE(step);
      const auto size = static_cast<size_t>((count - 1) * step + 1);
      const auto from = std::make_unique<From[]>(size);
      const auto to = std::make_unique<To[]>(size);
      for (size_t i = 0; i < size; ++i) {
        const float value = 1.0F + static_cast<float>(i * i) / 7.0F;
        from[i] = static_cast<From>(i % 3 == 1 ? -1e-7F * value : i % 11 == 5 ? NAN : value * value);
      }
      const Strides strides{step};
      const auto loop = make_strided_loop<2>({count}, {strides, strides});
      kernels::tensor_cpu.copy(loop, dtype_of<To>(), to.get(), dtype_of<From>(), from.get());
      int64_t wrong = 0;
      for (int64_t i = 0; i < count; ++i) {
        const auto at = static_cast<size_t>(i * step);
        const auto got = static_cast<compute_t<To>>(to[at]);
        const auto expected =
            static_cast<compute_t<To>>(static_cast<To>(static_cast<float>(static_cast<compute_t<From>>(from[at]))));
        wrong += got == expected || (std::isnan(got) && std::isnan(expected)) ? 0 : 1;
      }
      CHECK(wrong == 0);
    }
  }
}

}  // namespace

TEST_CASE("copy: 16 bits and float32 into each other, for any count, dense and with gaps") {
  check_runs<float, bfloat16>();
  check_runs<float, float16>();
  check_runs<bfloat16, float>();
  check_runs<float16, float>();
  check_runs<float16, bfloat16>();
  check_runs<bfloat16, float16>();
}
