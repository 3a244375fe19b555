#include "core/copy.h"
#include "core/factory.h"
#include "core/op_profile.h"
#include "core/tape.h"
#include "ops/norm/checks.h"
#include "ops/norm/node.h"
#include "ops/pointwise/activation.h"
#include "ops/pointwise/pointwise.h"
#include "ops/reduce/reduce.h"
#include "ops/shape/copy.h"
#include "ops/shape/view.h"

#include <algorithm>
#include <iterator>

namespace norma::norm_detail {

namespace {

/// norm_backward() by the definition. x must not be empty.
Tensors reference_backward(const NormNode& node, const NormLayout& layout, const Tensor& dy, NeededGradients needs) {
  OpScope::set_implementation("reference");
  const Tensor& x = node.x;
  const Sizes affine_sizes = sizes_along(x, node.spec.affine);
  const bool masked = node.bits.defined();  // the bits stand for the sign of z + residual
  const NormReference reference =
      reference_of(layout, node.fixed_stats ? node.stats : Tensor{},
                   {.spec = node.spec,
                    .x = x,
                    .weight = node.weight,
                    .bias = node.bias,
                    .dy = masked ? mask_by_bits(node, converted(dy, x.dtype())) : converted(dy, x.dtype()),
                    .activation = masked ? Activation::identity : node.activation,
                    .residual = node.residual});
  const TensorOptions options{.dtype = DType::float64, .device = x.device()};
  const auto like_x = [&](auto of) {
    const Tensor result =
        empty_strided(x.sizes(), preserved_strides(x.sizes(), x.strides()), {.dtype = x.dtype(), .device = x.device()});
    copy_into(from_vector(reference.all(of), x.sizes(), options), result);
    return result;
  };
  const auto like_weight = [&](auto of, DType dtype) {
    std::vector<double> values;
    for (int64_t w = 0; w < affine_sizes.numel(); ++w) {
      values.push_back(static_cast<double>((reference.*of)(static_cast<size_t>(w))));
    }
    const Tensor result = empty(affine_sizes, {.dtype = dtype, .device = x.device()});
    copy_into(from_vector(values, affine_sizes, options), result);
    return result;
  };
  const DType weight_dtype = node.weight.defined() ? node.weight.dtype() : compute_dtype(x.dtype());
  return {needs.x ? like_x(&NormReference::dx) : Tensor{},
          needs.weight ? like_weight(&NormReference::dweight, weight_dtype) : Tensor{},
          needs.bias ? like_weight(&NormReference::dbias, node.bias_dtype) : Tensor{},
          !needs.residual                           ? Tensor{}
          : node.activation == Activation::identity ? dy
                                                    : like_x(&NormReference::dz)};
}

}  // namespace

Tensors norm_backward(const NormNode& node, const Tensor& dy, NeededGradients needs) {
  const Tensor& x = node.x;
  const DType dtype = compute_dtype(x.dtype());
  const TensorOptions options{.dtype = dtype, .device = x.device()};
  const TensorOptions x_options{.dtype = x.dtype(), .device = x.device()};
  const Strides strides = preserved_strides(x.sizes(), x.strides());
  const Sizes affine_sizes = sizes_along(x, node.spec.affine);
  const DType weight_dtype = node.weight.defined() ? node.weight.dtype() : dtype;
  const Tensor dx = needs.x ? empty_strided(x.sizes(), strides, x_options) : Tensor{};
  const bool activated = node.activation != Activation::identity;
  const Tensor dresidual = !needs.residual ? Tensor{} : activated ? empty_strided(x.sizes(), strides, x_options) : dy;
  if (x.numel() == 0) {
    return {dx, needs.weight ? zeros(affine_sizes, {.dtype = weight_dtype, .device = x.device()}) : Tensor{},
            needs.bias ? zeros(affine_sizes, {.dtype = node.bias_dtype, .device = x.device()}) : Tensor{}, dresidual};
  }
  const NormLayout layout(x.sizes(), strides, node.spec, node.affine);
  if (norm_reference()) {
    return reference_backward(node, layout, dy, needs);
  }
  if (node.bits.defined() && !layout.view_in_order(dx.defined() ? dx : x).is_contiguous()) {
    // The bits are in the order of memory, but the kernel would not be.
    NormNode without_activation = node;
    without_activation.activation = Activation::identity;
    without_activation.bits = {};
    return norm_backward(without_activation, mask_by_bits(node, dy), needs);
  }
  const auto weight_in_order = [&](const Tensor& weight) {
    return weight.defined() ? layout.weight_in_order(converted(weight, dtype)) : Tensor{};
  };
  const auto weight_gradient = [&](bool wanted) {
    return wanted ? empty({layout.affine().numel()}, options) : Tensor{};
  };
  const NormTensors in_order{.x = layout.in_order(x),
                             .weight = weight_in_order(node.weight),
                             .bias = weight_in_order(node.bias),
                             .residual = node.residual.defined() ? layout.in_order(node.residual) : Tensor{},
                             .stats = node.stats,
                             .bits = node.bits,
                             .activation = node.activation,
                             .dy = layout.in_order(converted(dy, x.dtype())),
                             .dx = needs.x ? layout.writable_in_order(dx) : Tensor{},
                             .dweight = weight_gradient(needs.weight),
                             .dbias = weight_gradient(needs.bias),
                             .dresidual = activated && needs.residual ? layout.writable_in_order(dresidual) : Tensor{}};
  OpScope::set_implementation(to_string(layout.walk()));
  kernels::norm_kernels.at(node.op, x.device())
      ->backward(x.dtype(), problem_of(layout, node.spec, node.fixed_stats), pointers_of(in_order));
  if (needs.x) {
    if (node.spec.centring == Centring::mean && !node.fixed_stats && layout.shape().set_size() == 1) {
      // x - x depends on nothing, but its terms were rounded; a product leaves NaN as it is.
      Tensor nothing = in_order.dx;
      mul_(nothing, 0);
    }
    layout.copy_back(in_order.dx, dx);
  }
  if (in_order.dresidual.defined()) {
    layout.copy_back(in_order.dresidual, dresidual);
  }
  return {dx, needs.weight ? converted(layout.weight_gradient(in_order.dweight, affine_sizes), weight_dtype) : Tensor{},
          needs.bias ? converted(layout.weight_gradient(in_order.dbias, affine_sizes), node.bias_dtype) : Tensor{},
          dresidual};
}

Tensor mask_by_bits(const NormNode& node, const Tensor& dy) {
  const Tensor& x = node.x;
  const Tensor dz =
      empty_strided(x.sizes(), preserved_strides(x.sizes(), x.strides()), {.dtype = dy.dtype(), .device = x.device()});
  Tensor in_order = dy;
  if (dy.strides() != dz.strides()) {
    copy_into(dy, dz);
    in_order = dz;
  }
  kernels::norm_kernels.at(node.op, x.device())
      ->mask_by_bits(dy.dtype(), dz.numel(), node.bits.device_pointer<uint8_t>(), in_order.device_pointer(),
                     dz.device_pointer());
  return dz;
}

// --- higher derivatives
// -----------------------------------------------------------------------------------------------

// Backward is an op of its own: its values come from the kernels, its derivatives from the same gradients composed of
// differentiable ops.

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

/// A power of two for each set, about 1 / its deviation, in sizes that broadcast over the split tensor. A constant.
Tensor scale_of_sets(const NormNode& node) {
  const Sizes sizes = sizes_of_sets(node.x.sizes(), node.spec);
  Sizes split_sizes = sizes;
  if (node.spec.groups > 1) {
    split_sizes.insert(2, 1);
  }
  if (node.x.numel() == 0) {
    return ones(split_sizes, {.dtype = node.stats.dtype(), .device = node.x.device()});
  }
  const NormLayout layout(node.x.sizes(), preserved_strides(node.x.sizes(), node.x.strides()), node.spec, node.affine);
  const int64_t sets = node.stats.size(1);
  const Tensor rstd = alias(node.stats, {sets}, {1}, kernels::kRstdRow * sets);
  const Tensor scale = empty_like(rstd);
  kernels::norm_kernels.at(node.op, node.x.device())
      ->power_of_two(node.x.dtype(), sets, rstd.device_pointer(), scale.device_pointer());
  return alias(layout.per_set(scale, sizes), split_sizes, contiguous_strides(split_sizes), 0);
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

/// The gradients depend on these: dy, x, weight, bias, residual.
constexpr size_t kInputs = 5;

/// Drops the undefined tensors, which cannot be outputs of an op.
Tensors defined_only(const Tensors& tensors) {
  Tensors result;
  std::copy_if(tensors.begin(), tensors.end(), std::back_inserter(result), [](const Tensor& x) { return x.defined(); });
  return result;
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
  Tensors saved = inputs;
  saved.push_back(node.stats);
  saved.push_back(node.bits);
  NormNode without_tensors = node;
  static_cast<NormTensors&>(without_tensors) = {.activation = node.activation};
  record(node.op + "_backward", inputs, defined_only(gradients), saved,
         [without_tensors, recorded](const Tensors& grad_outputs, const BackwardContext& c) -> Tensors {
           Tensors in(kInputs);
           for (size_t i = 0; i < kInputs; ++i) {
             in[i] = c.saved(i);
           }
           NormNode again = without_tensors;
           again.stats = c.saved(kInputs).detach();
           const Tensor bits = c.saved(kInputs + 1);
           again.bits = bits.defined() ? bits.detach() : bits;
           const auto composed = [&](const Tensors& places) {
             again.x = places[1];
             again.weight = places[2];
             again.bias = places[3];
             again.residual = places[4];
             return defined_only(composed_gradients(again, places[0], recorded));
           };
           return gradients_of_composed(composed, in, grad_outputs, c);
         });
  if (passes_dy) {
    gradients[3] = dy;
  }
  return gradients;
}

}  // namespace norma::norm_detail
