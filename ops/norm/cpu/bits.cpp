#include "core/half.h"
#include "core/parallel.h"
#include "ops/norm/cpu/walks.h"
#include "ops/norm/kernels.h"

#include <algorithm>

// One bit per element tells whether relu has let it pass.

namespace norma::kernels::cpu {

namespace {

/// Calls f(byte, first element, how many) for the bytes of `count` bits, on all threads.
template <class F>
void for_each_byte(int64_t count, F&& f) {
  parallel_for(0, ceil_div(count, 8), kPointwiseGrain / 8, [&](int64_t begin, int64_t end) {
    for (int64_t byte = begin; byte < end; ++byte) {
      f(byte, 8 * byte, std::min<int64_t>(8, count - 8 * byte));
    }
  });
}

}  // namespace

void positive_bits(DType dtype, int64_t count, const void* y, uint8_t* bits) {
  dispatch_any_floating("normalize", dtype, [&](auto s) {
    using S = decltype(s);
    const S* from = static_cast<const S*>(y);
    for_each_byte(count, [&](int64_t byte, int64_t first, int64_t elements) {
      unsigned packed = 0;
      for (int64_t i = 0; i < elements; ++i) {
        packed |= (static_cast<compute_t<S>>(from[first + i]) <= 0 ? 0U : 1U) << i;
      }
      bits[byte] = static_cast<uint8_t>(packed);
    });
  });
}

void mask_by_bits(DType dtype, int64_t count, const uint8_t* bits, const void* dy, void* dz) {
  dispatch_any_floating("normalize", dtype, [&](auto s) {
    using S = decltype(s);
    const S* from = static_cast<const S*>(dy);
    S* to = static_cast<S*>(dz);
    for_each_byte(count, [&](int64_t byte, int64_t first, int64_t elements) {
      const unsigned packed = bits[byte];
      for (int64_t i = 0; i < elements; ++i) {
        to[first + i] = ((packed >> i) & 1U) != 0 ? from[first + i] : S{};
      }
    });
  });
}

}  // namespace norma::kernels::cpu
