#pragma once

#include "nn/module.h"
#include "nn/norm/factory.h"

#include <cstdint>
#include <memory>
#include <string>

namespace norma::nn {

class Norm;

// Changes the norms of an existing model. Make the optimizer and other holders of parameters afterwards: they keep the
// old ones.

/// A norm for the same channels as `norm`, a layer of `model`, with its mode and the dtypes of its parameters and of
/// its buffers (the model's where it has none), on the model's device. It copies weight, bias and all other parameters
/// and buffers that both have in the same sizes, but nothing between grn and another norm, since grn's weight is no
/// factor of the output. A parameter that both have requires a gradient in both or in neither. Parameters that `norm`
/// lacks have their start values, and are trained.
std::shared_ptr<Module> converted_norm(const Module& model, const Norm& norm, const NormChoice& to);

/// Replaces every norm layer (in a ChildSlot) of the kind `from` by one of the kind `to` (both specs of
/// nn/norm/factory.h). `from` with groups or options means only layers that have just these. Weights and biases are
/// carried over. Returns how many were replaced. Throws Error when there is none, for groups that do not divide a
/// layer's channels, and for a norm that needs pixels in the place of one whose input has a single pixel; nothing has
/// changed then.
int64_t convert_norm(Module& model, const std::string& from, const std::string& to);

/// Folds batch norms into convolutions, for inference: every batch norm of (N, C, H, W), frozen, ghost and renorm among
/// them, that directly follows a convolution. y = conv(x) becomes conv(x) · s + (bias - mean · s) with s = weight /
/// sqrt(var + eps). A FoldedNorm takes the norm's place, so that convolution, addition and relu become one op
/// (conv2d_act()). A forward pass of `example` shows which norm follows which convolution and proves the result:
/// outputs before and after must agree, in float32 if the model has 16 bits. The model is put into evaluation mode and
/// stays there. Returns how many were folded. Throws Error when there is none, when a running statistic is missing,
/// when `example` has no image, or when the output has changed because something else also reads a convolution's
/// output; nothing has changed then.
int64_t fold_batch_norm(Module& model, const Tensor& example);

}  // namespace norma::nn
