#include "ops/shape/join.h"

#include "core/copy.h"
#include "core/factory.h"
#include "core/op.h"
#include "ops/pointwise/pointwise.h"
#include "ops/shape/kernels.h"
#include "ops/shape/view.h"

namespace norma {
namespace {

std::string numbered(size_t i) {
  return fmt::format("xs[{}]", i);
}

/// Throws unless index is int64 of rank 1 with values in [0, size).
void check_index(std::string_view op, const Tensor& index, int64_t size, Device device) {
  check_dtype(op, "index", index, DType::int64);
  check_rank(op, "index", index, 1);
  check_device(op, "index", index, device);
  const std::vector<int64_t> values = index.to_vector<int64_t>();
  for (size_t i = 0; i < values.size(); ++i) {
    check(values[i] >= 0 && values[i] < size, op, "index: expected values in [0, {}), got {} at position {}", size,
          values[i], i);
  }
}

kernels::IndexShape index_shape(const Tensor& x, const Tensor& y, int64_t axis) {
  return {.sizes = x.sizes().without(axis),
          .x_strides = x.strides().without(axis),
          .y_strides = y.strides().without(axis),
          .x_step = x.stride(axis),
          .y_step = y.stride(axis),
          .count = y.size(axis)};
}

/// index_select() with a checked, dense index.
Tensor selected(const Tensor& x, int64_t axis, const Tensor& index);

/// The gradient of index_select: row i of dy is added to row index[i] of zeros.
Tensor index_add(const Tensor& dy, int64_t axis, const Tensor& index, const Sizes& sizes, MemoryFormat format) {
  const Op op("index_add");
  const Tensor dx = zeros(sizes, {.dtype = dy.dtype(), .device = dy.device(), .format = format});
  op.run(kernels::index_kernels, dy, dx)
      ->add(index_shape(dx, dy, axis), dy.dtype(), dx.device_pointer(), index.device_pointer<int64_t>(),
            dy.device_pointer());
  return op.record({dy}, dx, {index}, [axis](const Tensor& ddx, const BackwardContext& c) {
    return Tensors{selected(ddx, axis, c.saved(0))};
  });
}

Tensor selected(const Tensor& x, int64_t axis, const Tensor& index) {
  Op op("index_select");
  Sizes sizes = x.sizes();
  sizes[axis] = index.numel();
  const MemoryFormat format = x.suggest_memory_format();
  const Tensor y = empty(sizes, {.dtype = x.dtype(), .device = x.device(), .format = format});
  op.run(kernels::index_kernels, y, y)
      ->select(index_shape(x, y, axis), x.dtype(), x.device_pointer(), index.device_pointer<int64_t>(),
               y.device_pointer());
  op.describe({{"axis", axis}, {"index", &index}});
  return op.record({x}, y, {index}, [axis, from = x.sizes(), format](const Tensor& dy, const BackwardContext& c) {
    return Tensors{index_add(dy, axis, c.saved(0), from, format)};
  });
}

}  // namespace

Tensor cat(const Tensors& xs, int64_t axis) {
  Op op("cat");
  check(!xs.empty(), op, "xs: expected at least one tensor, got none");
  for (size_t i = 0; i < xs.size(); ++i) {
    check_defined(op, numbered(i), xs[i]);
  }
  const Tensor& first = xs[0];
  axis = normalize_axis(op, axis, first.rank());
  Sizes sizes = first.sizes();
  sizes[axis] = 0;
  bool channels_last = true;
  std::vector<int64_t> lengths;
  for (size_t i = 0; i < xs.size(); ++i) {
    const Tensor& x = xs[i];
    check_dtype(op, numbered(i), x, first.dtype());
    check_device(op, numbered(i), x, first.device());
    check_rank(op, numbered(i), x, first.rank());
    Sizes expected = first.sizes();
    expected[axis] = x.size(axis);
    check(x.sizes() == expected, op, "{}: expected sizes {} but for axis {}, got {}", numbered(i), first.sizes(), axis,
          x.sizes());
    lengths.push_back(x.size(axis));
    sizes[axis] = checked_add(op, "xs", sizes[axis], x.size(axis));
    channels_last = channels_last && x.suggest_memory_format() == MemoryFormat::channels_last;
  }
  const Tensor y = empty(sizes, {.dtype = first.dtype(),
                                 .device = first.device(),
                                 .format = channels_last ? MemoryFormat::channels_last : MemoryFormat::contiguous});
  int64_t start = 0;
  for (const Tensor& x : xs) {
    copy_into(x, part_of(y, axis, start, x.size(axis)));
    start += x.size(axis);
  }
  op.describe({{"axis", axis}});
  return op.record(xs, y, {}, [axis, lengths](const Tensor& dy, const BackwardContext& c) {
    Tensors gradients;
    int64_t position = 0;
    for (size_t i = 0; i < lengths.size(); ++i) {
      gradients.push_back(c.needs_grad(i) ? narrow(dy, axis, position, lengths[i]) : Tensor());
      position += lengths[i];
    }
    return gradients;
  });
}

Tensor stack(const Tensors& xs, int64_t axis) {
  check(!xs.empty(), "stack", "xs: expected at least one tensor, got none");
  Tensors raised;
  for (size_t i = 0; i < xs.size(); ++i) {
    check_defined("stack", numbered(i), xs[i]);
    check_sizes("stack", numbered(i), xs[i], xs[0].sizes());
    raised.push_back(unsqueeze(xs[i], normalize_axis("stack", axis, xs[0].rank() + 1)));
  }
  return cat(raised, axis);
}

Tensor index_select(const Tensor& x, int64_t axis, const Tensor& index) {
  check_defined("index_select", "x", x);
  axis = normalize_axis("index_select", axis, x.rank());
  check_index("index_select", index, x.size(axis), x.device());
  return selected(x, axis, contiguous_copy(index));
}

Tensor gather_rows(const Tensor& x, const Tensor& index) {
  check_rank("gather_rows", "x", x, 2);
  check_index("gather_rows", index, x.size(1), x.device());
  check_sizes("gather_rows", "index", index, {x.size(0)});
  // Element index[i] of row i is element i · C + index[i] of all.
  const Tensor place = add(mul(arange(x.size(0), DType::int64, x.device()), static_cast<double>(x.size(1))), index);
  return selected(reshape(x, {-1}), 0, place);
}

}  // namespace norma
