#include "ops/norm/norm.h"

#include "core/copy.h"
#include "core/factory.h"
#include "core/tape.h"
#include "ops/norm/implementation.h"
#include "ops/norm/kernels.h"
#include "ops/norm/layout.h"

#include <cmath>

namespace norma {

namespace {

using namespace norm_kernels;

// --- checks -----------------------------------------------------------------------------------------------------

Axes checked_axes(std::string_view op, std::string_view argument, const Axes& axes, int64_t rank) {
  Axes result;
  for (const int64_t axis : axes) {
    check(axis >= -rank && axis < rank, op, "{}: expected axes in [{}, {}), got {}", argument, -rank, rank,
          to_string(axes));
    const int64_t positive = axis < 0 ? axis + rank : axis;
    check(!result.contains(positive), op, "{}: expected each axis once, got {}", argument, to_string(axes));
    result.push_back(positive);
  }
  std::sort(result.begin(), result.end());
  return result;
}

NormSpec checked_spec(std::string_view op, const Tensor& x, const NormSpec& spec) {
  check_defined(op, "input", x);
  check(x.dtype() == DType::float32 || x.dtype() == DType::float64, op,
        "input: expected dtype float32 or float64, got {}", to_string(x.dtype()));
  check(spec.eps >= 0, op, "eps: expected a value >= 0, got {}", spec.eps);
  check(!spec.reduce.empty(), op, "reduce: expected at least 1 axis, got []");
  NormSpec result = spec;
  result.reduce = checked_axes(op, "reduce", spec.reduce, x.rank());
  result.affine = checked_axes(op, "affine", spec.affine, x.rank());
  check(spec.groups >= 1, op, "groups: expected at least 1, got {}", spec.groups);
  if (spec.groups > 1) {
    check(result.reduce.contains(1), op, "reduce: expected axis 1 among the axes with groups > 1, got {}",
          to_string(spec.reduce));
    check(x.size(1) % spec.groups == 0, op,
          "num_channels must be divisible by num_groups, got num_channels {}, num_groups {}", x.size(1), spec.groups);
  }
  return result;
}

Sizes sizes_along(const Tensor& x, const Axes& axes) {
  Sizes sizes;
  for (const int64_t axis : axes) {
    sizes.push_back(x.size(axis));
  }
  return sizes;
}

void check_affine(std::string_view op, std::string_view argument, const Tensor& parameter, const Tensor& x,
                  const Axes& affine) {
  if (parameter.defined()) {
    check_sizes(op, argument, parameter, sizes_along(x, affine));
    check_dtype(op, argument, parameter, x.dtype());
    check_device(op, argument, parameter, x.device());
  }
}

// --- kernels ----------------------------------------------------------------------------------------------------

template <class T>
void norm_forward(Device device, const NormProblem& problem, const NormForward<T>& arrays) {
  device.type == DeviceType::cpu ? cpu::norm_forward(problem, arrays) : cuda::norm_forward(problem, arrays);
}

template <class T>
void norm_backward(Device device, const NormProblem& problem, const NormBackward<T>& arrays) {
  device.type == DeviceType::cpu ? cpu::norm_backward(problem, arrays) : cuda::norm_backward(problem, arrays);
}

template <class T>
T* data_or_null(const Tensor& x) {
  return x.defined() ? x.data<T>() : nullptr;
}

/// x itself if it lies in the order of the walk, else an uninitialised tensor to write to; put_in_place() copies that
/// back.
Tensor writable_in_order(const NormLayout& layout, const Tensor& x) {
  const Tensor view = layout.view_in_order(x);
  return view.is_contiguous() ? view : empty(view.sizes(), {.dtype = x.dtype(), .device = x.device()});
}

void put_in_place(const NormLayout& layout, const Tensor& in_order, const Tensor& x) {
  if (in_order.storage() != x.storage()) {
    copy_into(in_order, layout.view_in_order(x));
  }
}

NormProblem problem_of(const NormLayout& layout, const NormSpec& spec, bool given) {
  return {.walk = layout.walk(),
          .shape = layout.shape(),
          .affine = layout.affine(),
          .statistics = spec.statistics,
          .eps = spec.eps,
          .given_statistics = given};
}

/// Rows mean, rest, 1 / sqrt(var + eps) from constants.
Tensor statistics_of(const GivenStatistics& given, double eps) {
  const int64_t count = given.mean.numel();
  Tensor result = zeros({3, count}, {.dtype = given.mean.dtype(), .device = given.mean.device()});
  copy_into(given.mean, alias(result, {count}, {1}, 0));
  dispatch_floating("normalize", given.var.dtype(), [&](auto t) {
    using T = decltype(t);
    const T* var = given.var.template data<T>();
    const int64_t stride = given.var.stride(0);
    T* rstd = result.template data<T>() + 2 * count;
    for (int64_t i = 0; i < count; ++i) {
      rstd[i] = static_cast<T>(1 / std::sqrt(static_cast<double>(var[i * stride]) + eps));
    }
  });
  return result;
}

/// Sizes of a number per set, with keepdim.
Sizes sizes_of_sets(const Tensor& x, const NormSpec& spec) {
  Sizes sizes = x.sizes();
  for (const int64_t axis : spec.reduce) {
    sizes[axis] = spec.groups > 1 && axis == 1 ? spec.groups : 1;
  }
  return sizes;
}

/// The same without the reduced axes.
Tensor drop_reduced(const Tensor& per_set, const NormSpec& spec) {
  Sizes sizes;
  for (int64_t axis = 0; axis < per_set.rank(); ++axis) {
    if (!spec.reduce.contains(axis) || (spec.groups > 1 && axis == 1)) {
      sizes.push_back(per_set.size(axis));
    }
  }
  return alias(per_set, sizes, contiguous_strides(sizes), per_set.offset());
}

Tensors fused_backward(const NormSpec& spec, bool given, const Tensor& dy, const Tensor& x, const Tensor& statistics,
                       const Tensor& weight, bool affine, NeededGradients needs) {
  const TensorOptions options{.dtype = x.dtype(), .device = x.device()};
  const Strides strides = preserved_strides(x.sizes(), x.strides());
  const Sizes affine_sizes = sizes_along(x, spec.affine);
  Tensor dx = needs.x ? empty_strided(x.sizes(), strides, options) : Tensor{};
  if (x.numel() == 0) {
    return {dx, needs.weight ? zeros(affine_sizes, options) : Tensor{},
            needs.bias ? zeros(affine_sizes, options) : Tensor{}};
  }
  const NormLayout layout(x.sizes(), strides, spec, affine);
  const Tensor dy_in_order = layout.in_order(dy);
  const Tensor x_in_order = layout.in_order(x);
  const Tensor dx_in_order = needs.x ? writable_in_order(layout, dx) : Tensor{};
  const Tensor weight_in_order = weight.defined() ? layout.weight_in_order(weight) : Tensor{};
  const Tensor dweight = needs.weight ? empty({layout.affine().numel()}, options) : Tensor{};
  const Tensor dbias = needs.bias ? empty({layout.affine().numel()}, options) : Tensor{};
  dispatch_floating("normalize", x.dtype(), [&](auto t) {
    using T = decltype(t);
    const T* rows = statistics.data<T>();
    const int64_t sets = layout.shape().sets();
    norm_backward<T>(x.device(), problem_of(layout, spec, given),
                     {.dy = dy_in_order.data<T>(),
                      .x = x_in_order.data<T>(),
                      .weight = data_or_null<T>(weight_in_order),
                      .mean = rows,
                      .rest = rows + sets,
                      .rstd = rows + 2 * sets,
                      .dx = data_or_null<T>(dx_in_order),
                      .dweight = data_or_null<T>(dweight),
                      .dbias = data_or_null<T>(dbias)});
  });
  if (needs.x) {
    put_in_place(layout, dx_in_order, dx);
  }
  return {dx, needs.weight ? layout.weight_gradient(dweight, affine_sizes) : Tensor{},
          needs.bias ? layout.weight_gradient(dbias, affine_sizes) : Tensor{}};
}

}  // namespace

Tensor norm_kernels::run_norm(std::string_view op, const Tensor& x, const NormSpec& spec, const Tensor& weight,
                              const Tensor& bias, NormStatistics* statistics, const GivenStatistics* given) {
  const TensorOptions options{.dtype = x.dtype(), .device = x.device()};
  const Strides strides = preserved_strides(x.sizes(), x.strides());
  const bool affine = weight.defined() || bias.defined();
  Tensor y = empty_strided(x.sizes(), strides, options);
  Tensor rows;  // mean, rest and rstd of each set
  Tensor var;
  if (x.numel() == 0) {
    rows = zeros({3, sizes_of_sets(x, spec).numel()}, options);
    var = zeros({rows.size(1)}, options);
  } else {
    const NormLayout layout(x.sizes(), strides, spec, affine);
    rows = given != nullptr ? statistics_of(*given, spec.eps) : empty({3, layout.shape().sets()}, options);
    var = statistics != nullptr ? empty({layout.shape().sets()}, options) : Tensor{};
    // The kernels know both weight and bias, or neither.
    const Sizes affine_sizes = sizes_along(x, spec.affine);
    const Tensor w =
        affine ? layout.weight_in_order(weight.defined() ? weight : ones(affine_sizes, options)) : Tensor{};
    const Tensor b = affine ? layout.weight_in_order(bias.defined() ? bias : zeros(affine_sizes, options)) : Tensor{};
    const Tensor x_in_order = layout.in_order(x);
    const Tensor y_in_order = writable_in_order(layout, y);
    dispatch_floating(op, x.dtype(), [&](auto t) {
      using T = decltype(t);
      const int64_t sets = layout.shape().sets();
      norm_forward<T>(x.device(), problem_of(layout, spec, given != nullptr),
                      {.x = x_in_order.data<T>(),
                       .weight = data_or_null<T>(w),
                       .bias = data_or_null<T>(b),
                       .y = y_in_order.data<T>(),
                       .mean = rows.data<T>(),
                       .rest = rows.data<T>() + sets,
                       .rstd = rows.data<T>() + 2 * sets,
                       .var = data_or_null<T>(var)});
    });
    put_in_place(layout, y_in_order, y);
    if (statistics != nullptr) {
      const Sizes set_sizes = sizes_of_sets(x, spec);
      statistics->mean = drop_reduced(layout.per_set(alias(rows, {rows.size(1)}, {1}, 0), set_sizes), spec);
      statistics->var = drop_reduced(layout.per_set(var, set_sizes), spec);
    }
  }

  const bool has_weight = weight.defined();
  Tensors saved{x, rows};
  if (has_weight) {
    saved.push_back(weight);
  }
  return record(
      op, {x, weight, bias}, y, saved,
      [spec, has_weight, affine, is_given = given != nullptr](const Tensor& dy, const BackwardContext& c) -> Tensors {
        const Tensor w = has_weight ? c.saved(2) : Tensor{};
        const NeededGradients needs{c.needs_grad(0), c.needs_grad(1), c.needs_grad(2)};
        if (c.create_graph()) {
          return composed_backward(spec, dy, c.saved(0), w, is_given ? c.saved(1) : Tensor{}, needs);
        }
        return fused_backward(spec, is_given, dy, c.saved(0), c.saved(1), w, affine, needs);
      });
}

Tensor normalize(const Tensor& x, const NormSpec& spec, const Tensor& weight, const Tensor& bias,
                 NormStatistics* statistics, std::string_view op) {
  const NormSpec checked = checked_spec(op, x, spec);
  check_affine(op, "weight", weight, x, checked.affine);
  check_affine(op, "bias", bias, x, checked.affine);
  return run_norm(op, x, checked, weight, bias, statistics, nullptr);
}

}  // namespace norma
