#pragma once

#include "base/range.h"
#include "core/tensor.h"
#include "data/augment/color.h"
#include "data/augment/policy.h"
#include "data/augment/random.h"
#include "data/augment/rectangles.h"
#include "data/dataset.h"
#include "data/image_file.h"
#include "data/resize.h"

#include <array>
#include <cstdint>
#include <optional>
#include <vector>

namespace norma::data {

inline constexpr Range<double> kCropPct = {0.05, 1};

/// The length of the shorter side to which an image is resized before its middle is cut out: floor(image_size /
/// crop_pct). 0.875 gives 256 for 224, as torchvision and timm evaluate.
int64_t resized_side(int64_t image_size, double crop_pct);

/// The random changes to training images, by the definitions of docs/augmentation.md, in this order.
struct AugmentOptions {
  /// A random window is resized to the result's size. None: the image is padded or resized as without augmentation.
  std::optional<RandomResizedCropOptions> resized_crop = std::nullopt;
  double hflip = 0;  ///< probability
  double vflip = 0;  ///< probability
  /// RandAugment fills with the mean, TrivialAugmentWide with black.
  std::optional<Policy::Kind> policy = std::nullopt;
  ColorJitterOptions color_jitter = {};
  RandomErasingOptions erasing = {};  ///< of the normalized image
};

struct TransformOptions {
  int64_t image_size = 32;       ///< height and width of the result
  int64_t channels = 3;          ///< in the result; a grey image is repeated
  bool augment = false;          ///< random crop and flip (for training)
  int64_t crop_padding = 4;      ///< with augment: the window moves by up to this many pixels in each direction
  bool flip = true;              ///< with augment: mirror each image with probability 1/2
  std::vector<float> mean = {};  ///< per channel of the dataset, in [0, 1]; empty: the dataset's own
  std::vector<float> std = {};
  double crop_pct = 0.875;                       ///< for images that are resized: resized_side()
  ResizeFilter filter = ResizeFilter::bilinear;  ///< for resizing, and for a policy's geometry
  bool random_filter = false;                    ///< bilinear or bicubic for each image, by chance, instead of `filter`
  AugmentOptions augmentation = {};
};

/// Turns a dataset's image into a network's input: fit, crop, flip, (x / 255 - mean) / std. If all images have one size
/// that is no larger than image_size, they are padded with black on all sides. Others are resized, so that the shorter
/// side is resized_side() pixels long, and their middle is cut out. `augment` moves and mirrors the fitted image.
/// `augmentation` comes after that, except its resized crop, which fits the image.
class Transform {
 public:
  /// Throws Error when `channels` is neither the dataset's number nor, for grey images, any other, when mean or std
  /// have the wrong length or std is not positive, when image_size is not from 1 to 2^20, crop_padding not from 0 to
  /// 2^20 or crop_pct outside kCropPct, and for invalid numbers in an augmentation.
  explicit Transform(const DatasetInfo& info, const TransformOptions& options = {});

  [[nodiscard]] const TransformOptions& options() const { return options_; }

  /// True iff the result shows only a window of an image, that of window().
  [[nodiscard]] bool has_window() const { return options_.augmentation.resized_crop.has_value(); }
  /// The window of an image of these sizes that the resized crop cuts out.
  [[nodiscard]] Rectangle window(const AugmentationKey& key, int64_t height, int64_t width) const;
  /// Loads image `index` of the dataset, or no more of it than holds window(), and returns its label. `image` and
  /// `window` are for apply().
  int64_t load(const Dataset& dataset, int64_t index, const AugmentationKey& key, Image& image,
               Rectangle& window) const;

  /// Writes element (c, h, w) to output[c * strides[0] + h * strides[1] + w * strides[2]]. `window` is the place of
  /// window() in an image that is only a part of the dataset's; a transform that has none does not look at it. Throws
  /// Error for an image that differs from the dataset's info.
  void apply(const Image& image, const AugmentationKey& key, float* output, const std::array<int64_t, 3>& strides,
             const Rectangle* window = nullptr) const;
  /// The same without the last step, the normalization. Throws Error also for a transform with random erasing.
  void apply(const Image& image, const AugmentationKey& key, uint8_t* output, const std::array<int64_t, 3>& strides,
             const Rectangle* window = nullptr) const;
  /// (C, 256), float32: the normalized value of each byte, for each channel of the result.
  [[nodiscard]] Tensor table() const;

 private:
  /// The place of an image in the result.
  struct Place {
    int64_t top = 0;
    int64_t left = 0;
    bool mirrored = false;  ///< the result is mirrored afterwards
  };

  void check_source(const Image& image) const;
  [[nodiscard]] bool changes_bytes() const;
  [[nodiscard]] bool fits_by_resizing() const { return has_window() || resizes_; }
  /// Resizes the image, or its window, to the result's size.
  void resize_to_fit(const Image& image, const AugmentationKey& key, const Rectangle* window, const Flips& flips,
                     Image& result) const;
  [[nodiscard]] Place place_of(const Image& image, const AugmentationKey& key) const;
  /// The bytes of the result, black around the image.
  [[nodiscard]] Image placed(const Image& image, const Place& place) const;
  void augment(const AugmentationKey& key, Image& image) const;
  /// Everything but random erasing.
  template <class T>
  void write(const Image& image, const AugmentationKey& key, T* output, const std::array<int64_t, 3>& strides,
             const Rectangle* window) const;
  template <class T>
  void place_into(const Image& image, const Place& place, T* output, const std::array<int64_t, 3>& strides) const;

  TransformOptions options_;
  int64_t source_channels_;
  int64_t source_height_;
  int64_t source_width_;
  bool resizes_;
  std::optional<Policy> policy_;
  std::vector<std::array<float, 256>> normalized_;  ///< per channel of the dataset, the normalized value of each byte
};

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
