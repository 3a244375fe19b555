#include "ops/pointwise/cuda/dispatch.h"
#include "ops/pointwise/cuda/map.h"
#include "ops/pointwise/functions.h"
#include "ops/pointwise/integer_functions.h"

namespace norma::kernels::NORMA_BACKEND {

void unary(Unary f, DType dtype, const Sizes& sizes, const Operand& y, const Operand& x, const Scalars& scalars) {
  dispatch_numeric("unary", dtype, [&]<class S>(S) {
    const auto run = [&](auto function) { map<S, S>(sizes, function, y, x); };
    if constexpr (std::is_integral_v<S>) {
      with_integer_unary_function<S>(f, scalars, run);
    } else {
      with_unary_function<compute_t<S>>(f, scalars, run);
    }
  });
}

}  // namespace norma::kernels::NORMA_BACKEND
