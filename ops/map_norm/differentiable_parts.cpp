#include "ops/map_norm/differentiable_parts.h"

#include "core/copy.h"
#include "core/factory.h"
#include "core/tape.h"
#include "ops/norm/node.h"
#include "ops/pointwise/pointwise.h"
#include "ops/shape/copy.h"
#include "ops/shape/view.h"

namespace norma::norm_detail {

namespace {

/// x with another dtype and strides. Its gradient has x's dtype and strides, or the nearest dense strides.
Tensor laid_out(const Tensor& x, DType dtype, const Strides& strides) {
  Tensor y;
  if (x.dtype() == dtype && x.strides() == strides) {
    y = x.detach();  // another handle, for a place of its own on the tape
  } else {
    y = empty_strided(x.sizes(), strides, {.dtype = dtype, .device = x.device()});
    copy_into(x, y);
  }
  return record(
      "laid_out", {x}, y, {},
      [from_dtype = x.dtype(), from_strides = preserved_strides(x.sizes(), x.strides())](
          const Tensor& dy, const BackwardContext&) -> Tensors { return {laid_out(dy, from_dtype, from_strides)}; });
}

}  // namespace

Tensor computed_in(DType dtype, const Tensor& x) {
  return laid_out(x, dtype, x.dtype() == dtype ? x.strides() : preserved_strides(x.sizes(), x.strides()));
}

Tensor in_compute_dtype(const Tensor& x) {
  return computed_in(compute_dtype(x.dtype()), x);
}

Tensor back_to(const Tensor& x, const Tensor& y) {
  return laid_out(y, x.dtype(), preserved_strides(x.sizes(), x.strides()));
}

Tensor in_dtype(const Tensor& x, DType dtype) {
  return x.defined() ? to(x, dtype) : x;
}

Tensor along_channels(const Tensor& parameter, const Tensor& x) {
  Sizes sizes = Sizes::filled(x.rank(), 1);
  sizes[1] = x.size(1);
  return reshape(to(parameter, x.dtype()), sizes);
}

Tensor scale_and_shift(const Tensor& x, const Tensor& weight, const Tensor& bias) {
  const Tensor scaled = weight.defined() ? mul(x, along_channels(weight, x)) : x;
  return bias.defined() ? add(scaled, along_channels(bias, x)) : scaled;
}

Tensor deviation(std::string_view op, const Tensor& x, const NormSpec& spec) {
  const Sizes sizes = sizes_of_sets(x.sizes(), spec);
  const TensorOptions options{.dtype = x.dtype(), .device = x.device()};
  Tensor result = zeros(sizes, options);
  if (x.numel() > 0) {
    const NormLayout layout(x.sizes(), preserved_strides(x.sizes(), x.strides()), spec, /* affine= */ false);
    const Tensor stats = compute_stats(op, layout, x, spec);
    const int64_t sets = stats.size(1);
    const Tensor rstd = layout.per_set(alias(stats, {sets}, {1}, kernels::kRstdRow * sets), sizes);
    result = div(full({}, 1, options), rstd);
  }
  return record("deviation", {x}, result, {x, result}, [spec](const Tensor& dy, const BackwardContext& c) -> Tensors {
    // dx = (x - mean) / deviation / n * dy. A set whose deviation is 0 has no gradient; the formula would give NaN.
    const Tensor from = c.saved(0);
    const Tensor of = c.saved(1);
    const double count = static_cast<double>(from.numel()) / static_cast<double>(of.numel());
    const Tensor is_zero = equal(of, zeros_like(of));
    const Tensor safe = where(is_zero, ones_like(from), from);
    const Tensor xhat = normalize(
        safe, {.reduce = spec.reduce, .statistics = spec.statistics, .eps = spec.eps, .centring = spec.centring});
    return {where(is_zero, zeros_like(from), mul(xhat, mul(dy, 1 / count)))};
  });
}

Tensor inverse_power_of_two(std::string_view op, const Tensor& x) {
  const Tensor inverse = contiguous_copy(div(full({}, 1, {.dtype = x.dtype(), .device = x.device()}), x.detach()));
  Tensor result = empty_like(inverse);
  kernels::norm_kernels.at(op, x.device())
      ->power_of_two(x.dtype(), x.numel(), inverse.device_pointer(), result.device_pointer());
  return result;
}

}  // namespace norma::norm_detail
