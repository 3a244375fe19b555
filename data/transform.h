#pragma once

#include "data/augment/random.h"
#include "data/dataset.h"

#include <array>
#include <cstdint>
#include <span>
#include <vector>

namespace norma::data {

struct TransformOptions {
  int64_t image_size = 32;       ///< height and width of the result; smaller images are padded with black on all sides
  int64_t channels = 3;          ///< of the result; a grey image is repeated
  bool augment = false;          ///< random crop and flip (for training)
  int64_t crop_padding = 4;      ///< with augment: the window moves by up to this many pixels in each direction
  bool flip = true;              ///< with augment: mirror every second image, by chance
  std::vector<float> mean = {};  ///< per channel of the dataset, in [0, 1]; empty: the dataset's own
  std::vector<float> std = {};
};

/// From the bytes of a dataset's image to a network's input: pad, crop, flip, (x / 255 - mean) / std.
class Transform {
 public:
  /// Throws Error when the images are larger than image_size, when `channels` is neither the dataset's number nor, for
  /// grey images, any other, and when mean or std have the wrong length or std is not positive.
  explicit Transform(const DatasetInfo& info, const TransformOptions& options = {});

  [[nodiscard]] const TransformOptions& options() const { return options_; }

  /// Writes element (c, h, w) to output[c * strides[0] + h * strides[1] + w * strides[2]].
  void apply(std::span<const uint8_t> image, const AugmentationKey& key, float* output,
             const std::array<int64_t, 3>& strides) const;

 private:
  TransformOptions options_;
  int64_t source_channels_;
  int64_t source_height_;
  int64_t source_width_;
  std::vector<std::array<float, 256>> normalized_;  ///< per channel of the result, the value of each byte
};

}  // namespace norma::data
