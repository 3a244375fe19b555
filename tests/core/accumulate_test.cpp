#include "core/kernels.h"
#include "support.h"

#include <cstdint>
#include <memory>
#include <vector>

using namespace norma;

namespace {

template <class S>
void check_sums(S) {
  using T = compute_t<S>;
  // Sizes around the vector width, in memory of exactly that size; 2: every second number.
  for (const int64_t count : {1, 7, 8, 9, 15, 16, 17, 33, 100}) {
    for (const int64_t step : {1, 2}) {
      CAPTURE(count);
      CAPTURE(step);
      const auto size = static_cast<size_t>((count - 1) * step + 1);
      const auto a = std::make_unique<S[]>(size);
      const auto b = std::make_unique<S[]>(size);
      const auto sum = std::make_unique<S[]>(size);
      for (size_t i = 0; i < size; ++i) {
        a[i] = static_cast<S>(T(1) + static_cast<T>(i) / T(7));
        b[i] = static_cast<S>(T(-3) / (T(2) + static_cast<T>(i)));
      }
      const Strides strides{step};
      const auto loop = make_strided_loop<3>({count}, {strides, strides, strides});
      kernels::tensor_cpu.add(loop, dtype_of<S>(), sum.get(), a.get(), b.get());
      int64_t wrong = 0;
      for (int64_t i = 0; i < count; ++i) {
        const auto at = static_cast<size_t>(i * step);
        const S expected = static_cast<S>(static_cast<T>(a[at]) + static_cast<T>(b[at]));
        wrong += static_cast<T>(sum[at]) == static_cast<T>(expected) ? 0 : 1;
      }
      CHECK(wrong == 0);
    }
  }
}

}  // namespace

TEST_CASE("accumulate: every element is the rounded sum of two, for any count, dense and with gaps") {
  check_sums(0.0F);
  check_sums(0.0);
  check_sums(bfloat16{});
  check_sums(float16{});
}
