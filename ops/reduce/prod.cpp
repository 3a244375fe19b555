#include "core/factory.h"
#include "core/op.h"
#include "core/strided_loop.h"
#include "ops/pointwise/pointwise.h"
#include "ops/reduce/kernels.h"
#include "ops/reduce/reduce.h"
#include "ops/shape/copy.h"
#include "ops/shape/pad.h"
#include "ops/shape/view.h"

namespace norma {
namespace {

/// The axes that stay, then the reduced ones.
Axes reduced_last(int64_t rank, const Axes& reduced) {
  Axes order;
  for (int64_t axis = 0; axis < rank; ++axis) {
    if (!reduced.contains(axis)) {
      order.push_back(axis);
    }
  }
  for (const int64_t axis : reduced) {
    order.push_back(axis);
  }
  return order;
}

/// x (sets, count) -> the product of the elements before each (or behind it) in its row. It doubles: after step k every
/// element holds the product of its 2^k neighbours. It does not divide, so zeros do no harm, neither to derivatives.
Tensor products_of_others(const Tensor& x, bool before) {
  const int64_t count = x.size(1);
  const auto shifted = [&](const Tensor& t, int64_t by) {
    const Sizes front{0, before ? by : -by};
    const Sizes back{0, before ? -by : by};
    return pad(t, front, back, 1);
  };
  Tensor products = shifted(x, 1);
  for (int64_t step = 1; step < count; step *= 2) {
    products = mul(products, shifted(products, step));
  }
  return products;
}

/// dy times the product of all other elements of each set; written in differentiable functions.
Tensor prod_backward(const Tensor& x, const Tensor& dy, const Axes& axes, const Sizes& kept, int64_t count) {
  const Axes order = reduced_last(x.rank(), axes);
  const Tensor ordered = permute(x, order);
  // Uses float64 as the product itself does: numbers on the way may leave the range of x's dtype.
  const Tensor rows = to(reshape(ordered, {count == 0 ? 0 : x.numel() / count, count}), DType::float64);
  const Tensor others =
      mul(products_of_others(rows, /* before= */ true), products_of_others(rows, /* before= */ false));
  Axes inverse = order;
  for (int64_t i = 0; i < order.size(); ++i) {
    inverse[order[i]] = i;
  }
  const Tensor dx = mul(permute(reshape(others, ordered.sizes()), inverse), reshape(dy, kept));
  return to(to(dx, dy.dtype()), x.suggest_memory_format());
}

}  // namespace

Tensor prod(const Tensor& input, const Axes& unsorted_axes, const ReduceOptions& options) {
  Op op("prod");
  const Tensor x = op.input("x", input);
  if (!is_floating(x.dtype()) && x.dtype() != DType::int64) {
    return prod(to(x, DType::int64), unsorted_axes, options);
  }
  const Axes axes = normalize_axes(op, unsorted_axes, x.rank());
  Sizes kept = x.sizes();
  Sizes squeezed;
  int64_t count = 1;
  for (int64_t axis = 0; axis < x.rank(); ++axis) {
    if (axes.contains(axis)) {
      count *= x.size(axis);
      kept[axis] = 1;
    } else {
      squeezed.push_back(x.size(axis));
    }
  }
  const MemoryFormat format = options.keepdim ? x.suggest_memory_format() : MemoryFormat::contiguous;
  const Tensor y = empty(kept, {.dtype = x.dtype(), .device = x.device(), .format = format});
  if (x.numel() == 0) {
    fill_(y, 1);
  } else {
    const kernels::ReduceShape shape{.sizes = x.sizes(),
                                     .x_strides = x.strides(),
                                     .y_strides = broadcast_strides(y.sizes(), y.strides(), x.sizes())};
    op.run(kernels::reduce_kernels, x, y)->product(shape, x.dtype(), x.device_pointer(), y.device_pointer());
  }
  const Tensor result = options.keepdim ? y : alias(y, squeezed, contiguous_strides(squeezed), 0);
  op.describe({{"axes", axes}, {"keepdim", options.keepdim}});
  return op.record({x}, result, {x}, [axes, kept, count](const Tensor& dy, const BackwardContext& c) {
    return Tensors{prod_backward(c.saved(0), dy, axes, kept, count)};
  });
}

}  // namespace norma
