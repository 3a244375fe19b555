#include "ops/map_norm/norms.h"

#include "core/autocast.h"
#include "core/copy.h"
#include "core/op_profile.h"
#include "core/trace.h"
#include "ops/map_norm/map_norm.h"
#include "ops/norm/checks.h"
#include "ops/pointwise/pointwise.h"
#include "ops/shape/pad.h"
#include "ops/shape/view.h"

#include <algorithm>
#include <string>

namespace norma {

using namespace norm_detail;

namespace {

constexpr std::string_view kOp = "local_response_norm";

/// The sum over channels c - below to c + above, for each channel c.
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

/// y = x * (k + alpha / size * sums)^-beta
Tensor composed(const Tensor& x, int64_t size, const LocalResponseNormOptions& options) {
  const Tensor wide = computed_in(DType::float64, x);  // its squares leave the range of float32
  const Tensor sums = window_sums(mul(wide, wide), size / 2, (size - 1) / 2);
  const Tensor base = add(mul(sums, options.alpha / static_cast<double>(size)), options.k);
  return back_to(x, mul(wide, pow(base, -options.beta)));
}

/// Returns y if dy is undefined, else dx.
Tensor run_kernel(const Tensor& x, const Tensor& dy, int64_t size, const LocalResponseNormOptions& options) {
  OpScope::set_implementation("windows");
  const MapLayout layout(x, 1);
  const Tensor x_in_order = layout.in_order(x, x.dtype());
  const Tensor dy_in_order = dy.defined() ? layout.in_order(dy, x.dtype()) : Tensor{};
  const Tensor result = layout.empty(x.dtype(), x.device());
  const int64_t furthest = x.size(1) - 1;  // neighbours further away do not exist
  const kernels::LocalResponseProblem problem{.shape = layout.shape(),
                                              .below = std::min(size / 2, furthest),
                                              .above = std::min((size - 1) / 2, furthest),
                                              .scale = options.alpha / static_cast<double>(size),
                                              .k = options.k,
                                              .beta = options.beta,
                                              .relu = options.activation == Activation::relu};
  kernels::map_norm_kernels.at(kOp, x.device())
      ->local_response(
          x.dtype(), problem,
          {.x = x_in_order.device_pointer(), .dy = pointer_or_null(dy_in_order), .result = result.device_pointer()});
  return layout.copy_back(result);
}

}  // namespace

Tensor local_response_norm(const Tensor& input, int64_t size, const LocalResponseNormOptions& options) {
  const AutocastOp cast(kOp);
  const Tensor x = cast.input(input);
  check_input(kOp, x, 3, kMaxRank);
  check(size >= 1, kOp, "size: expected at least 1, got {}", size);
  if (x.numel() == 0 || is_tracing()) {
    return activate(composed(x, size, options), options.activation);
  }
  const OpScope scope([&] { return OpWork{.op = std::string(kOp), .bytes = bytes_of(x, x)}; });
  return record_map_norm({.op = kOp,
                          .activation = options.activation,
                          .inputs = {x},
                          .stats = {},
                          .y = run_kernel(x, {}, size, options),
                          .composed = [size, options](const Tensors& in) { return composed(in[0], size, options); },
                          .backward = [size, options](const Tensor& dy, const Tensors& in, const Tensors&) -> Tensors {
                            return {run_kernel(in[0], dy, size, options)};
                          }});
}

}  // namespace norma
