#include "data/transform.h"

#include "core/error.h"
#include "core/random.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace norma::data {

namespace {

// Keeps these numbers apart from those that other parts draw from the same seed.
constexpr uint64_t kAugmentationStream = uint64_t{1} << 62;

/// Of a side. Shifts up to here are drawn from 32 bits, and the elements of an image fit an int64.
constexpr int64_t kMaxPixels = 1 << 20;

/// In [-limit, limit].
int64_t random_shift(uint32_t bits, int64_t limit) {
  return static_cast<int64_t>((uint64_t{bits} * static_cast<uint64_t>(2 * limit + 1)) >> 32) - limit;
}

}  // namespace

Transform::Transform(const DatasetInfo& info, const TransformOptions& options)
    : options_(options),
      source_channels_(info.channels),
      source_height_(info.height),
      source_width_(info.width),
      resizes_(info.height == 0 || std::max(info.height, info.width) > options.image_size) {
  check(options.channels == info.channels || (info.channels == 1 && options.channels > 0), "transform",
        "channels: expected {}, got {}", info.channels == 1 ? "at least 1" : std::to_string(info.channels),
        options.channels);
  check_range("transform", "image_size", options.image_size, Range<int64_t>{1, kMaxPixels});
  check_range("transform", "crop_padding", options.crop_padding, Range<int64_t>{0, kMaxPixels});
  check_range("transform", "crop_pct", options.crop_pct, kCropPct);
  if (options_.mean.empty()) {
    options_.mean = info.mean;
  }
  if (options_.std.empty()) {
    options_.std = info.std;
  }
  const auto channels = static_cast<size_t>(info.channels);
  check(options_.mean.size() == channels, "transform", "mean: expected {} numbers, got {}", channels,
        options_.mean.size());
  check(options_.std.size() == channels, "transform", "std: expected {} numbers, got {}", channels,
        options_.std.size());
  for (size_t c = 0; c < channels; ++c) {
    check(options_.std[c] > 0, "transform", "std: expected positive numbers, got {}", options_.std[c]);
    auto& table = normalized_.emplace_back();
    for (size_t value = 0; value < table.size(); ++value) {
      table[value] = (static_cast<float>(value) / 255 - options_.mean[c]) / options_.std[c];
    }
  }
}

void Transform::check_source(const Image& image) const {
  const bool sized = source_height_ == 0 ? image.height > 0 && image.width > 0
                                         : image.height == source_height_ && image.width == source_width_;
  check(sized && image.channels == source_channels_, "transform",
        "image: expected {} pixels of {} channels, got {} x {} of {}",
        source_height_ == 0 ? "any number of" : fmt::format("{} x {}", source_height_, source_width_), source_channels_,
        image.height, image.width, image.channels);
  check(static_cast<int64_t>(image.pixels.size()) == image.height * image.width * image.channels, "transform",
        "image: expected {} bytes, got {}", image.height * image.width * image.channels, image.pixels.size());
}

void Transform::apply(const Image& image, const AugmentationKey& key, float* output,
                      const std::array<int64_t, 3>& strides) const {
  check_source(image);
  if (resizes_) {
    const int64_t size = options_.image_size;
    const auto resized = static_cast<int64_t>(std::floor(static_cast<double>(size) / options_.crop_pct));
    place(resize_and_crop(image, resized, size, options_.filter), key, output, strides);
  } else {
    place(image, key, output, strides);
  }
}

/// Puts an image that is no larger than the result into its middle, or where chance moves it.
void Transform::place(const Image& image, const AugmentationKey& key, float* output,
                      const std::array<int64_t, 3>& strides) const {
  const int64_t size = options_.image_size;
  int64_t top = (size - image.height) / 2;  // where the image's first row and column come to lie
  int64_t left = (size - image.width) / 2;
  bool mirrored = false;
  if (options_.augment) {
    const auto bits =
        philox(key.seed, static_cast<uint64_t>(key.index), kAugmentationStream | static_cast<uint64_t>(key.epoch));
    top += random_shift(bits[0], options_.crop_padding);
    left += random_shift(bits[1], options_.crop_padding);
    mirrored = options_.flip && (bits[2] & 1) != 0;
  }
  const int64_t first = std::clamp<int64_t>(left, 0, size);  // columns [first, last) show the image
  const int64_t last = std::clamp<int64_t>(left + image.width, 0, size);
  // Mirroring turns column w of the output into size - 1 - w.
  const int64_t step = mirrored ? -strides[2] : strides[2];
  float* const origin = mirrored ? output + (size - 1) * strides[2] : output;

  for (int64_t c = 0; c < options_.channels; ++c) {
    const int64_t source = source_channels_ == 1 ? 0 : c;
    const std::array<float, 256>& table = normalized_[static_cast<size_t>(source)];
    const float black = table[0];
    for (int64_t h = 0; h < size; ++h) {
      float* const row = origin + c * strides[0] + h * strides[1];
      const int64_t source_row = h - top;
      if (source_row < 0 || source_row >= image.height) {
        for (int64_t w = 0; w < size; ++w) {
          row[w * step] = black;
        }
        continue;
      }
      const uint8_t* const bytes = image.pixels.data() + source_row * image.width * source_channels_ + source;
      for (int64_t w = 0; w < first; ++w) {
        row[w * step] = black;
      }
      for (int64_t w = first; w < last; ++w) {
        row[w * step] = table[bytes[(w - left) * source_channels_]];
      }
      for (int64_t w = last; w < size; ++w) {
        row[w * step] = black;
      }
    }
  }
}

}  // namespace norma::data
