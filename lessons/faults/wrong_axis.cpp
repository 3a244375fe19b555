// Layer norm over the channels of each pixel, made of ops. x has the axes (N, C, H, W).
#include "by_hand.h"

using namespace norma;          // NOLINT: an example reads better without prefixes
using namespace norma::faults;  // NOLINT

namespace {

Tensor layer_norm_by_hand(const Tensor& x, const Tensor& weight, const Tensor& bias) {
  const Axes axes{0};
  const Tensor centred = x - mean(x, axes, {.keepdim = true});
  const Tensor xhat = centred * rsqrt(mean(centred * centred, axes, {.keepdim = true}) + 1e-6);
  return xhat * along_channels(weight) + along_channels(bias);
}

}  // namespace

NORMA_PLUGIN {
  register_layer_norm("wrong_axis", layer_norm_by_hand);
}
