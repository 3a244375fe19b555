#include "ops/map_norm/differentiable_parts.h"

#include "core/copy.h"
#include "core/factory.h"
#include "core/tape.h"
#include "ops/norm/operands.h"
#include "ops/pointwise/pointwise.h"
#include "ops/shape/copy.h"
#include "ops/shape/view.h"

namespace norma::norm_detail {

namespace {

/// x with another dtype and strides. The gradient comes back with x's, or the nearest dense strides.
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

Tensor in_compute_dtype(const Tensor& x) {
  const DType dtype = compute_dtype(x.dtype());
  return laid_out(x, dtype, x.dtype() == dtype ? x.strides() : preserved_strides(x.sizes(), x.strides()));
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

Tensor variance(std::string_view op, const Tensor& x, const NormSpec& spec) {
  Sizes sizes = x.sizes();
  for (const int64_t axis : spec.reduce) {
    sizes[axis] = 1;
  }
  const Tensor var = reshape(norm_statistics(x, spec, op).var, sizes);
  return record("variance", {x}, var, {x, var}, [spec](const Tensor& dvar, const BackwardContext& c) -> Tensors {
    // dx = 2 / n * (x - mean) * dvar. The difference is taken from normalize(), which has the mean in more than x's
    // precision; any eps does, and 1 keeps constant sets away from 0 / 0.
    const Tensor from = c.saved(0);
    const Tensor of = c.saved(1);
    const Tensor g = mul(dvar, 2 * static_cast<double>(of.numel()) / static_cast<double>(from.numel()));
    if (spec.centring == Centring::none) {
      return {mul(from, g)};
    }
    const Tensor xhat = normalize(from, {.reduce = spec.reduce, .statistics = spec.statistics, .eps = 1});
    return {mul(xhat, mul(g, sqrt(add(of, 1))))};
  });
}

Tensor sqrt_flat_at_zero(const Tensor& x) {
  const Tensor zero = full({}, 0, {.dtype = x.dtype(), .device = x.device()});
  const Tensor one = full({}, 1, {.dtype = x.dtype(), .device = x.device()});
  const Tensor is_zero = equal(x, zero);
  return where(is_zero, zero, sqrt(where(is_zero, one, x)));
}

}  // namespace norma::norm_detail
