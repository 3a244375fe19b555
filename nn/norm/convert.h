#pragma once

#include "nn/module.h"
#include "nn/norm/factory.h"

#include <cstdint>
#include <memory>
#include <string>

namespace norma::nn {

class Norm;

// Changing the norms of a model that is already there. The optimizer and other holders of parameters keep the old ones:
// make them afterwards.

/// A norm for the same channels as `norm`, a layer of `model`, with its mode and its dtype (or the model's where it has
/// no tensors), on the model's device. Weight, bias and all other parameters and buffers whose name and sizes both have
/// are copied; parameters that both have want a gradient in both or in neither. `to` decides which there are: those
/// that `norm` lacks have their start values, and are trained.
std::shared_ptr<Module> converted_norm(const Module& model, const Norm& norm, const NormChoice& to);

/// Replaces every norm layer (in a ChildSlot) of the kind `from` by one of the kind `to` (both specs of
/// nn/norm/factory.h). `from` with groups or options means layers that have just these; without, any of the kind.
/// Weights and biases are carried over. Returns how many were replaced. Throws Error when there is none, and for a norm
/// that needs pixels in the place of one whose input has a single one; nothing has changed then.
int64_t convert_norm(Module& model, const std::string& from, const std::string& to);

/// Folds every batch norm of (N, C, H, W), frozen, ghost and renorm among them, that directly follows a convolution
/// into it, for inference: y = conv(x) becomes conv(x) · s + (bias - mean · s) with s = weight / sqrt(var + eps). A
/// FoldedNorm stands in the norm's place, so that convolution, addition and relu become one op (conv2d_act()). Which
/// norm follows which convolution is seen in a forward pass of `example`, which also proves the result: the outputs
/// before and after must agree, in float32 where the model has 16 bits. The model is put into evaluation mode and stays
/// there. Returns how many were folded. Throws Error when there is none, when a running statistic is missing, or when
/// the output has changed, because something else reads a convolution's output too; nothing has changed then.
int64_t fold_batch_norm(Module& model, const Tensor& example);

}  // namespace norma::nn
