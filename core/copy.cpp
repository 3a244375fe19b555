#include "core/copy.h"

#include "core/device_functions.h"
#include "core/factory.h"
#include "core/kernels.h"
#include "core/op_profile.h"
#include "core/strided_loop.h"
#include "core/tape.h"

namespace norma {

void copy_into(const Tensor& src, const Tensor& dst) {
  check_defined("copy_into", "src", src);
  check_defined("copy_into", "dst", dst);
  if (broadcast_sizes("copy_into", src.sizes(), dst.sizes()) != dst.sizes()) {
    fail("copy_into", "src: expected sizes that broadcast to {}, got {}", dst.sizes(), src.sizes());
  }
  if (src.device() != dst.device()) {
    return copy_into(to_device(src, dst.device()), dst);
  }
  dst.bump_version();
  if (dst.numel() == 0) {
    return;
  }
  const Strides read = broadcast_strides(src.sizes(), src.strides(), dst.sizes());
  const OpScope scope([&] {
    return OpWork{.op = "copy",
                  .bytes = bytes_of(src, dst),
                  .call = CopyCall{.sizes = dst.sizes(),
                                   .from = read,
                                   .to = dst.strides(),
                                   .from_dtype = src.dtype(),
                                   .to_dtype = dst.dtype(),
                                   .node = next_node_number()}};
  });
  const auto loop = make_strided_loop<2>(dst.sizes(), {dst.strides(), read});
  kernels::tensor_kernels.at("copy_into", dst.device())
      ->copy(loop, dst.dtype(), dst.device_pointer(), src.dtype(), src.device_pointer());
}

Tensor copy_of(const Tensor& x, MemoryFormat format) {
  return copy_of(x, format, x.dtype());
}

Tensor copy_of(const Tensor& x, MemoryFormat format, DType dtype) {
  return copy_of(
      x, format == MemoryFormat::preserve ? preserved_strides(x.sizes(), x.strides()) : strides_for(x.sizes(), format),
      dtype);
}

Tensor copy_of(const Tensor& x, const Strides& strides, DType dtype) {
  Tensor result = empty_strided(x.sizes(), strides, {.dtype = dtype, .device = x.device()});
  copy_into(x, result);
  return result;
}

Tensor contiguous_copy(const Tensor& x, MemoryFormat format) {
  return !x.defined() || x.is_contiguous(format) ? x : copy_of(x, format);
}

Tensor to_device(const Tensor& x, Device device) {
  check_defined("to_device", "x", x);
  check_available("to_device", device);
  if (x.device() == device) {
    return x;
  }
  if (!is_host(x.device()) && !is_host(device)) {
    return to_device(to_device(x, kCpu), device);
  }
  const Tensor dense = is_non_overlapping_and_dense(x) ? x : copy_of(x);
  Tensor result = empty_strided(dense.sizes(), dense.strides(), {.dtype = x.dtype(), .device = device});
  const auto bytes = static_cast<size_t>(x.numel()) * size_of(x.dtype());
  if (bytes == 0) {
    return result;
  }
  const OpScope scope([&] { return OpWork{.op = "to_device", .bytes = bytes_of(x, result)}; });
  if (is_host(device)) {
    device_functions.at("to_device", x.device())->to_host(result.device_pointer(), dense.device_pointer(), bytes);
  } else {
    device_functions.at("to_device", device)->from_host(result.device_pointer(), dense.device_pointer(), bytes);
  }
  return result;
}

void copy_from_host(const Tensor& x, const Tensor& to) {
  check(is_host(x.device()) && is_non_overlapping_and_dense(x), "copy_from_host",
        "x: expected a dense tensor of the host, got {}", describe(x));
  check_sizes("copy_from_host", "x", x, to.sizes());
  check_dtype("copy_from_host", "x", x, to.dtype());
  check(x.strides() == to.strides(), "copy_from_host", "x: expected the strides of `to`, got {} for {}", describe(x),
        describe(to));
  to.bump_version();
  const auto bytes = static_cast<size_t>(x.numel()) * size_of(x.dtype());
  if (bytes > 0) {
    device_functions.at("copy_from_host", to.device())->from_host(to.device_pointer(), x.device_pointer(), bytes);
  }
}

Tensor converted(const Tensor& x, DType dtype) {
  return !x.defined() || x.dtype() == dtype ? x : copy_of(x, MemoryFormat::preserve, dtype);
}

Tensor in_float64(const Tensor& x) {
  return contiguous_copy(converted(x, DType::float64));
}

}  // namespace norma
