#include "core/base_ops.h"

#include "core/copy.h"
#include "core/factory.h"
#include "core/kernels.h"
#include "core/op.h"
#include "core/strided_loop.h"

namespace norma {

namespace {

void add_elements(const Op& op, const Tensor& out, const Tensor& a, const Tensor& b) {
  if (out.numel() != 0) {
    const auto loop = make_strided_loop<3>(out.sizes(), {out.strides(), a.strides(), b.strides()});
    op.run(kernels::tensor_kernels, out, a, b)
        ->add(loop, out.dtype(), out.device_pointer(), a.device_pointer(), b.device_pointer());
  }
}

}  // namespace

Tensor record_cast(const Tensor& x, const Tensor& values) {
  if (!is_floating(values.dtype())) {
    return values;  // a step function has no gradient
  }
  return Op("to").record({x}, values, {}, [from = x.dtype()](const Tensor& dy, const BackwardContext&) -> Tensors {
    return {cast(dy, from)};
  });
}

Tensor record_cast_of_leaf(const Tensor& leaf, const Tensor& values) {
  return Op("to").record({leaf}, values, {},
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
  const Op op("accumulate");
  check_like(op, "b", b, a.sizes(), a);
  const bool a_is_dense = is_non_overlapping_and_dense(a);
  Tensor result = empty_like(a_is_dense ? a : b);
  add_elements(op, result, a, b);
  return op.record({a, b}, result, {}, [](const Tensor& gradient, const BackwardContext&) -> Tensors {
    return {gradient, gradient};
  });
}

void accumulate_into(const Tensor& sum, const Tensor& x) {
  add_elements(Op("accumulate"), sum, sum, x);
  sum.bump_version();
}

}  // namespace norma
