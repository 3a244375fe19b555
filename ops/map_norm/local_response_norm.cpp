#include "ops/map_norm/local_response_norm.h"

#include "core/autocast.h"
#include "core/op_profile.h"
#include "ops/map_norm/differentiable_parts.h"
#include "ops/map_norm/local_response_kernels.h"
#include "ops/map_norm/map_norm.h"
#include "ops/norm/node.h"
#include "ops/pointwise/pointwise.h"
#include "ops/shape/pad.h"
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

/// y = x * (k + alpha / size * sums)^-beta
Tensor composed_local_response(const Tensor& x, int64_t size, const LocalResponseNormOptions& options) {
  const Tensor wide = enter(x);
  const Tensor sums = window_sums(mul(wide, wide), size / 2, (size - 1) / 2);
  const Tensor base = add(mul(sums, options.alpha / static_cast<double>(size)), options.k);
  return leave(mul(wide, pow(base, -options.beta)), x);
}

/// y where dy is undefined, else dx. x and dy: in the order of the layout.
Tensor run_local_response(const MapLayout& layout, const Tensor& x, const Tensor& dy, int64_t size,
                          const LocalResponseNormOptions& options) {
  OpScope::set_implementation("windows");
  Tensor result = layout.empty(x.dtype(), x.device());
  const int64_t furthest = layout.channels() - 1;  // neighbours further away do not exist
  const LocalResponseProblem problem{.shape = layout.shape(),
                                     .below = std::min(size / 2, furthest),
                                     .above = std::min((size - 1) / 2, furthest),
                                     .scale = options.alpha / static_cast<double>(size),
                                     .k = options.k,
                                     .beta = options.beta,
                                     .relu = options.activation == Activation::relu};
  dispatch_stored("local_response_norm", x.dtype(), [&](auto tag) {
    using S = decltype(tag);
    const LocalResponse<S> arrays{.x = x.data<S>(), .dy = data_or_null<S>(dy), .result = result.data<S>()};
    x.device().type == DeviceType::cpu ? cpu::local_response(problem, arrays) : cuda::local_response(problem, arrays);
  });
  return layout.in_place(result);
}

}  // namespace

Tensor local_response_norm(const Tensor& given, int64_t size, const LocalResponseNormOptions& options) {
  constexpr std::string_view op = "local_response_norm";
  const AutocastOp cast(op);
  const Tensor x = cast.input(given);
  check_input(op, x, 3, kMaxRank);
  check(size >= 1, op, "size: expected at least 1, got {}", size);
  const auto composed = [size, options](const Tensors& in) { return composed_local_response(in[0], size, options); };
  if (x.numel() == 0) {
    return activated(composed({x}), options.activation);
  }
  const MapLayout layout(x, 1);
  const OpScope scope([&] { return OpWork{.op = std::string(op), .bytes = bytes_of(x, x)}; });
  return record_own(
      {.op = op,
       .activation = options.activation,
       .inputs = {x},
       .statistics = {},
       .y = run_local_response(layout, layout.in_order(x, x.dtype()), {}, size, options),
       .composed = composed,
       .backward = [size, options](const Tensor& dy, const Tensors& in, const Tensors&) -> Tensors {
         const MapLayout maps(in[0], 1);
         const DType dtype = in[0].dtype();
         return {run_local_response(maps, maps.in_order(in[0], dtype), maps.in_order(dy, dtype), size, options)};
       }});
}

}  // namespace norma
