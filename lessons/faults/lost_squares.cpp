// Layer norm over the channels of each pixel, made of ops: one pass over x for both sums.
#include "by_hand.h"

using namespace norma;          // NOLINT: an example reads better without prefixes
using namespace norma::faults;  // NOLINT

namespace {

Tensor layer_norm_by_hand(const Tensor& x, const Tensor& weight, const Tensor& bias) {
  const Tensor m = mean(x, {1}, {.keepdim = true});
  const Tensor variance = mean(x * x, {1}, {.keepdim = true}) - m * m;
  const Tensor xhat = (x - m) * rsqrt(variance + 1e-6);
  return xhat * along_channels(weight) + along_channels(bias);
}

}  // namespace

NORMA_PLUGIN {
  register_layer_norm("lost_squares", layer_norm_by_hand);
}
