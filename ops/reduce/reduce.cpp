#include "ops/reduce/reduce.h"

#include "core/factory.h"
#include "core/op.h"
#include "core/strided_loop.h"
#include "ops/pointwise/pointwise.h"
#include "ops/reduce/kernels.h"
#include "ops/shape/copy.h"
#include "ops/shape/pad.h"
#include "ops/shape/view.h"

namespace norma {
namespace {

/// One reduction, worked out from its arguments.
struct Plan {
  Axes axes;          ///< normalized
  Sizes kept;         ///< x's sizes with 1 for the reduced axes
  Sizes squeezed;     ///< without the reduced axes
  int64_t count = 1;  ///< elements per output
};

Plan make_plan(std::string_view op, const Tensor& x, const Axes& axes) {
  check_defined(op, "x", x);
  Plan plan{.axes = normalize_axes(op, axes, x.rank()), .kept = x.sizes(), .squeezed = {}};
  for (int64_t axis = 0; axis < x.rank(); ++axis) {
    if (plan.axes.contains(axis)) {
      plan.count *= x.sizes()[axis];
      plan.kept[axis] = 1;
    } else {
      plan.squeezed.push_back(x.sizes()[axis]);
    }
  }
  return plan;
}

/// An output that keeps the reduced axes. It can be channels_last only if they stay.
Tensor kept_output(const Tensor& x, const Plan& plan, bool keepdim, DType dtype) {
  const MemoryFormat format = keepdim ? x.suggest_memory_format() : MemoryFormat::contiguous;
  return empty(plan.kept, {.dtype = dtype, .device = x.device(), .format = format});
}

/// y = scale · f of x. mean: of kernels::Fold::squared_differences.
void fold_into(const KernelRun<kernels::ReduceKernels>& run, kernels::Fold f, const Tensor& x, const Tensor& y,
               double scale = 1, const double* mean = nullptr) {
  const kernels::ReduceShape shape{
      .sizes = x.sizes(), .x_strides = x.strides(), .y_strides = broadcast_strides(y.sizes(), y.strides(), x.sizes())};
  run->fold(f, shape, x.dtype(), x.device_pointer(), mean, y.device_pointer(), scale);
}

/// Drops the reduced axes, off the tape.
Tensor finish(const Tensor& y, const Plan& plan, bool keepdim) {
  return keepdim ? y : alias(y, plan.squeezed, contiguous_strides(plan.squeezed), 0);
}

void describe(Op& op, const Plan& plan, bool keepdim) {
  op.describe({{"axes", plan.axes}, {"keepdim", keepdim}});
}

/// The gradient of a sum: dy repeated along the reduced axes, in the format of x.
Tensor spread(const Tensor& dy, const Sizes& kept, const Sizes& sizes, MemoryFormat format) {
  const Tensor dx = expand(reshape(dy, kept), sizes);
  return format == MemoryFormat::channels_last ? to(dx, format) : dx;
}

/// dy · scale. A share of many elements is too small for 16 bits, where its product with dy need not be.
Tensor scaled(const Tensor& dy, double scale) {
  return scale == 1 ? dy : to(mul(to(dy, compute_dtype(dy.dtype())), scale), dy.dtype());
}

Tensor sum_times(Op& op, const Tensor& x, const Plan& plan, bool keepdim, double scale) {
  const Tensor y = kept_output(x, plan, keepdim, x.dtype());
  if (x.numel() == 0) {
    fill_(y, plan.count == 0 ? 0 * scale : 0);
  } else {
    fold_into(op.run(kernels::reduce_kernels, x, y), kernels::Fold::sum, x, y, scale);
  }
  describe(op, plan, keepdim);
  return op.record({x}, finish(y, plan, keepdim), {},
                   [kept = plan.kept, sizes = x.sizes(), format = x.suggest_memory_format(), scale](
                       const Tensor& dy, const BackwardContext&) {
                     return Tensors{spread(scaled(dy, scale), kept, sizes, format)};
                   });
}

}  // namespace

Tensor sum(const Tensor& input, const Axes& axes, const ReduceOptions& options) {
  Op op(named<"sum">);
  const Tensor x = op.input("x", input);
  const Plan plan = make_plan(op, x, axes);
  if (!is_floating(x.dtype()) && x.dtype() != DType::int64) {
    return sum(to(x, DType::int64), axes, options);
  }
  return sum_times(op, x, plan, options.keepdim, 1);
}

Tensor mean(const Tensor& input, const Axes& axes, const ReduceOptions& options) {
  Op op(named<"mean">);
  const Tensor x = op.input("x", input);
  const Plan plan = make_plan(op, x, axes);
  check_floating(op, "x", x);
  return sum_times(op, x, plan, options.keepdim, 1 / static_cast<double>(plan.count));
}

Tensor var(const Tensor& input, const Axes& axes, const VarOptions& options) {
  Op op(named<"var">);
  const Tensor x = op.input("x", input);
  const Plan plan = make_plan(op, x, axes);
  check_floating(op, "x", x);
  check(options.correction >= 0, op, "correction: expected at least 0, got {}", options.correction);
  check(plan.count > options.correction, op, "x: expected more than {} elements to reduce, got {} (sizes {}, axes {})",
        options.correction, plan.count, x.sizes(), plan.axes);
  if (is_half(x.dtype())) {  // a mean of few bits would spoil the differences
    return to(var(to(x, DType::float32), axes, options), x.dtype());
  }
  const double scale = 1 / static_cast<double>(plan.count - options.correction);
  const Tensor y = kept_output(x, plan, options.keepdim, x.dtype());
  const Tensor average = kept_output(x, plan, options.keepdim, DType::float64);  // rounded, its error would be in y
  if (x.numel() != 0) {
    const auto run = op.run(kernels::reduce_kernels, x, y);
    fold_into(run, kernels::Fold::sum_in_double, x, average, 1 / static_cast<double>(plan.count));
    fold_into(run, kernels::Fold::squared_differences, x, y, scale, average.device_pointer<double>());
  }
  // dx = dy · 2 (x - mean) / (count - correction); the mean's own gradient sums to zero.
  op.describe({{"correction", options.correction}});
  describe(op, plan, options.keepdim);
  return op.record(
      {x}, finish(y, plan, options.keepdim), {x, average}, [plan, scale](const Tensor& dy, const BackwardContext& c) {
        const auto [saved_x, saved_mean] = c.saved<2>();
        const Tensor center =
            c.create_graph() ? mean(saved_x, plan.axes, {.keepdim = true}) : to(saved_mean, saved_x.dtype());
        return Tensors{mul(sub(saved_x, center), reshape(mul(dy, 2 * scale), plan.kept))};
      });
}

Tensor max(const Tensor& input, const Axes& axes, const ReduceOptions& options) {
  Op op(named<"max">);
  const Tensor x = op.input("x", input);
  const Plan plan = make_plan(op, x, axes);
  check(plan.count > 0, op, "x: expected at least one element to reduce, got sizes {}, axes {}", x.sizes(), plan.axes);
  const Tensor y = kept_output(x, plan, options.keepdim, x.dtype());
  if (x.numel() != 0) {
    fold_into(op.run(kernels::reduce_kernels, x, y), kernels::Fold::max, x, y);
  }
  const Tensor result = finish(y, plan, options.keepdim);
  describe(op, plan, options.keepdim);
  return op.record({x}, result, {x, result}, [plan](const Tensor& dy, const BackwardContext& c) {
    const DType wide = compute_dtype(dy.dtype());  // float16 counts to 65504
    Tensor share;                                  // 1 / (number of equal maxima) at the maxima, else 0
    {
      const NoGradGuard constant;
      const auto [saved_x, saved_max] = c.saved<2>();
      const Tensor mask = to(equal(saved_x, reshape(saved_max, plan.kept)), wide);
      share = div(mask, sum(mask, plan.axes, {.keepdim = true}));
    }
    return Tensors{to(mul(share, reshape(to(dy, wide), plan.kept)), dy.dtype())};
  });
}

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

/// x (sets, count) -> the product of the elements before each (or after it) in its row. It doubles: after step k every
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
Tensor prod_backward(const Tensor& x, const Tensor& dy, const Plan& plan) {
  const Axes order = reduced_last(x.rank(), plan.axes);
  const Tensor ordered = permute(x, order);
  // Uses float64 as the product itself does: numbers on the way may leave the range of x's dtype.
  const Tensor rows = to(reshape(ordered, {plan.count == 0 ? 0 : x.numel() / plan.count, plan.count}), DType::float64);
  const Tensor others =
      mul(products_of_others(rows, /* before= */ true), products_of_others(rows, /* before= */ false));
  Axes inverse = order;
  for (int64_t i = 0; i < order.size(); ++i) {
    inverse[order[i]] = i;
  }
  const Tensor dx = mul(permute(reshape(others, ordered.sizes()), inverse), reshape(dy, plan.kept));
  return to(to(dx, dy.dtype()), x.suggest_memory_format());
}

}  // namespace

