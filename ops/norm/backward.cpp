#include "core/copy.h"
#include "core/factory.h"
#include "core/op_profile.h"
#include "ops/norm/checks.h"
#include "ops/norm/node.h"
#include "ops/pointwise/pointwise.h"

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

}  // namespace norma::norm_detail
