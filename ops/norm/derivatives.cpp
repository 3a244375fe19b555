#include "base/lists.h"
#include "core/factory.h"
#include "core/op.h"
#include "ops/norm/node.h"
#include "ops/pointwise/activation.h"
#include "ops/pointwise/pointwise.h"
#include "ops/reduce/reduce.h"
#include "ops/shape/copy.h"
#include "ops/shape/view.h"

// Gradients composed of other ops. With create_graph, backward is an op of its own: its values come from the kernels,
// its derivatives from the same gradients composed of differentiable ops.

namespace norma::norm_detail {

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
Tensor constant_row(const NormNode& node, int64_t i) {
  Sizes sizes = Sizes::filled(node.x.rank(), 1);
  sizes[1] = node.stats.size(1);
  return reshape(select(node.stats, 0, i), sizes);
}

/// Numbers of the sets, in that order, as a constant in sizes that broadcast over the split tensor.
Tensor over_split(const NormNode& node, const Tensor& of_sets) {
  const NormLayout layout(node.x.sizes(), preserved_strides(node.x.sizes(), node.x.strides()), node.spec, node.affine);
  const Sizes sizes = sizes_of_sets(node.x.sizes(), node.spec);
  Sizes split_sizes = sizes;
  if (node.spec.groups > 1) {
    split_sizes.insert(2, 1);
  }
  return alias(layout.per_set(of_sets, sizes), split_sizes, contiguous_strides(split_sizes), 0);
}

/// A power of two for each set, about 1 / its deviation.
Tensor scale_of_sets(const NormNode& node) {
  const Tensor rstd = stats_row(node.stats, kernels::kRstdRow);
  if (node.x.numel() == 0) {
    return ones({}, {.dtype = node.stats.dtype(), .device = node.x.device()});
  }
  const Tensor scale = empty_like(rstd);
  kernels::norm_kernels.at(node.op, node.x.device())
      ->power_of_two(node.x.dtype(), rstd.numel(), rstd.device_pointer(), scale.device_pointer());
  return over_split(node, scale);
}

/// The parts of a norm, over the tensor whose axis 1 is split into groups. With `scale` the squares stay in the range
/// of the dtype; products with a power of two are exact.
struct Composed {
  Tensor x;        ///< times scale, unless the stats are fixed
  Tensor scale;    ///< see scale_of_sets(); undefined for fixed stats
  Tensor centred;  ///< x - mean; for Centring::none x
  Tensor rstd;     ///< rstd of x here
  Tensor xhat;

