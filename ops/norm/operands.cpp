#include "ops/norm/operands.h"

#include "core/copy.h"

namespace norma::norm_detail {

Tensor converted(const Tensor& x, DType dtype) {
  return !x.defined() || x.dtype() == dtype ? x : copy_of(x, MemoryFormat::preserve, dtype);
}

Tensor in_float64(const Tensor& x) {
  return x.defined() ? contiguous_copy(converted(x, DType::float64)) : x;
}

}  // namespace norma::norm_detail
