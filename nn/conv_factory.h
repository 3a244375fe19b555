#pragma once

#include "nn/conv.h"

#include <memory>
#include <string>
#include <vector>

namespace norma::nn {

// Convolutions by name, as on the command line:
//   conv             nn::Conv2d
//   std_conv         nn::StdConv2d, for networks with group norm
//   scaled_std_conv  nn::ScaledStdConv2d, for networks without norms

/// The names of all convolutions.
std::vector<std::string> conv_layer_names();
/// Throws Error for an unknown name, with the nearest known one.
void check_conv_layer(const std::string& name);

/// `gamma`: see ScaledStdConv2dOptions; the other convolutions ignore it. Throws Error for an unknown name, and for one
/// weight per output channel, which standardisation would make 0.
std::shared_ptr<ConvolutionModule> make_conv(const std::string& name, int64_t in_channels, int64_t out_channels,
                                             Pair kernel, const Conv2dOptions& options = {}, double gamma = 1);

}  // namespace norma::nn
