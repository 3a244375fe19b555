#include "ops/pointwise/cuda/dispatch.h"
#include "ops/pointwise/cuda/map.h"
#include "ops/pointwise/functions.h"

namespace norma::kernels::NORMA_BACKEND {

void unary_backward(Unary f, DType dtype, const Sizes& sizes, const Operand& dx, const Operand& saved,
                    const Operand& dy, const Scalars& scalars) {
  dispatch_any_floating("unary_backward", dtype, [&]<class S>(S) {
    with_unary_derivative<compute_t<S>>(f, scalars,
                                        [&](auto function) { map<S, S, S>(sizes, function, dx, saved, dy); });
  });
}

}  // namespace norma::kernels::NORMA_BACKEND
