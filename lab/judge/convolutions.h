#pragma once

#include "core/dtype.h"
#include "core/memory_format.h"

#include <array>
#include <functional>
#include <string>
#include <vector>

namespace norma::lab::judge {

/// The errors of one implementation of 3x3 convolutions in float32, as root mean square over that of the same in
/// float64.
struct ConvolutionErrors {
  std::string what;  ///< of one layer "8x64x56x56"; of a training step "resnet18 batch 8x3x64x64"
  MemoryFormat format = MemoryFormat::channels_last;
  std::string implementation;    ///< a name of convolution_implementations()
  std::array<double, 3> errors;  ///< in the order of layer_quantities() or step_quantities()
};

/// exact, winograd_2x2, winograd_4x4 and fast. exact is the direct sum. A size of tiles computes all layers that it
/// can, whether that is faster or not. fast is what conv2d() chooses.
const std::vector<std::string>& convolution_implementations();
/// output, dx, dweight
const std::array<std::string, 3>& layer_quantities();
/// logits; dparameters, the gradients of all parameters together; and dparameter_worst, that of the parameter with the
/// largest error
const std::array<std::string, 3>& step_quantities();

/// The errors of single convolutions with padding 1 and as many outputs as inputs. x is N(0, 1), negative numbers made
/// 0, as a ReLU leaves it; the weight and dy are N(0, 1). Quick: one memory format. `progress` gets the name of each
/// layer before it is measured. Ends early when interrupted() (interrupt.h). Throws Error as check_convolutions().
std::vector<ConvolutionErrors> measure_convolutions(bool quick,
                                                    const std::function<void(const std::string&)>& progress);

/// The errors of one training step of whole networks at their start values, on N(0, 1) images with cross entropy, in
/// channels_last: the lower quartile of nine seeds. Where a ReLU's input is so near 0 that float32 has another sign,
/// gradients jump by a thousand times their rounding; that happens in about every second step, with every
/// implementation. Quick: one network and five seeds. Otherwise as measure_convolutions().
std::vector<ConvolutionErrors> measure_steps(bool quick, const std::function<void(const std::string&)>& progress);

/// Throws Error if the default device has no convolutions by Winograd's transforms. CUDA has none.
void check_convolutions();

}  // namespace norma::lab::judge
