#include "core/factory.h"
#include "ops/norm/node.h"
#include "ops/pointwise/derivatives.h"
#include "ops/pointwise/pointwise.h"
#include "ops/reduce/reduce.h"
#include "ops/shape/copy.h"
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

/// A row of constants, one per channel, along axis 1 of x.
Tensor constant_row(const SavedNorm& norm, int64_t i) {
  Sizes sizes = Sizes::filled(norm.x.rank(), 1);
  sizes[1] = norm.rows.size(1);
  return reshape(select(norm.rows, 0, i), sizes);
}

/// What a norm computes, over the tensor whose axis 1 is split into groups.
struct Composed {
  Tensor x;
  Tensor rstd;
  Tensor centred;  ///< x - mean; for Centring::none x
  Tensor xhat;
};

Composed compose(const SavedNorm& norm, DType dtype) {
  const NormSpec& spec = norm.spec;
  Composed c;
  c.x = reshape(to(norm.x, dtype), split(norm.x.sizes(), spec.groups));
  if (norm.given) {
    c.centred = sub(c.x, constant_row(norm, 0));
    c.rstd = constant_row(norm, 2);
    c.xhat = mul(c.centred, c.rstd);
    return c;
  }
  const Axes axes = split_axes(spec);
  const ReduceOptions keep{.keepdim = true};
  c.centred = c.x;
  if (spec.centring != Centring::none) {
    // The mean rounds where it is large. That of the differences is what it has lost.
    c.centred = sub(c.x, mean(c.x, axes, keep));
    c.centred = sub(c.centred, mean(c.centred, axes, keep));
  }
  Tensor var = mean(mul(c.centred, c.centred), axes, keep);
  if (spec.correction > 0) {
    const double count = static_cast<double>(c.x.numel()) / static_cast<double>(var.numel());
    var = mul(var, count / (count - static_cast<double>(spec.correction)));
  }
  c.rstd = rsqrt(add(var, spec.eps));
  c.xhat = mul(spec.centring == Centring::mean ? c.centred : c.x, c.rstd);
  return c;
}

}  // namespace

Tensors composed_backward(const SavedNorm& norm, const Tensor& dz, NeededGradients needs) {
  const NormSpec& spec = norm.spec;
  const DType dtype = compute_dtype(norm.x.dtype());
  const Composed c = compose(norm, dtype);
  const Axes axes = split_axes(spec);
  const Sizes broadcast = weight_sizes(spec, norm.x);
  const Tensor split_dz = reshape(to(dz, dtype), c.x.sizes());
  const Tensor g = norm.weight.defined() ? mul(split_dz, reshape(to(norm.weight, dtype), broadcast)) : split_dz;

  Tensor dx;
  if (needs.x) {
    dx = mul(g, c.rstd);
    if (!norm.given) {
      // mean: dx = (g - mean(g) - xhat * m) * rstd, none: dx = (g - xhat * m) * rstd, deviation:
      // dx = (g - (x - mean) * rstd * m) * rstd, with m = sum(g * xhat) / (n - correction)
      const ReduceOptions keep{.keepdim = true};
      const Tensor sums = sum(mul(g, c.xhat), axes, keep);
      const double count = static_cast<double>(c.x.numel()) / static_cast<double>(sums.numel());
      const Tensor m = mul(sums, 1 / (count - static_cast<double>(spec.correction)));
      dx = sub(dx, mul(mul(mul(c.centred, c.rstd), m), c.rstd));
      if (spec.centring == Centring::mean) {
        dx = sub(dx, mul(mean(g, axes, keep), c.rstd));
      }
    }
    dx = to(reshape(dx, norm.x.sizes()), norm.x.dtype());
  }
  const auto to_weight = [&](const Tensor& full) {
    return reshape(sum_to_size(full, broadcast), sizes_along(norm.x, spec.affine));
  };
  Tensor dweight;
  if (needs.weight) {
    dweight = to(to_weight(mul(split_dz, c.xhat)), norm.weight.dtype());
  }
  return {dx, dweight, needs.bias ? to(to_weight(split_dz), norm.bias_dtype) : Tensor{}};
}

Tensor composed_activation_backward(const SavedNorm& norm, const Tensor& dy) {
  const DType dtype = compute_dtype(norm.x.dtype());
  const Tensor wide_dy = to(dy, dtype);
  if (norm.bits.defined()) {
    // Constant: relu has no second derivative.
    const Tensor ones_like_x = to(ones_like(norm.x), dtype);
    SavedNorm constant = norm;
    constant.x = norm.x.detach();
    return mul(wide_dy, masked_by_bits(constant, ones_like_x));
  }
  const Sizes broadcast = weight_sizes(norm.spec, norm.x);
  Tensor z = compose(norm, dtype).xhat;
  if (norm.weight.defined()) {
    z = mul(z, reshape(to(norm.weight, dtype), broadcast));
  }
  if (norm.bias.defined()) {
    z = add(z, reshape(to(norm.bias, dtype), broadcast));
  }
  z = reshape(z, norm.x.sizes());
  if (norm.residual.defined()) {
    z = add(z, to(norm.residual, dtype));
  }
  Tensor dz;
  switch (norm.activation) {
    case Activation::identity: dz = wide_dy; break;
    case Activation::relu: dz = relu_backward(z, wide_dy); break;
    case Activation::gelu: dz = gelu_backward(z, wide_dy); break;
    case Activation::silu: dz = silu_backward(z, wide_dy); break;
  }
  return dz;
}

}  // namespace norma::norm_kernels
