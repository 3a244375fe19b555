#pragma once

#include "core/tensor.h"

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace norma::nn {

class Module;

// Other norms in a trained network. `model` has the weights of `old`, the trained network, and other norms in some of
// its layers: those at whose path the two have layers of another name(). Only these change; with none, nothing does.
//
// Both functions give weight γ' and bias β' of each channel so that the new output γ' v + β' has the mean m and the
// deviation s that the old output has. v is the new norm's value before weight and bias, of mean m̂ and deviation ŝ:
//   γ' = ± s / ŝ, with the sign of the old weight       β' = m - γ' m̂
// A norm without a bias gets the γ' for which (m - γ' m̂)² + (s - |γ'| ŝ)² is least, or 0 where that has another sign
// than the old weight: mean and deviation come near m and s, and neither is met. A channel without deviation (ŝ below a
// millionth of 1 + |m̂|) keeps its weight, and gets the bias that gives the mean m. alpha of dyt and derf becomes its
// start value over the root mean square of the old layer's inputs, so that tanh or erf bends where it would for inputs
// of deviation 1. If the old layer has an alpha, too, alpha stays as it is.

/// The batches of images of a walk.
struct ImageBatches {
  int64_t count = 0;
  std::function<Tensor(int64_t number)> at;  ///< (N, C, H, W) on the model's device; the same on every call
};

/// The distance of a norm's output from that of the norm before it.
struct NormMatch {
  std::string path;
  std::string before;  ///< name() of the old layer
  std::string after;
  /// The whole layer's old output has no deviation, as with a weight of 0.
  bool is_constant = false;
  // As shares of the deviation of the whole layer's old output; of 1 if that is constant.
  double mean = 0;       ///< the largest difference of a channel's mean
  double deviation = 0;  ///< the largest difference of a channel's deviation
  double output = 0;     ///< root mean square of the difference of outputs; 1: as far as constant channels are
};

/// Chooses weight and bias of each new norm, front to back, by m and s of the old network's output and m̂ and ŝ over
/// `batches`, with the new norms before it already chosen. A norm with running statistics first gets those of its
/// inputs over the batches. Both networks run in evaluation mode, and get their modes back. It takes one pass of the
/// old network, and of the new one a pass for each new norm, or two if it has running statistics, up to that norm:
/// about half a pass of the network each. Returns the number of new norms. Throws Error for a new norm whose output is
/// not weight · v + bias (frn, grn, local_response, none, affine=false).
int64_t calibrate_norms(Module& model, Module& old, const ImageBatches& batches);

/// Chooses weight and bias of each new norm without images, by running statistics μ and σ² of batch norm. Its output
/// has m = β and s = |γ| σ / √(σ² + ε). m̂ and ŝ are those of inputs whose channels have just these statistics: with M
/// and V, mean and variance of a set of the new norm,
///   m̂ = (μ - M) / √(V + ε')    ŝ = σ / √(V + ε'), so that γ' = γ √(V + ε') / √(σ² + ε), β' = β - γ (μ - M) / √(σ² + ε)
/// M and V are:
///   group, layer2d   the mean of μ, and of σ² + μ² less M², over the channels of a group, or all
///   instance         μ and σ² of the channel
///   simple2d         0, and as layer2d
///   rms2d            0, and the mean of σ² + μ² over all channels; without a bias as above, and so is simple2d
///   batch norms      the running statistics, which are copied
/// dyt and derf, which have no sets, get m̂ and ŝ of normal inputs with mean μ and variance σ². Returns the number of
/// new norms. Throws Error, and has changed nothing, for an old norm without running statistics and for other new ones.
int64_t fold_statistics(Module& model, Module& old);

/// The distance of each new norm from the old one over `batches`, in the order of the layers. It takes a pass of each
/// network, in evaluation mode, and keeps the old norms' outputs for up to 16 images.
std::vector<NormMatch> compare_norms(Module& model, Module& old, const ImageBatches& batches);

}  // namespace norma::nn
