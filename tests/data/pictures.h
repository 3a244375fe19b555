#pragma once

#include "data/image_file.h"

#include <cstdint>

namespace norma::test {

/// An image whose neighbouring bytes differ.
inline data::Image picture(int64_t height, int64_t width, int64_t channels) {
  data::Image image;
  image.set_size(height, width, channels);
  for (int64_t i = 0; i < height * width * channels; ++i) {
    image.pixels[static_cast<size_t>(i)] = static_cast<uint8_t>((i * 37 + i * i % 17) % 256);
  }
  return image;
}

}  // namespace norma::test
