#include "ops/shape/copy.h"

#include "core/base_ops.h"
#include "core/copy.h"
#include "core/op.h"

namespace norma {
namespace {

void check_format(std::string_view op, const Tensor& x, MemoryFormat format) {
  check_defined(op, "x", x);
  if (format == MemoryFormat::channels_last) {
    check_rank(op, "x", x, 4);
  }
}

/// Puts a copy of x on the tape. The gradient gets x's format back, so that a later op that wants another format does
/// not change the format of an activation's gradient.
Tensor recorded_copy(const Op& op, const Tensor& x, const Tensor& y) {
  return op.record({x}, y, {}, [format = x.suggest_memory_format()](const Tensor& dy, const BackwardContext&) {
    return Tensors{dy.suggest_memory_format() == format ? dy : to(dy, format)};
  });
}

}  // namespace

Tensor clone(const Tensor& x, MemoryFormat format) {
  const Op op("clone");
  check_format(op, x, format);
  return recorded_copy(op, x, copy_of(x, format));
}

Tensor contiguous(const Tensor& x, MemoryFormat format) {
  const Op op("contiguous");
  check_format(op, x, format);
  check(format != MemoryFormat::preserve, op, "format: expected contiguous or channels_last, got preserve");
  return x.is_contiguous(format) ? x : recorded_copy(op, x, copy_of(x, format));
}

Tensor to(const Tensor& x, MemoryFormat format) {
  const Op op("to");
  check_format(op, x, format);
  const bool has_format = format == MemoryFormat::preserve || x.strides() == strides_for(x.sizes(), format);
  return has_format ? x : recorded_copy(op, x, copy_of(x, format));
}

Tensor to(const Tensor& x, DType dtype) {
  return cast(x, dtype);
}

Tensor to(const Tensor& x, Device device) {
  const Op op("to");
  check_defined(op, "x", x);
  check_available(op, device);
  if (x.device() == device) {
    return x;
  }
  return op.record({x}, to_device(x, device), {},
                   [from = x.device(), format = x.suggest_memory_format()](const Tensor& dy, const BackwardContext&) {
                     const Tensor dx = to(dy, from);
                     return Tensors{dx.suggest_memory_format() == format ? dx : to(dx, format)};
                   });
}

}  // namespace norma
