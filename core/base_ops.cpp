#include "core/base_ops.h"

#include "core/copy.h"
#include "core/factory.h"
#include "core/kernels.h"
#include "core/op_profile.h"
#include "core/strided_loop.h"
#include "core/tape.h"

namespace norma {

namespace {

void add_elements(const Tensor& out, const Tensor& a, const Tensor& b) {
  if (out.numel() == 0) {
    return;
  }
  const OpScope scope([&] { return OpWork{.op = "accumulate", .bytes = bytes_of(out, a, b)}; });
  const auto loop = make_strided_loop<3>(out.sizes(), {out.strides(), a.strides(), b.strides()});
  kernels::tensor_kernels.at("accumulate", out.device())
      ->add(loop, out.dtype(), out.device_pointer(), a.device_pointer(), b.device_pointer());
}

}  // namespace

Tensor record_cast(const Tensor& x, const Tensor& values) {
  if (!is_floating(values.dtype())) {
    return values;  // a step function has no gradient
  }
  return record("to", {x}, values, {},
                [from = x.dtype()](const Tensor& dy, const BackwardContext&) -> Tensors { return {cast(dy, from)}; });
}

Tensor record_cast_of_leaf(const Tensor& leaf, const Tensor& values) {
  return record("to", {leaf}, values, {},
                [from = leaf.dtype()](const Tensor& dy, const BackwardContext& context) -> Tensors {
                  return {context.create_graph() ? cast(dy, from) : dy};
                });
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

Tensor accumulate(const Tensor& a, const Tensor& b) {
  check_sizes("accumulate", "b", b, a.sizes());
  check_dtype("accumulate", "b", b, a.dtype());
  check_device("accumulate", "b", b, a.device());
  const bool a_is_dense = is_non_overlapping_and_dense(a);
  Tensor result = empty_like(a_is_dense ? a : b);
  add_elements(result, a, b);
  return record("accumulate", {a, b}, result, {}, [](const Tensor& gradient, const BackwardContext&) -> Tensors {
    return {gradient, gradient};
  });
}

void accumulate_into(const Tensor& sum, const Tensor& x) {
  add_elements(sum, sum, x);
  sum.bump_version();
}

}  // namespace norma
