#include "ops/reduce/cpu/argmax.h"

#include "core/parallel.h"
#include "ops/reduce/cpu/walk.h"

#include <algorithm>

namespace norma::kernels::cpu {

void argmax(const Sizes& sizes, const Strides& x_strides, int64_t length, int64_t stride, bool last, DType dtype,
            const void* x, int64_t* y) {
  dispatch_numeric("argmax", dtype, [&]<class T>(T) {
    const int64_t grain = std::max<int64_t>(kTaskElements / length, 1);
    parallel_for(0, sizes.numel(), grain, [&](int64_t begin, int64_t end) {
      Odometer position(sizes, x_strides, begin);
      for (int64_t output = begin; output < end; ++output) {
        const T* row = static_cast<const T*>(x) + position.offset();
        int64_t best = 0;
        auto largest = static_cast<compute_t<T>>(row[0]);
        for (int64_t i = 1; i < length && (last || largest == largest); ++i) {
          const auto value = static_cast<compute_t<T>>(row[i * stride]);
          const bool is_better = value > largest || (last && value == largest && largest == largest);
          if (is_better || value != value) {
            best = i;
            largest = value;
          }
        }
        y[output] = best;
        position.next();
      }
    });
  });
}

}  // namespace norma::kernels::cpu