Tensor prod(const Tensor& input, const Axes& axes, const ReduceOptions& options) {
  Op op(named<"prod">);
  const Tensor x = op.input("x", input);
  if (!is_floating(x.dtype()) && x.dtype() != DType::int64) {
    return prod(to(x, DType::int64), axes, options);
  }
  const Plan plan = make_plan(op, x, axes);
  const Tensor y = kept_output(x, plan, options.keepdim, x.dtype());
  if (x.numel() == 0) {
    fill_(y, 1);
  } else {
    fold_into(op.run(kernels::reduce_kernels, x, y), kernels::Fold::product, x, y);
  }
  describe(op, plan, options.keepdim);
  return op.record({x}, finish(y, plan, options.keepdim), {x}, [plan](const Tensor& dy, const BackwardContext& c) {
    return Tensors{prod_backward(c.saved(0), dy, plan)};
  });
}

namespace {

/// argmax() with the axis kept or not.
Tensor index_of_largest(const Op& op, const Tensor& x, int64_t axis, const ArgmaxOptions& options) {
  const Plan plan = make_plan(op, x, {axis});
  check(plan.count > 0, op, "x: expected at least one element along axis {}, got sizes {}", axis, x.sizes());
  const Sizes sizes = x.sizes().without(axis);
  const Tensor y = empty(sizes, {.dtype = DType::int64, .device = x.device()});
  if (y.numel() != 0) {
    op.run(kernels::reduce_kernels, x, y)
        ->argmax(sizes, x.strides().without(axis), x.size(axis), x.stride(axis), options.last, x.dtype(),
                 x.device_pointer(), y.device_pointer<int64_t>());
  }
  if (!options.keepdim) {
    return y;
  }
  const Tensor kept = alias(y, plan.kept, contiguous_strides(plan.kept), 0);
  return x.suggest_memory_format() == MemoryFormat::channels_last ? to(kept, MemoryFormat::channels_last) : kept;
}

}  // namespace

