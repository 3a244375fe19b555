#pragma once

#include "core/range.h"
#include "data/augment/color_jitter.h"
#include "data/augment/crop.h"
#include "data/augment/erase.h"
#include "data/augment/policy.h"
#include "data/augment/random.h"
#include "data/dataset.h"
#include "data/image_file.h"
#include "data/resize.h"

#include <array>
#include <cstdint>
#include <optional>
#include <vector>

namespace norma::data {

inline constexpr Range<double> kCropPct = {0.05, 1};

/// What chance does to training images, by the definitions of docs/augmentation.md, in this order.
struct AugmentOptions {
  /// A window is resized to the result's size. None: the image is padded or resized as without augmentation.
  std::optional<RandomResizedCropOptions> resized_crop = std::nullopt;
  double hflip = 0;                                   ///< probability
  double vflip = 0;                                   ///< probability
  std::optional<Policy::Kind> policy = std::nullopt;  ///< fills with the mean, TrivialAugmentWide with black
  ColorJitterOptions color_jitter = {};
  RandomErasingOptions erasing = {};  ///< of the normalized image
};

struct TransformOptions {
  int64_t image_size = 32;       ///< height and width of the result
  int64_t channels = 3;          ///< of the result; a grey image is repeated
  bool augment = false;          ///< random crop and flip (for training)
  int64_t crop_padding = 4;      ///< with augment: the window moves by up to this many pixels in each direction
  bool flip = true;              ///< with augment: mirror every second image, by chance
  std::vector<float> mean = {};  ///< per channel of the dataset, in [0, 1]; empty: the dataset's own
  std::vector<float> std = {};
  /// Of images that are resized: the result is this part of the side of the resized image. 0.875 is 224 of 256, as
  /// torchvision and timm evaluate.
  double crop_pct = 0.875;
  ResizeFilter filter = ResizeFilter::bilinear;  ///< likewise, and of what a policy moves
  bool random_filter = false;                    ///< bilinear or bicubic for each image, by chance, instead of `filter`
  AugmentOptions augmentation = {};
};

/// From a dataset's image to a network's input: fit, crop, flip, (x / 255 - mean) / std. Images of one size that is no
/// larger than image_size are padded with black on all sides. All others are resized, so that the shorter side is
/// floor(image_size / crop_pct) pixels long, and their middle is cut out. `augment` moves and mirrors what was fitted;
/// `augmentation` comes after it, but for its resized crop, which fits the image.
class Transform {
 public:
  /// Throws Error when `channels` is neither the dataset's number nor, for grey images, any other, when mean or std
  /// have the wrong length or std is not positive, when crop_pct is outside kCropPct, and for an augmentation whose
  /// numbers make no sense.
  explicit Transform(const DatasetInfo& info, const TransformOptions& options = {});

  [[nodiscard]] const TransformOptions& options() const { return options_; }

  /// Writes element (c, h, w) to output[c * strides[0] + h * strides[1] + w * strides[2]]. Throws Error for an image
  /// that is not as the dataset's info says.
  void apply(const Image& image, const AugmentationKey& key, float* output,
             const std::array<int64_t, 3>& strides) const;

 private:
  /// Where an image comes to lie in the result.
  struct Place {
    int64_t top = 0;
    int64_t left = 0;
    bool mirrored = false;  ///< the result, afterwards
  };

  void check_source(const Image& image) const;
  [[nodiscard]] bool changes_bytes() const;
  /// The image in a size that is no larger than the result: itself, or one made in `made`.
  const Image& fitted(const Image& image, const AugmentationKey& key, Image& made) const;
  [[nodiscard]] Place place_of(const Image& image, const AugmentationKey& key) const;
  /// In bytes, of the result's size, black around the image.
  [[nodiscard]] Image placed(const Image& image, const Place& place) const;
  [[nodiscard]] Image augmented(Image image, const AugmentationKey& key) const;
  void normalize(const Image& image, const Place& place, float* output, const std::array<int64_t, 3>& strides) const;

  TransformOptions options_;
  int64_t source_channels_;
  int64_t source_height_;
  int64_t source_width_;
  bool resizes_;
  std::optional<Policy> policy_;
  std::vector<std::array<float, 256>> normalized_;  ///< per channel of the result, the value of each byte
};

}  // namespace norma::data
