#include "core/cast.h"

#include "core/copy.h"
#include "core/op_profile.h"
#include "core/tape.h"

namespace norma {

Tensor record_cast(const Tensor& x, const Tensor& values) {
  if (!is_floating(values.dtype())) {
    return values;  // a step function has no gradient
  }
  return record("to", {x}, values, {},
                [from = x.dtype()](const Tensor& dy, const BackwardContext&) -> Tensors { return {cast(dy, from)}; });
}

Tensor cast(const Tensor& x, DType dtype) {
  check_defined("to", "x", x);
  if (x.dtype() == dtype) {
    return x;
  }
  Tensor values;
  {
    const OpScope scope([&] {
      const double each = static_cast<double>(size_of(dtype)) / static_cast<double>(size_of(x.dtype()));
      return OpWork{.op = "to", .bytes = bytes_of(x) * (1 + each)};
    });
    values = copy_of(x, MemoryFormat::preserve, dtype);
  }
  return record_cast(x, values);
}

}  // namespace norma
