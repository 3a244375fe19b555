#include "ops/shape/copy.h"

#include "core/base_ops.h"
#include "core/copy.h"
#include "core/tape.h"

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
Tensor recorded_copy(std::string_view op, const Tensor& x, const Tensor& y) {
  return record(op, {x}, y, {}, [format = x.suggest_memory_format()](const Tensor& dy, const BackwardContext&) {
    return Tensors{dy.suggest_memory_format() == format ? dy : to(dy, format)};
  });
}

}  // namespace

Tensor clone(const Tensor& x, MemoryFormat format) {
  check_format("clone", x, format);
  return recorded_copy("clone", x, copy_of(x, format));
}

Tensor contiguous(const Tensor& x, MemoryFormat format) {
  check_format("contiguous", x, format);
  check(format != MemoryFormat::preserve, "contiguous", "format: expected contiguous or channels_last, got preserve");
  return x.is_contiguous(format) ? x : recorded_copy("contiguous", x, copy_of(x, format));
}

Tensor to(const Tensor& x, MemoryFormat format) {
  check_format("to", x, format);
  const bool has_format = format == MemoryFormat::preserve || x.strides() == strides_for(x.sizes(), format);
  return has_format ? x : recorded_copy("to", x, copy_of(x, format));
}

Tensor to(const Tensor& x, DType dtype) {
  return cast(x, dtype);
}

Tensor to(const Tensor& x, Device device) {
  check_defined("to", "x", x);
  check_available("to", device);
  if (x.device() == device) {
    return x;
  }
  return record("to", {x}, to_device(x, device), {},
                [from = x.device(), format = x.suggest_memory_format()](const Tensor& dy, const BackwardContext&) {
                  const Tensor dx = to(dy, from);
                  return Tensors{dx.suggest_memory_format() == format ? dx : to(dx, format)};
                });
}

}  // namespace norma
