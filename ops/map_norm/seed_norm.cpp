#include "core/autocast.h"
#include "core/copy.h"
#include "ops/map_norm/map_norm.h"
#include "ops/map_norm/norms.h"
#include "ops/norm/checks.h"
#include "ops/pointwise/pointwise.h"
#include "ops/reduce/reduce.h"
#include "ops/shape/copy.h"
#include "ops/shape/view.h"

#include <utility>

namespace norma {

using namespace norm_detail;

Tensor seed_norm(const Tensor& input, const Tensor& weight, const Tensor& alpha, const Tensor& beta,
                 const SeedNormOptions& options) {
  constexpr std::string_view kOp = "seed_norm";
  const AutocastOp cast(kOp);
  const Tensor x = cast.input(input);
  check_input(kOp, x, 1, kMaxRank);
  const int64_t axis = normalize_axis(kOp, options.axis, x.rank());
  const std::pair<std::string_view, const Tensor&> parameters[] = {
      {"weight", weight}, {"alpha", alpha}, {"beta", beta}};
  for (const auto& [name, parameter] : parameters) {
    check_defined(kOp, name, parameter);
    check_sizes(kOp, name, parameter, {x.size(axis)});
    check_parameter(kOp, name, parameter, x);
  }
  const Tensor wide = in_compute_dtype(x);
  const auto of_channels = [&](const Tensor& parameter) { return to(parameter, wide.dtype()); };
  Sizes along = Sizes::filled(x.rank(), 1);
  along[axis] = x.size(axis);
  const NormSpec rms{.reduce = {axis}, .affine = {axis}, .eps = options.eps, .centring = Centring::none};
  const Tensor t = tanh(sum(mul(wide, reshape(of_channels(beta), along)), {axis}, {.keepdim = true}));
  // Both terms are norms with a weight, which compute x / rms(x) again in backward and keep x alone. x / rms(x) as a
  // tensor, and the scale of each element as another, would be kept beside it.
  const Tensor dynamic = mul(normalize(wide, rms, of_channels(alpha), {}, nullptr, kOp), t);
  return back_to(x, norm_act(wide, rms, of_channels(weight), {},
                             {.activation = options.activation, .residual = dynamic}, nullptr, kOp));
}

}  // namespace norma
