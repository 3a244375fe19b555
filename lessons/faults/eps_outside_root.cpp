// Layer norm over the channels of each pixel, made of ops.
#include "by_hand.h"

using namespace norma;          // NOLINT: an example reads better without prefixes
using namespace norma::faults;  // NOLINT

namespace {

Tensor layer_norm_by_hand(const Tensor& x, const Tensor& weight, const Tensor& bias) {
  const Tensor centred = x - mean(x, {1}, {.keepdim = true});
  const Tensor variance = mean(centred * centred, {1}, {.keepdim = true});
  const Tensor xhat = centred / (sqrt(variance) + 1e-6);
  return xhat * along_channels(weight) + along_channels(bias);
}

}  // namespace

NORMA_PLUGIN {
  register_layer_norm("eps_outside_root", layer_norm_by_hand);
}
