// Layer norm over the channels of each pixel, with a backward pass of its own.
//   y = x̂ · weight + bias,  x̂ = (x - mean) · r,  r = 1 / sqrt(variance + eps)
#include "by_hand.h"

using namespace norma;          // NOLINT: an example reads better without prefixes
using namespace norma::faults;  // NOLINT

namespace {

Tensors backward(const Tensor& dy, const Normalized& x, const Tensor& weight) {
  const auto& [xhat, r] = x;
  const Tensor g = dy * along_channels(weight);
  const Tensor dx = r * (g - mean(g, {1}, {.keepdim = true}) - xhat * mean(g * xhat, {1}, {.keepdim = true}));
  const Tensor dweight = to(sum(dy * xhat, {0, 2, 3}), weight.dtype());
  const Tensor dbias = to(sum(dy, {0, 2, 3}), weight.dtype());
  return {dx, dbias, dweight};
}

Tensor layer_norm_by_hand(const Tensor& x, const Tensor& weight, const Tensor& bias) {
  return layer_norm_with(backward, x, weight, bias);
}

}  // namespace

NORMA_PLUGIN {
  register_layer_norm("swapped_gradients", layer_norm_by_hand);
}