  /// rstd of the caller's x.
  [[nodiscard]] Tensor unscaled_rstd() const { return scale.defined() ? mul(rstd, scale) : rstd; }
};

Composed compose(const NormNode& node, DType dtype) {
  const NormSpec& spec = node.spec;
  Composed c;
  c.x = reshape(to(node.x, dtype), split(node.x.sizes(), spec.groups));
  if (node.fixed_stats) {
    c.centred = sub(c.x, constant_row(node, kernels::kMeanRow));
    c.rstd = constant_row(node, kernels::kRstdRow);
    c.xhat = mul(c.centred, c.rstd);
    return c;
  }
  const Axes axes = split_axes(spec);
  const ReduceOptions keep{.keepdim = true};
  c.scale = scale_of_sets(node);
  c.x = mul(c.x, c.scale);
  c.centred = c.x;
  if (spec.centring != Centring::none) {
    // A large mean rounds. The mean of the differences is what it has lost.
    c.centred = sub(c.x, mean(c.x, axes, keep));
    c.centred = sub(c.centred, mean(c.centred, axes, keep));
  }
  Tensor var = mean(mul(c.centred, c.centred), axes, keep);
  if (spec.correction > 0) {
    const double count = static_cast<double>(c.x.numel()) / static_cast<double>(var.numel());
    var = mul(var, count / (count - static_cast<double>(spec.correction)));
  }
  c.rstd = rsqrt(add(var, mul(mul(c.scale, spec.eps), c.scale)));
  c.xhat = mul(spec.centring == Centring::mean ? c.centred : c.x, c.rstd);
  return c;
}

/// The gradients of x, weight and bias for dz, the gradient of the activation's input. Results are undefined where
/// `needs` is false.
Tensors composed_backward(const NormNode& node, const Tensor& dz, NeededGradients needs) {
  const NormSpec& spec = node.spec;
  const DType dtype = compute_dtype(node.x.dtype());
  const Composed c = compose(node, dtype);
  const Axes axes = split_axes(spec);
  const Sizes broadcast = weight_sizes(spec, node.x);
  const Tensor split_dz = reshape(to(dz, dtype), c.x.sizes());
  const Tensor g = node.weight.defined() ? mul(split_dz, reshape(to(node.weight, dtype), broadcast)) : split_dz;

  Tensor dx;
  if (needs.x) {
    const Tensor rstd = c.unscaled_rstd();
    dx = mul(g, rstd);
    if (!node.fixed_stats) {
      // mean: dx = (g - mean(g) - xhat * m) * rstd, none: dx = (g - xhat * m) * rstd, deviation:
      // dx = (g - (x - mean) * rstd * m) * rstd, with m = sum(g * xhat) / (n - correction)
      const ReduceOptions keep{.keepdim = true};
      const Tensor sums = sum(mul(g, c.xhat), axes, keep);
      const double count = static_cast<double>(c.x.numel()) / static_cast<double>(sums.numel());
      const Tensor m = mul(sums, 1 / (count - static_cast<double>(spec.correction)));
      dx = sub(dx, mul(mul(mul(c.centred, c.rstd), m), rstd));
      if (spec.centring == Centring::mean) {
        dx = sub(dx, mul(mean(g, axes, keep), rstd));
      }
    }
    dx = to(reshape(dx, node.x.sizes()), node.x.dtype());
  }
  const auto to_weight = [&](const Tensor& full) {
    return reshape(sum_to_size(full, broadcast), sizes_along(node.x, spec.affine));
  };
  Tensor dweight;
  if (needs.weight) {
    dweight = to(to_weight(mul(split_dz, c.xhat)), node.weight.dtype());
  }
  return {dx, dweight, needs.bias ? to(to_weight(split_dz), node.bias_dtype) : Tensor{}};
}

/// Computes dz from dy, in the compute dtype.
Tensor composed_activation_backward(const NormNode& node, const Tensor& dy) {
  const DType dtype = compute_dtype(node.x.dtype());
  const Tensor wide_dy = to(dy, dtype);
  if (node.bits.defined()) {
    // Constant: relu has no second derivative.
    const Tensor ones_like_x = to(ones_like(node.x), dtype);
    NormNode constant = node;
    constant.x = node.x.detach();
    return mul(wide_dy, mask_by_bits(constant, ones_like_x));
  }
  const Sizes broadcast = weight_sizes(node.spec, node.x);
  Tensor z = compose(node, dtype).xhat;
  if (node.weight.defined()) {
    z = mul(z, reshape(to(node.weight, dtype), broadcast));
  }
  if (node.bias.defined()) {
    z = add(z, reshape(to(node.bias, dtype), broadcast));
  }
  z = reshape(z, node.x.sizes());
  if (node.residual.defined()) {
    z = add(z, to(node.residual, dtype));
  }
  Tensor dz;
  switch (node.activation) {
    case Activation::identity: dz = wide_dy; break;
    case Activation::relu: dz = relu_backward(z, wide_dy); break;
    case Activation::gelu: dz = gelu_backward(z, wide_dy); break;
    case Activation::silu: dz = silu_backward(z, wide_dy); break;
  }
  return dz;
}

/// The gradients of x, weight, bias and residual.
Tensors composed_gradients(const NormNode& node, const Tensor& dy, NeededGradients needs) {
  const Tensor dz = node.activation == Activation::identity ? dy : composed_activation_backward(node, dy);
  Tensors gradients = composed_backward(node, dz, needs);
  gradients.push_back(needs.residual ? to(dz, dy.dtype()) : Tensor{});
  return gradients;
}

}  // namespace

Tensors record_norm_backward(const NormNode& node, const Tensor& dy, NeededGradients needs) {
  Tensors gradients;
  {
    const NoGradGuard off;
    gradients = norm_backward(node, dy, needs);
  }
  const bool passes_dy = needs.residual && node.activation == Activation::identity;
  NeededGradients recorded = needs;
  if (passes_dy) {
    gradients[3] = {};  // it is dy itself
    recorded.residual = false;
  }
  const Tensors inputs{dy, node.x, node.weight, node.bias, node.residual};
  Tensors saved = kept(node);
  saved.push_back(dy);
  NormNode without_tensors = node;
  static_cast<NormTensors&>(without_tensors) = {.activation = node.activation};
  const std::string name = node.op + "_backward";
  // Undefined tensors cannot be outputs of an op.
  Op(name).record(inputs, filtered(gradients, &Tensor::defined), saved,
                  [without_tensors, recorded, place_of_dy = saved.size() - 1](const Tensors& grad_outputs,
                                                                              const BackwardContext& c) -> Tensors {
                    NormNode again = with_kept(without_tensors, c);
                    const Tensors in{c.saved(place_of_dy), again.x, again.weight, again.bias, again.residual};
                    again.stats = again.stats.detach();
                    again.bits = again.bits.defined() ? again.bits.detach() : again.bits;
                    const auto composed = [&](const Tensors& places) {
                      again.x = places[1];
                      again.weight = places[2];
                      again.bias = places[3];
                      again.residual = places[4];
                      return filtered(composed_gradients(again, places[0], recorded), &Tensor::defined);
                    };
                    return gradients_of_composed(composed, in, grad_outputs, c);
                  });
  if (passes_dy) {
    gradients[3] = dy;
  }
  return gradients;
}

}  // namespace norma::norm_detail
