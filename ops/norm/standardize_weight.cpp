#include "ops/norm/standardize_weight.h"

#include "core/copy.h"
#include "core/factory.h"
#include "ops/norm/checks.h"
#include "ops/pointwise/pointwise.h"
#include "ops/shape/copy.h"
#include "ops/shape/view.h"

#include <cmath>

namespace norma {

using namespace norm_detail;

Tensor standardize_weight(const Tensor& weight, const Tensor& gain, const StandardizeWeightOptions& options) {
  constexpr std::string_view op = "standardize_weight";
  check_defined(op, "weight", weight);
  check_floating(op, "weight", weight);
  check(weight.rank() >= 2 && weight.rank() <= 5, op, "weight: expected rank 2 to 5, got rank {} (sizes {})",
        weight.rank(), to_string(weight.sizes()));
  const int64_t out = weight.size(0);
  const int64_t fan_in = out == 0 ? 0 : weight.numel() / out;
  check(fan_in != 1, op, "weight: expected more than 1 value per output channel, got sizes {}",
        to_string(weight.sizes()));
  const DType dtype = compute_dtype(weight.dtype());
  Tensor scale;
  if (gain.defined()) {
    check(gain.numel() == out, op, "gain: expected {} values, got sizes {}", out, to_string(gain.sizes()));
    check_parameter(op, "gain", gain, weight);
    scale = reshape(to(gain, dtype), {out});
  }
  if (options.gamma) {
    const double factor = *options.gamma / std::sqrt(static_cast<double>(fan_in));
    scale = scale.defined() ? mul(scale, factor) : full({out}, factor, {.dtype = dtype, .device = weight.device()});
  }
  const NormSpec spec{
      .reduce = axes_from(1, weight.rank()), .affine = {0}, .statistics = options.statistics, .eps = options.eps};
  return normalize(weight, spec, scale, {}, nullptr, op);
}

}  // namespace norma
