#include "data/transform.h"

#include "base/error.h"
#include "core/factory.h"
#include "core/random.h"
#include "data/kept.h"
#include "ops/shape/copy.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <type_traits>
#include <utility>
#include <variant>

namespace norma::data {

namespace {

// Keeps these numbers apart from those that other parts draw from the same seed.
constexpr uint64_t kAugmentationStream = uint64_t{1} << 62;

/// The largest side. Shifts up to it are drawn from 32 bits, and the number of an image's elements fits an int64.
constexpr int64_t kMaxPixels = 1 << 20;

/// A number in [-limit, limit].
int64_t random_shift(uint32_t bits, int64_t limit) {
  return static_cast<int64_t>((uint64_t{bits} * static_cast<uint64_t>(2 * limit + 1)) >> 32) - limit;
}

Image flipped(Image image, const Flips& flips) {
  image = flips.across ? hflip(std::move(image)) : std::move(image);
  return flips.down ? vflip(std::move(image)) : std::move(image);
}

/// TrivialAugmentWide fills with black, as in torchvision; RandAugment with the mean, as in timm.
Policy make_policy(const Policy::Kind& kind, const TransformOptions& options) {
  PolicyOptions result{.fill = {0, 0, 0}};
  if (std::holds_alternative<RandAugmentOptions>(kind)) {
    for (size_t c = 0; c < result.fill.size(); ++c) {
      const float mean = options.mean[std::min(c, options.mean.size() - 1)];
      result.fill[c] = static_cast<uint8_t>(std::clamp<long>(std::lrint(255 * mean), 0, 255));
    }
  }
  if (!options.random_filter) {
    result.interpolation = options.filter == ResizeFilter::bilinear ? Interpolation::bilinear : Interpolation::bicubic;
  }
  return Policy(kind, result);
}

}  // namespace

int64_t resized_side(int64_t image_size, double crop_pct) {
  return static_cast<int64_t>(std::floor(static_cast<double>(image_size) / crop_pct));
}

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
  const AugmentOptions& augmentation = options.augmentation;
  if (augmentation.resized_crop) {
    check_random_resized_crop("transform", *augmentation.resized_crop);
  }
  check_range("transform", "hflip", augmentation.hflip, Range<double>{0, 1});
  check_range("transform", "vflip", augmentation.vflip, Range<double>{0, 1});
  check_color_jitter("transform", augmentation.color_jitter);
  check_random_erasing("transform", augmentation.erasing);
  if (augmentation.policy) {
    policy_ = make_policy(*augmentation.policy, options_);
  }
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

bool Transform::changes_bytes() const {
  const AugmentOptions& augmentation = options_.augmentation;
  return augmentation.hflip > 0 || augmentation.vflip > 0 || policy_ || augmentation.color_jitter.any();
}

void Transform::apply(const Image& image, const AugmentationKey& key, float* output,
                      const std::array<int64_t, 3>& strides, const Rectangle* window) const {
  write(image, key, output, strides, window);
  if (options_.augmentation.erasing.probability > 0) {
    Draw draw(key, DrawFor::erasing);
    random_erasing(output, {options_.channels, options_.image_size, options_.image_size}, strides,
                   options_.augmentation.erasing, draw);
  }
}

void Transform::apply(const Image& image, const AugmentationKey& key, uint8_t* output,
                      const std::array<int64_t, 3>& strides, const Rectangle* window) const {
  check(options_.augmentation.erasing.probability == 0, "transform",
        "erasing: expected none for images of bytes, got the probability {}",
        options_.augmentation.erasing.probability);
  write(image, key, output, strides, window);
}

Tensor Transform::table() const {
  Tensor result = empty({options_.channels, 256}, {.device = kCpu});
  for (int64_t c = 0; c < options_.channels; ++c) {
    std::ranges::copy(normalized_[source_channels_ == 1 ? 0 : static_cast<size_t>(c)], result.data<float>() + c * 256);
  }
  return result;
}

template <class T>
void Transform::write(const Image& image, const AugmentationKey& key, T* output, const std::array<int64_t, 3>& strides,
                      const Rectangle* window) const {
  check_source(image);
  Draw flip(key, DrawFor::flip);
  Flips flips{.across = flip.chance(options_.augmentation.hflip)};
  flips.down = flip.chance(options_.augmentation.vflip);
  static KeptByThread<Image> kept;
  Image& made = kept.get();
  const Image* source = &image;
  const bool is_in_place = fits_by_resizing() && !options_.augment;
  if (fits_by_resizing()) {
    // Mirroring is part of resizing, unless the image moves in between.
    resize_to_fit(image, key, window, is_in_place ? flips : Flips{}, made);
    source = &made;
  }
  const Place place = place_of(*source, key);
  if (!changes_bytes()) {
    place_into(*source, place, output, strides);
    return;
  }
  if (!is_in_place) {
    made = flipped(placed(*source, place), flips);
  }
  augment(key, made);
  place_into(made, {}, output, strides);
}

Rectangle Transform::window(const AugmentationKey& key, int64_t height, int64_t width) const {
  check(has_window(), "transform", "window: expected a transform with a resized crop, got one without");
  Draw draw(key, DrawFor::crop);
  if (options_.random_filter) {
    draw.uniform();  // the filter's
  }
  return draw_resized_crop(draw, height, width, *options_.augmentation.resized_crop);
}

int64_t Transform::load(const Dataset& dataset, int64_t index, const AugmentationKey& key, Image& image,
                        Rectangle& window) const {
  if (!has_window()) {
    return dataset.load(index, image);
  }
  const auto choose = [&](int64_t height, int64_t width) { return this->window(key, height, width); };
  return dataset.load_window(index, choose, image, window);
}

void Transform::resize_to_fit(const Image& image, const AugmentationKey& key, const Rectangle* window,
                              const Flips& flips, Image& result) const {
  ResizeFilter filter = options_.filter;
  if (options_.random_filter) {
    filter = Draw(key, DrawFor::crop).chance(0.5) ? ResizeFilter::bilinear : ResizeFilter::bicubic;
  }
  const int64_t size = options_.image_size;
  if (has_window()) {
    const Rectangle place = window != nullptr ? *window : this->window(key, image.height, image.width);
    resize_window(image, place, size, size, filter, flips, result);
    return;
  }
  result = flipped(resize_and_crop(image, resized_side(size, options_.crop_pct), size, filter), flips);
}

/// The middle, or a random place with `augment`.
Transform::Place Transform::place_of(const Image& image, const AugmentationKey& key) const {
  const int64_t size = options_.image_size;
  Place place{.top = (size - image.height) / 2, .left = (size - image.width) / 2};
  if (options_.augment) {
    const auto bits =
        philox(key.seed, static_cast<uint64_t>(key.index), kAugmentationStream | static_cast<uint64_t>(key.epoch));
    place.top += random_shift(bits[0], options_.crop_padding);
    place.left += random_shift(bits[1], options_.crop_padding);
    place.mirrored = options_.flip && (bits[2] & 1) != 0;
  }
  return place;
}

Image Transform::placed(const Image& image, const Place& place) const {
  const int64_t size = options_.image_size;
  Image result{.height = size, .width = size, .channels = image.channels, .pixels = {}};
  result.pixels.resize(static_cast<size_t>(size * size * image.channels));
  const int64_t first = std::clamp<int64_t>(place.left, 0, size);
  const int64_t last = std::clamp<int64_t>(place.left + image.width, 0, size);
  for (int64_t y = std::max<int64_t>(place.top, 0); y < std::min(place.top + image.height, size) && first < last; ++y) {
    std::copy_n(image.pixels.begin() + ((y - place.top) * image.width + first - place.left) * image.channels,
                (last - first) * image.channels, result.pixels.begin() + (y * size + first) * image.channels);
  }
  return place.mirrored ? hflip(result) : result;
}

void Transform::augment(const AugmentationKey& key, Image& image) const {
  if (policy_) {
    Draw draw(key, DrawFor::policy);
    image = policy_->apply(std::move(image), draw);
  }
  if (const ColorJitterOptions& jitter = options_.augmentation.color_jitter; jitter.any()) {
    Draw draw(key, DrawFor::color_jitter);
    image = data::apply(draw_color_jitter(draw, jitter), std::move(image));
  }
}

template <class T>
void Transform::place_into(const Image& image, const Place& place, T* output,
                           const std::array<int64_t, 3>& strides) const {
  const int64_t size = options_.image_size;
  const auto [top, left, mirrored] = place;
  const int64_t first = std::clamp<int64_t>(left, 0, size);  // columns [first, last) show the image
  const int64_t last = std::clamp<int64_t>(left + image.width, 0, size);
  // Mirroring turns column w of the output into size - 1 - w.
  const int64_t step = mirrored ? -strides[2] : strides[2];
  T* const origin = mirrored ? output + (size - 1) * strides[2] : output;

  for (int64_t c = 0; c < options_.channels; ++c) {
    const int64_t source = source_channels_ == 1 ? 0 : c;
    const auto value_of = [&table = normalized_[static_cast<size_t>(source)]](uint8_t byte) -> T {
      if constexpr (std::is_same_v<T, float>) {
        return table[byte];
      } else {
        return byte;
      }
    };
    for (int64_t h = 0; h < size; ++h) {
      T* const row = origin + c * strides[0] + h * strides[1];
      const auto blacken = [&](int64_t from, int64_t to) {
        for (int64_t w = from; w < to; ++w) {
          row[w * step] = value_of(0);
        }
      };
      const int64_t source_row = h - top;
      if (source_row < 0 || source_row >= image.height) {
        blacken(0, size);
        continue;
      }
      const uint8_t* const bytes = image.pixels.data() + source_row * image.width * source_channels_ + source;
      blacken(0, first);
      for (int64_t w = first; w < last; ++w) {
        row[w * step] = value_of(bytes[(w - left) * source_channels_]);
      }
      blacken(last, size);
    }
  }
}

Tensor image_to_tensor(const Image& image, const std::array<float, 3>& mean, const std::array<float, 3>& std) {
  check_image("image_to_tensor", image);
  Tensor x = empty({1, image.channels, image.height, image.width}, {.device = kCpu});
  auto* to = x.data<float>();
  for (int64_t c = 0; c < image.channels; ++c) {
    const auto channel = static_cast<size_t>(c);
    for (int64_t i = c; i < static_cast<int64_t>(image.pixels.size()); i += image.channels) {
      *to++ = (static_cast<float>(image.pixels[static_cast<size_t>(i)]) / 255 - mean[channel]) / std[channel];
    }
  }
  return x;
}

Image tensor_to_image(const Tensor& x) {
  check(x.defined(), "tensor_to_image", "x: expected a tensor, got none");
  const int64_t rank = x.rank();
  const bool image = rank == 3 || (rank == 4 && x.size(0) == 1);
  const int64_t channels = image ? x.size(rank - 3) : 0;
  check(image && (channels == 1 || channels == 3) && x.numel() > 0, "tensor_to_image",
        "x: expected the sizes (C, H, W) or (1, C, H, W) with 1 or 3 channels, got {}", to_string(x.sizes()));
  const std::vector<double> values = x.to_vector<double>();
  Image result{.height = x.size(rank - 2), .width = x.size(rank - 1), .channels = channels, .pixels = {}};
  const int64_t pixels = result.height * result.width;
  result.pixels.reserve(values.size());
  for (int64_t i = 0; i < pixels; ++i) {
    for (int64_t c = 0; c < channels; ++c) {
      const double value = values[static_cast<size_t>(c * pixels + i)];
      result.pixels.push_back(
          static_cast<uint8_t>(std::isnan(value) ? 0 : std::lround(std::clamp(value, 0.0, 1.0) * 255)));
    }
  }
  return result;
}

}  // namespace norma::data
