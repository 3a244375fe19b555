#pragma once

#include "data/image_file.h"

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

// Images whose file has their pixels as they are. Not by stb: 2.27 makes up the pixels of a BMP that ends early or
// names colours beyond its palette, reads PNM of 16 bits beyond the end of its memory, does not scale smaller maxima,
// and leaves what is missing as it finds it.

namespace norma::data {

/// Throws Error "image: NAME: …" for sizes below 1 and more than kMaxImagePixels.
void check_image_size(const std::string& name, int64_t height, int64_t width);

using Rgb = std::array<int, 3>;

/// Writes a pixel of 3 channels, or its luminance as stb has it, for all kinds of files the same.
void put(const Rgb& colour, int64_t channels, uint8_t* pixel);

/// Makes `image` that of a PNM file of kind P5 or P6 (netpbm's pgm(5), ppm(5)), of up to 16 bits a channel; wider
/// numbers and other maxima are scaled to bytes. channels: 1 or 3. Throws Error "image: NAME: damaged: …" for a file
/// that is none or ends early.
void decode_pnm(std::string_view bytes, const std::string& name, int64_t channels, Image& image);

/// The same for a BMP: 1, 4 or 8 bits with a palette, 16, 24 or 32 without, rows in either order. Those that are
/// compressed (run lengths, JPEG, PNG) are an error that says so.
void decode_bmp(std::string_view bytes, const std::string& name, int64_t channels, Image& image);

}  // namespace norma::data
