#pragma once

#include "core/tensor.h"

#include <cstdint>

namespace norma {

/// Mixes image i of a batch of n with image n - 1 - i, all with the same numbers. An image that would be mixed with
/// itself stays as it is.
struct ImagePairMix {
  double lambda = 1;  ///< an image's own share, in [0, 1]; 1: nothing is mixed
  /// CutMix (Yun et al., 2019): the box comes from the other image. Else mixup (Zhang et al., 2018): each number
  /// becomes lambda times its own plus 1 - lambda times the other's.
  bool cutmix = false;
  int64_t top = 0, left = 0, height = 0, width = 0;  ///< the box
};

/// The float32 images of bytes: y[n, c, h, w] = table[c, x[n, c, h, w]], then mixed.
///
/// x: (N, C, H, W), uint8, contiguous or channels_last. table: (C, 256), float32, on x's device. The result has x's
/// memory format. Nothing is recorded on the tape, as bytes have no gradient. Throws Error for other tensors, a lambda
/// outside [0, 1], and a box that is not in the images.
Tensor normalize_images(const Tensor& x, const Tensor& table, const ImagePairMix& mix = {});

}  // namespace norma
