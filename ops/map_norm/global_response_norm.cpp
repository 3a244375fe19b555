#include "ops/map_norm/global_response_norm.h"

#include "core/autocast.h"
#include "core/op_profile.h"
#include "ops/map_norm/differentiable_parts.h"
#include "ops/map_norm/map_norm.h"
#include "ops/norm/node.h"
#include "ops/pointwise/pointwise.h"
#include "ops/reduce/reduce.h"

#include <algorithm>
#include <cmath>

namespace norma {

using namespace norm_kernels;

namespace {

/// inputs: x, weight, bias
Tensor composed_global_response(const Tensors& inputs, double eps) {
  const Tensor& x = inputs[0];
  const Tensor wide = enter(x);
  const Tensor mean_square =
      variance("global_response_norm", wide, {.reduce = axes_from(2, x.rank()), .centring = Centring::none});
  const double pixels = static_cast<double>(x.numel()) / static_cast<double>(std::max<int64_t>(1, mean_square.numel()));
  const Tensor g = sqrt_flat_at_zero(mul(mean_square, pixels));
  const Tensor n = div(g, add(mean(g, {1}, {.keepdim = true}), eps));
  // x + weight * (x * n) + bias = x * (1 + weight * n) + bias: the bracket is one number per map.
  const Tensor scale = add(inputs[1].defined() ? mul(n, along_channels(inputs[1], wide)) : n, 1);
  return leave(scale_and_shift(mul(wide, scale), {}, inputs[2]), x);
}

/// What the maps of an image respond, and what that becomes.
struct Responses {
  Doubles g;        ///< sqrt(sum of x²) of each map
  Doubles n;        ///< g / (mean of g over the channels + eps)
  Doubles mean;     ///< that denominator, one per image
  Doubles weight;   ///< of each map
  MapRows numbers;  ///< 1 + weight * n, bias, 1 / g or 0
};

Responses responses(const MapLayout& layout, const Tensors& inputs, const Tensor& rows, double eps) {
  Responses r;
  r.g = row_of(rows, 2);
  const auto channels = static_cast<size_t>(layout.channels());
  r.weight = parameter_row(layout, inputs[1], 1);
  for (double& g : r.g) {
    g = std::sqrt(layout.pixels()) / g;  // was 1 / sqrt(mean of x²)
  }
  r.n = r.g;
  Doubles scale = r.g;
  Doubles inverse = r.g;
  for (size_t first = 0; first < r.g.size(); first += channels) {
    double sum = 0;
    for (size_t c = 0; c < channels; ++c) {
      sum += r.g[first + c];
    }
    r.mean.push_back(sum / static_cast<double>(channels) + eps);
    for (size_t c = first; c < first + channels; ++c) {
      r.n[c] = r.g[c] / r.mean.back();
      scale[c] = 1 + r.weight[c] * r.n[c];
      inverse[c] = r.g[c] == 0 ? 0 : 1 / r.g[c];
    }
  }
  r.numbers = {scale, parameter_row(layout, inputs[2], 0), inverse};
  return r;
}

Tensors global_response_backward(const Tensor& dy, const Tensors& inputs, const Tensor& rows,
                                 const GlobalResponseNormOptions& options) {
  const MapCall call{.function = MapFunction::affine, .relu = options.activation == Activation::relu};
  const MapLayout layout(inputs[0]);
  const DType dtype = inputs[0].dtype();
  const Tensor x = layout.in_order(inputs[0], dtype);
  const Tensor dz = layout.in_order(dy, dtype);
  const Responses r = responses(layout, inputs, rows, options.eps);
  const MapRows sums = map_sums(layout, dz, x, call, r.numbers);
  // dn = weight * sum(dy * x);  dg = (dn - mean over the channels of dn * n) / mean of g;  dx = dy * scale + x / g * dg
  const auto channels = static_cast<size_t>(layout.channels());
  Doubles dn = sums[1];
  Doubles dweight = sums[1];
  Doubles dg(dn.size(), 0.0);
  for (size_t first = 0; first < dn.size(); first += channels) {
    double shared = 0;
    for (size_t c = first; c < first + channels; ++c) {
      dn[c] *= r.weight[c] * r.g[c];
      dweight[c] *= r.g[c] * r.n[c];
      shared += dn[c] * r.n[c];
    }
    shared /= static_cast<double>(channels);
    for (size_t c = first; c < first + channels; ++c) {
      dg[c] = (dn[c] - shared) / r.mean[first / channels];
    }
  }
  const Doubles zero(dn.size(), 0.0);
  const Doubles& inverse = r.numbers[2];  // 0 for a map of zeros, which has no gradient through g
  const Tensor dx = map_gradient(layout, dz, x, call, r.numbers, {zero, zero, inverse, dg, zero});
  return {layout.in_place(dx), gradient_of(inputs[1], over_maps(layout, dweight)),
          gradient_of(inputs[2], over_maps(layout, sums[0]))};
}

}  // namespace

Tensor global_response_norm(const Tensor& given, const Tensor& weight, const Tensor& bias,
                            const GlobalResponseNormOptions& options) {
  constexpr std::string_view op = "global_response_norm";
  const AutocastOp cast(op);
  const Tensor x = cast.input(given);
  check_input(op, x, 3, 5);
  check_optional_per_channel(op, "weight", weight, x);
  check_optional_per_channel(op, "bias", bias, x);
  check(options.eps >= 0, op, "eps: expected a value >= 0, got {}", options.eps);
  const Tensors inputs{x, weight, bias};
  const auto composed = [eps = options.eps](const Tensors& in) { return composed_global_response(in, eps); };
  if (x.numel() == 0) {
    return activated(composed(inputs), options.activation);
  }
  const MapLayout layout(x);
  const OpScope scope([&] { return OpWork{.op = std::string(op), .bytes = bytes_of(x, x)}; });
  const Tensor in_order = layout.in_order(x, x.dtype());
  // Without eps its rstd is the inverse of the root mean square, whatever the range of x.
  const Tensor rows =
      statistics_rows_of(op, in_order, {.reduce = axes_from(2, x.rank()), .eps = 0, .centring = Centring::none});
  const Tensor y = map_forward(layout, in_order, {MapFunction::affine, options.activation == Activation::relu},
                               responses(layout, inputs, rows, options.eps).numbers);
  return record_own({.op = op,
                     .activation = options.activation,
                     .inputs = inputs,
                     .statistics = {rows},
                     .y = layout.in_place(y),
                     .composed = composed,
                     .backward = [options](const Tensor& dy, const Tensors& in, const Tensors& statistics) {
                       return global_response_backward(dy, in, statistics[0], options);
                     }});
}

}  // namespace norma
