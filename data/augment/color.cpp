#include "data/augment/color.h"

#include "base/error.h"
#include "base/excerpt.h"
#include "base/parse_number.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <ranges>
#include <utility>
#include <vector>

namespace norma::data {

namespace {

using Table = std::array<uint8_t, 256>;
using Histogram = std::array<int64_t, 256>;

template <class Function>
Table table_of(Function&& byte_for) {
  Table table{};
  for (int i = 0; i < 256; ++i) {
    table[static_cast<size_t>(i)] = static_cast<uint8_t>(byte_for(i));
  }
  return table;
}

/// Replaces every byte of channel c of `image` by table[byte].
void map_channel(Image& image, int64_t c, const Table& table) {
  for (auto i = static_cast<size_t>(c); i < image.pixels.size(); i += static_cast<size_t>(image.channels)) {
    image.pixels[i] = table[image.pixels[i]];
  }
}

Image with_bytes_by(Image image, const Table& table) {
  for (uint8_t& byte : image.pixels) {
    byte = table[byte];
  }
  return image;
}

Histogram histogram_of(const Image& image, int64_t c) {
  Histogram histogram{};
  for (auto i = static_cast<size_t>(c); i < image.pixels.size(); i += static_cast<size_t>(image.channels)) {
    ++histogram[image.pixels[i]];
  }
  return histogram;
}

/// Goes from a to b, and beyond, with fractions cut off: Image.blend.
uint8_t blend(uint8_t a, uint8_t b, float factor) {
  const float value = static_cast<float>(a) + factor * static_cast<float>(int{b} - int{a});
  return static_cast<uint8_t>(std::clamp(value, 0.0F, 255.0F));
}

/// Checks image and factor.
void check_factor(const char* op, const Image& image, double factor) {
  check_image(op, image);
  check_range(op, "factor", factor, kAdjustFactor);
}

/// ITU-R 601-2 defines it: 0.299 R + 0.587 G + 0.114 B, here in units of 2^-16 and rounded, as Image.convert("L") does.
uint8_t luminance(const uint8_t* rgb) {
  return static_cast<uint8_t>((rgb[0] * 19595 + rgb[1] * 38470 + rgb[2] * 7471 + 0x8000) >> 16);
}

/// The image blurred by (1 1 1, 1 5 1, 1 1 1) / 13: ImageFilter.SMOOTH.
Image smoothed(const Image& image) {
  if (image.height < 3 || image.width < 3) {
    return image;
  }
  constexpr float edge = 1.0F / 13;
  constexpr float middle = 5.0F / 13;
  Image result = image;
  const int64_t row_bytes = image.width * image.channels;
  for (int64_t y = 1; y < image.height - 1; ++y) {
    const uint8_t* const from = image.pixels.data() + y * row_bytes;
    uint8_t* const to = result.pixels.data() + y * row_bytes;
    for (int64_t i = image.channels; i < row_bytes - image.channels; ++i) {
      const auto three = [&](const uint8_t* row, float weight) {
        return static_cast<float>(row[i - image.channels]) * edge + static_cast<float>(row[i]) * weight +
               static_cast<float>(row[i + image.channels]) * edge;
      };
      float sum = 0.5F;  // in the order of Pillow's sum
      sum += three(from + row_bytes, edge);
      sum += three(from, middle);
      sum += three(from - row_bytes, edge);
      to[i] = static_cast<uint8_t>(std::clamp(sum, 0.0F, 255.0F));
    }
  }
  return result;
}

// Hue, saturation and value in bytes, with the float and double roundings of Pillow's conversions.

std::array<uint8_t, 3> hsv_of(const uint8_t* rgb) {
  const uint8_t r = rgb[0];
  const uint8_t g = rgb[1];
  const uint8_t b = rgb[2];
  const uint8_t high = std::max({r, g, b});
  const uint8_t low = std::min({r, g, b});
  if (low == high) {
    return {0, 0, high};
  }
  const auto range = static_cast<float>(high - low);
  const float saturation = range / static_cast<float>(high);
  const float red = static_cast<float>(high - r) / range;
  const float green = static_cast<float>(high - g) / range;
  const float blue = static_cast<float>(high - b) / range;
  float hue = 0;
  if (r == high) {
    hue = blue - green;
  } else if (g == high) {
    hue = static_cast<float>(2.0 + static_cast<double>(red) - static_cast<double>(blue));
  } else {
    hue = static_cast<float>(4.0 + static_cast<double>(green) - static_cast<double>(red));
  }
  hue = static_cast<float>(std::fmod(static_cast<double>(hue) / 6.0 + 1.0, 1.0));
  const auto byte = [](float x) {
    return static_cast<uint8_t>(std::clamp(static_cast<int>(static_cast<double>(x) * 255.0), 0, 255));
  };
  return {byte(hue), byte(saturation), high};
}

void put_rgb(const std::array<uint8_t, 3>& hsv, uint8_t* rgb) {
  const uint8_t v = hsv[2];
  if (hsv[1] == 0) {
    std::fill_n(rgb, 3, v);
    return;
  }
  const double sixths = static_cast<double>(hsv[0]) * 6.0 / 255.0;
  const int sector = static_cast<int>(std::floor(sixths));
  const auto rest = static_cast<float>(sixths - static_cast<double>(sector));
  const auto saturation = static_cast<float>(static_cast<double>(hsv[1]) / 255.0);
  const auto byte = [v](double share) {
    return static_cast<uint8_t>(std::clamp(static_cast<int>(std::round(static_cast<double>(v) * share)), 0, 255));
  };
  const uint8_t p = byte(1.0 - static_cast<double>(saturation));
  const uint8_t q = byte(1.0 - static_cast<double>(saturation * rest));
  const uint8_t t = byte(1.0 - static_cast<double>(saturation) * (1.0 - static_cast<double>(rest)));
  const std::array<std::array<uint8_t, 3>, 6> sectors = {
      {{v, t, p}, {q, v, p}, {p, v, t}, {p, q, v}, {t, p, v}, {v, p, q}}};
  std::copy_n(sectors[static_cast<size_t>(sector % 6)].begin(), 3, rgb);
}

}  // namespace

Image invert(Image image) {
  check_image("invert", image);
  return with_bytes_by(std::move(image), table_of([](int i) { return 255 - i; }));
}

Image posterize(Image image, int64_t bits) {
  check_image("posterize", image);
  check_range("posterize", "bits", bits, Range<int64_t>{0, 8});
  return with_bytes_by(std::move(image), table_of([mask = ~((1 << (8 - bits)) - 1)](int i) { return i & mask; }));
}

Image solarize(Image image, double threshold) {
  check_image("solarize", image);
  return with_bytes_by(std::move(image), table_of([threshold](int i) { return i < threshold ? i : 255 - i; }));
}

Image solarize_add(Image image, int64_t add, int64_t threshold) {
  check_image("solarize_add", image);
  check_range("solarize_add", "add", add, Range<int64_t>{0, 255});
  return with_bytes_by(std::move(image), table_of([add, threshold](int i) {
                         return i < threshold ? std::min<int64_t>(255, i + add) : i;
                       }));
}

Image autocontrast(Image image) {
  check_image("autocontrast", image);
  for (int64_t c = 0; c < image.channels; ++c) {
    const Histogram histogram = histogram_of(image, c);
    const auto is_there = [](int64_t count) { return count != 0; };
    const auto low = std::ranges::find_if(histogram, is_there) - histogram.begin();
    const auto high = 255 - (std::find_if(histogram.rbegin(), histogram.rend(), is_there) - histogram.rbegin());
    if (high > low) {
      const double scale = 255.0 / static_cast<double>(high - low);
      const double offset = static_cast<double>(-low) * scale;
      map_channel(image, c, table_of([&](int i) { return std::clamp(static_cast<int>(i * scale + offset), 0, 255); }));
    }
  }
  return image;
}

Image equalize(Image image) {
  check_image("equalize", image);
  for (int64_t c = 0; c < image.channels; ++c) {
    const Histogram histogram = histogram_of(image, c);
    const auto last = std::find_if(histogram.rbegin(), histogram.rend(), [](int64_t count) { return count != 0; });
    const int64_t step = (image.height * image.width - *last) / 255;
    if (step == 0) {  // also if there is one value only
      continue;
    }
    int64_t sum = step / 2;
    map_channel(image, c, table_of([&](int i) {
                  const int64_t value = std::min<int64_t>(sum / step, 255);
                  sum += histogram[static_cast<size_t>(i)];
                  return value;
                }));
  }
  return image;
}

Image adjust_brightness(Image image, double factor) {
  check_factor("adjust_brightness", image, factor);
  return with_bytes_by(std::move(image), table_of([f = static_cast<float>(factor)](int i) {
                         return blend(0, static_cast<uint8_t>(i), f);
                       }));
}

Image adjust_contrast(Image image, double factor) {
  check_factor("adjust_contrast", image, factor);
  int64_t sum = 0;
  for (size_t i = 0; i < image.pixels.size(); i += static_cast<size_t>(image.channels)) {
    sum += image.channels == 3 ? luminance(image.pixels.data() + i) : image.pixels[i];
  }
  const auto mean =
      static_cast<uint8_t>(std::lround(static_cast<double>(sum) / static_cast<double>(image.height * image.width)));
  return with_bytes_by(std::move(image), table_of([&](int i) {
                         return blend(mean, static_cast<uint8_t>(i), static_cast<float>(factor));
                       }));
}

Image adjust_saturation(Image image, double factor) {
  check_factor("adjust_saturation", image, factor);
  if (image.channels == 3) {
    for (size_t i = 0; i < image.pixels.size(); i += 3) {
      uint8_t* const rgb = image.pixels.data() + i;
      const uint8_t grey = luminance(rgb);
      std::transform(rgb, rgb + 3, rgb, [&](uint8_t byte) { return blend(grey, byte, static_cast<float>(factor)); });
    }
  }
  return image;
}

Image adjust_sharpness(Image image, double factor) {
  check_factor("adjust_sharpness", image, factor);
  Image result = smoothed(image);
  std::ranges::transform(
      result.pixels, image.pixels, result.pixels.begin(),
      [f = static_cast<float>(factor)](uint8_t smooth, uint8_t byte) { return blend(smooth, byte, f); });
  return result;
}

Image adjust_hue(Image image, double factor) {
  check_image("adjust_hue", image);
  check_range("adjust_hue", "factor", factor, Range<double>{-0.5, 0.5});
  if (image.channels == 3) {
    const int turn = static_cast<int>(factor * 255);
    for (size_t i = 0; i < image.pixels.size(); i += 3) {
      std::array<uint8_t, 3> hsv = hsv_of(image.pixels.data() + i);
      hsv[0] = static_cast<uint8_t>((hsv[0] + turn + 256) % 256);
      put_rgb(hsv, image.pixels.data() + i);
    }
  }
  return image;
}

void check_color_jitter(std::string_view op, const ColorJitterOptions& options) {
  const std::array<std::pair<const char*, double>, 3> around_one = {
      {{"brightness", options.brightness}, {"contrast", options.contrast}, {"saturation", options.saturation}}};
  for (const auto& [name, value] : around_one) {
    check_range(op, name, value, kJitter);
  }
  check_range(op, "hue", options.hue, Range<double>{0, 0.5});
}

ColorJitterOptions parse_color_jitter(std::string_view op, std::string_view text) {
  if (text.empty()) {
    return {};
  }
  std::vector<double> numbers;
  bool good = true;
  for (const auto& part : std::views::split(text, ',')) {
    const std::optional<double> number = parse_number<double>(std::string_view(part.begin(), part.end()));
    numbers.push_back(number.value_or(0));
    good = good && number;
  }
  check(good && numbers.size() <= 4 && numbers.size() != 2, op,
        "expected one, three or four numbers as in 0.4 or 0.4,0.4,0.4,0.1, got {}", excerpt(text));
  ColorJitterOptions options{.brightness = numbers[0], .contrast = numbers[0], .saturation = numbers[0]};
  if (numbers.size() > 1) {
    options = {.brightness = numbers[0],
               .contrast = numbers[1],
               .saturation = numbers[2],
               .hue = numbers.size() == 4 ? numbers[3] : 0};
  }
  check_color_jitter(op, options);
  return options;
}

ColorJitter draw_color_jitter(Draw& draw, const ColorJitterOptions& options) {
  check_color_jitter("color_jitter", options);
  ColorJitter jitter;
  draw.permute(jitter.order);
  const std::array<double, 3> spreads = {options.brightness, options.contrast, options.saturation};
  for (size_t i = 0; i < spreads.size(); ++i) {
    jitter.factors[i] = draw.uniform(std::max(0.0, 1 - spreads[i]), 1 + spreads[i]);
  }
  jitter.factors[3] = draw.uniform(-options.hue, options.hue);
  return jitter;
}

Image apply(const ColorJitter& jitter, Image image) {
  check_image("color_jitter", image);
  for (const int i : jitter.order) {
    const double factor = jitter.factors[static_cast<size_t>(i)];
    if (i == 3 ? factor == 0 : factor == 1) {
      continue;
    }
    switch (i) {
      case 0: image = adjust_brightness(std::move(image), factor); break;
      case 1: image = adjust_contrast(std::move(image), factor); break;
      case 2: image = adjust_saturation(std::move(image), factor); break;
      default: image = adjust_hue(std::move(image), factor);
    }
  }
  return image;
}

}  // namespace norma::data