Tensor argmax(const Tensor& x, int64_t axis, const ArgmaxOptions& options) {
  const Op op("argmax");
  check_defined(op, "x", x);
  if (x.rank() == 0) {  // one number along an axis that the result has not, either
    return index_of_largest(op, alias(x, {1}, {1}, x.offset()), normalize_axis(op, axis, 1), {.last = options.last});
  }
  return index_of_largest(op, x, normalize_axis(op, axis, x.rank()), options);
}

MaxAlong max_along(const Tensor& input, int64_t axis, const ArgmaxOptions& options) {
  const Op op(named<"max_along">);
  const Tensor x = op.input("x", input);
  if (x.rank() == 0) {
    return max_along(reshape(x, {1}), axis, {.last = options.last});
  }
  axis = normalize_axis(op, axis, x.rank());
  const Tensor index = index_of_largest(op, x, axis, {.last = options.last});
  const Plan plan = make_plan(op, x, {axis});
  const Tensor kept_index = alias(index, plan.kept, contiguous_strides(plan.kept), 0);
  const Tensor y = kept_output(x, plan, options.keepdim, x.dtype());
  if (x.numel() != 0) {
    fold_into(op.run(kernels::reduce_kernels, x, y), kernels::Fold::max, x, y);
  }
  const Tensor values = op.record({x}, finish(y, plan, options.keepdim), {kept_index},
                                  [axis, kept = plan.kept, sizes = x.sizes(), format = x.suggest_memory_format()](
                                      const Tensor& dy, const BackwardContext& c) {
                                    Sizes along = Sizes::filled(sizes.size(), 1);
                                    along[axis] = sizes[axis];
                                    const Tensor is_it = equal(
                                        c.saved(0), reshape(arange(sizes[axis], DType::int64, dy.device()), along));
                                    const Tensor zero = full({}, 0, {.dtype = dy.dtype(), .device = dy.device()});
                                    const Tensor dx = where(is_it, reshape(dy, kept), zero);
                                    return Tensors{to(dx, format)};
                                  });
  return {.values = values, .index = options.keepdim ? to(kept_index, x.suggest_memory_format()) : index};
}

Tensor argmax(const Tensor& x) {
  check_defined("argmax", "x", x);
  check(x.numel() > 0, "argmax", "x: expected at least one element, got sizes {}", x.sizes());
  const NoGradGuard no_gradient;
  return argmax(reshape(x, {-1}), 0);
}

Tensor sum_to_size(const Tensor& x, const Sizes& sizes) {
  check_defined("sum_to_size", "x", x);
  const int64_t added = x.rank() - sizes.size();
  check(added >= 0, "sum_to_size", "sizes: expected at most {} axes, as in {}, got {}", x.rank(), x.sizes(), sizes);
  Axes axes;
  for (int64_t axis = 0; axis < x.rank(); ++axis) {
    const int64_t size = axis < added ? 1 : sizes[axis - added];
    check(size == 1 || size == x.sizes()[axis], "sum_to_size", "sizes: {} cannot be summed to {}", x.sizes(), sizes);
    if (x.sizes()[axis] != size) {
      axes.push_back(axis);
    }
  }
  const Tensor y = axes.empty() ? x : sum(x, axes, {.keepdim = true});
  return added == 0 ? y : reshape(y, sizes);
}

}  // namespace norma
