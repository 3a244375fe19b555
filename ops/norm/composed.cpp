#include "ops/norm/implementation.h"
#include "ops/pointwise/pointwise.h"
#include "ops/reduce/reduce.h"
#include "ops/shape/view.h"

namespace norma::norm_kernels {

namespace {

/// `sizes` with axis 1 cut into (groups, channels of a group).
Sizes split(const Sizes& sizes, int64_t groups) {
  Sizes result = sizes;
  if (groups > 1) {
    result[1] = groups;
    result.insert(2, sizes[1] / groups);
  }
  return result;
}

/// The reduced axes of the split tensor.
Axes split_axes(const NormSpec& spec) {
  Axes result;
  for (const int64_t axis : spec.reduce) {
    result.push_back(spec.groups > 1 && axis >= 1 ? axis + 1 : axis);
  }
  return result;
}

/// Sizes that broadcast a weight over the split tensor.
Sizes weight_sizes(const NormSpec& spec, const Tensor& x) {
  Sizes sizes = Sizes::filled(x.rank(), 1);
  for (const int64_t axis : spec.affine) {
    sizes[axis] = x.size(axis);
  }
  if (spec.groups > 1 && sizes[1] == 1) {
    sizes.insert(2, 1);
    return sizes;
  }
  return split(sizes, spec.groups);
}

Sizes affine_sizes(const NormSpec& spec, const Tensor& x) {
  Sizes sizes;
  for (const int64_t axis : spec.affine) {
    sizes.push_back(x.size(axis));
  }
  return sizes;
}

}  // namespace

Tensors composed_backward(const NormSpec& spec, const Tensor& dy, const Tensor& x, const Tensor& weight,
                          const Tensor& statistics, NeededGradients needs) {
  const Axes axes = split_axes(spec);
  const Sizes broadcast = weight_sizes(spec, x);
  const Tensor split_x = reshape(x, split(x.sizes(), spec.groups));
  const Tensor split_dy = reshape(dy, split(x.sizes(), spec.groups));
  const Tensor g = weight.defined() ? mul(split_dy, reshape(weight, broadcast)) : split_dy;

  Tensor xhat;
  Tensor dx;
  if (statistics.defined()) {
    // Constants, one per channel: dx = g * rstd.
    const auto row = [&](int64_t i) {
      Sizes sizes = Sizes::filled(x.rank(), 1);
      sizes[1] = statistics.size(1);
      return reshape(select(statistics, 0, i), sizes);
    };
    xhat = mul(sub(split_x, row(0)), row(2));
    dx = mul(g, row(2));
  } else {
    // dx = (g - mean(g) - xhat * mean(g * xhat)) * rstd
    const ReduceOptions keep{.keepdim = true};
    const Tensor centred = sub(split_x, mean(split_x, axes, keep));
    const Tensor rstd = rsqrt(add(mean(mul(centred, centred), axes, keep), spec.eps));
    xhat = mul(centred, rstd);
    if (needs.x) {
      dx = mul(sub(sub(g, mean(g, axes, keep)), mul(xhat, mean(mul(g, xhat), axes, keep))), rstd);
    }
  }
  const auto to_weight = [&](const Tensor& full) {
    return reshape(sum_to_size(full, broadcast), affine_sizes(spec, x));
  };
  return {needs.x ? reshape(dx, x.sizes()) : Tensor{}, needs.weight ? to_weight(mul(split_dy, xhat)) : Tensor{},
          needs.bias ? to_weight(split_dy) : Tensor{}};
}

}  // namespace norma::norm_kernels
