#include "ops/norm/response_norm.h"

#include "core/autocast.h"
#include "ops/norm/composing.h"
#include "ops/norm/implementation.h"
#include "ops/pointwise/pointwise.h"
#include "ops/reduce/reduce.h"
#include "ops/shape/join.h"
#include "ops/shape/view.h"

#include <algorithm>

namespace norma {

using namespace norm_kernels;

namespace {

/// The sum over channels c - below to c + above of each channel c.
Tensor window_sums(const Tensor& x, int64_t below, int64_t above) {
  const int64_t channels = x.size(1);
  // Neighbours further away than the last channel are 0 for every channel.
  below = std::min(below, std::max<int64_t>(0, channels - 1));
  above = std::min(above, std::max<int64_t>(0, channels - 1));
  Sizes before = Sizes::filled(x.rank(), 0);
  Sizes after = Sizes::filled(x.rank(), 0);
  before[1] = below;
  after[1] = above;
  const Tensor padded = pad(x, before, after);
  Tensor sums = narrow(padded, 1, 0, channels);
  for (int64_t shift = 1; shift <= below + above; ++shift) {
    sums = add(sums, narrow(padded, 1, shift, channels));
  }
  return sums;
}

}  // namespace

Tensor local_response_norm(const Tensor& given, int64_t size, const LocalResponseNormOptions& options) {
  constexpr std::string_view op = "local_response_norm";
  const AutocastOp cast(op);
  const Tensor x = cast.input(given);
  check_input(op, x, 3, kMaxRank);
  check(size >= 1, op, "size: expected at least 1, got {}", size);
  const Tensor wide = enter(x);
  // y = x * (k + alpha / size * sums)^-beta
  const Tensor sums = window_sums(mul(wide, wide), size / 2, (size - 1) / 2);
  const Tensor base = add(mul(sums, options.alpha / static_cast<double>(size)), options.k);
  return leave(mul(wide, pow(base, -options.beta)), x);
}

Tensor filter_response_norm(const Tensor& given, const Tensor& weight, const Tensor& bias, const Tensor& tau,
                            const FilterResponseNormOptions& options) {
  constexpr std::string_view op = "filter_response_norm";
  const AutocastOp cast(op);
  const Tensor x = cast.input(given);
  check_input(op, x, 3, 5);
  check_optional_per_channel(op, "weight", weight, x);
  check_optional_per_channel(op, "bias", bias, x);
  check_optional_per_channel(op, "tau", tau, x);
  const NormSpec spec{.reduce = axes_from(2, x.rank()), .affine = {1}, .eps = options.eps, .centring = Centring::none};
  const Tensor wide = enter(x);
  Tensor y = normalize(wide, spec, in_dtype(weight, wide.dtype()), in_dtype(bias, wide.dtype()), nullptr, op);
  if (tau.defined()) {
    y = maximum(y, along_channels(tau, y));
  }
  return leave(y, x);
}

Tensor global_response_norm(const Tensor& given, const Tensor& weight, const Tensor& bias,
                            const GlobalResponseNormOptions& options) {
  constexpr std::string_view op = "global_response_norm";
  const AutocastOp cast(op);
  const Tensor x = cast.input(given);
  check_input(op, x, 3, 5);
  check_optional_per_channel(op, "weight", weight, x);
  check_optional_per_channel(op, "bias", bias, x);
  check(options.eps >= 0, op, "eps: expected a value >= 0, got {}", options.eps);
  const Tensor wide = enter(x);
  const Tensor mean_square = variance(op, wide, {.reduce = axes_from(2, x.rank()), .centring = Centring::none});
  const double pixels = static_cast<double>(x.numel()) / static_cast<double>(std::max<int64_t>(1, mean_square.numel()));
  const Tensor g = sqrt_flat_at_zero(mul(mean_square, pixels));
  const Tensor n = div(g, add(mean(g, {1}, {.keepdim = true}), options.eps));
  // x + weight * (x * n) + bias = x * (1 + weight * n) + bias: the bracket is one number per map.
  const Tensor scale = add(weight.defined() ? mul(n, along_channels(weight, wide)) : n, 1);
  return leave(scale_and_shift(mul(wide, scale), {}, bias), x);
}

}  // namespace norma
