#pragma once

#include "core/tensor.h"
#include "data/image_file.h"

#include <array>

namespace norma::data {

/// Mean and standard deviation of ImageNet's training images, per channel, in [0, 1]. torchvision's and timm's weights
/// expect images normalized by them.
inline constexpr std::array<float, 3> kImageNetMean = {0.485F, 0.456F, 0.406F};
inline constexpr std::array<float, 3> kImageNetStd = {0.229F, 0.224F, 0.225F};

/// The image as a tensor (1, C, H, W), float32, contiguous, on the CPU: (byte / 255 - mean) / std. A grey image takes
/// the first number of `mean` and of `std`. Throws Error as check_image().
Tensor image_to_tensor(const Image& image, const std::array<float, 3>& mean = {0, 0, 0},
                       const std::array<float, 3>& std = {1, 1, 1});

/// The image of a tensor (C, H, W), or (1, C, H, W), with C of 1 or 3, of any dtype, strides and device. 0 becomes 0
/// and 1 becomes 255, rounded to nearest; numbers outside are clamped, and NaN becomes 0. Throws Error for other sizes.
Image tensor_to_image(const Tensor& x);

}  // namespace norma::data
