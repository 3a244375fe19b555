#pragma once

#include "data/image_file.h"

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

// The parts of read_image(): the kinds of image files, and a reader for each.

namespace norma::data {

/// Decodes the bytes of a file into `image`, of 1 or 3 channels. Throws Error "image: NAME: …" for what is damaged or
/// too large, and std::bad_alloc.
using DecodeImage = void(std::string_view bytes, const std::string& name, int64_t channels, Image& image);

/// As decode_window() without turning. It returns nothing if it decoded the whole image.
using DecodePart = std::optional<Rectangle>(std::string_view bytes, const std::string& name, int64_t channels,
                                            const NeededPart& needed, Image& image);

/// A kind of image files. Its first bytes show it; the name of the file says nothing.
struct ImageKind {
  std::string what;                                ///< "a WebP image"
  std::vector<std::string_view> begins;            ///< one of these
  size_t at = 0;                                   ///< where `there` stands
  std::string_view there = {};                     ///< also there
  bool (*more)(std::string_view bytes) = nullptr;  ///< what else holds
  DecodeImage* decode = nullptr;                   ///< null: not read (in this build)
  const char* lacks = "";                          ///< what to say then
  DecodePart* decode_part = nullptr;               ///< null: `decode` decodes it all
};

/// The kind of a file; null if it is none that is known, read or not.
const ImageKind* image_kind(std::string_view bytes);

/// A file in words: "a GIF image", "a text", "an empty file".
std::string describe_file(std::string_view bytes);

/// The kinds that this build reads: "JPEG, PNG, BMP or raw PNM".
std::string read_kinds();

/// Throws Error "image: NAME: damaged: FAULT" unless the fault is "".
void check_fault(const std::string& fault, const std::string& name);

// --- by libraries ---------------------------------------------------------------------------------------------------

DecodeImage decode_jpeg;  ///< libjpeg-turbo, in a build with it: the bytes of Pillow
DecodePart decode_jpeg_part;
DecodeImage decode_png;   ///< libpng. Of 16 bits the upper 8
DecodeImage decode_webp;  ///< libwebp, in a build with it. The first frame of a film
DecodeImage decode_tiff;  ///< libtiff, in a build with it. The first page, turned upright as Pillow does
DecodeImage decode_gif;   ///< giflib, in a build with it. The first frame, what is transparent in its color

/// The orientation in a block of EXIF data (with or without the "Exif\0\0" of JPEGs): 1 to 8, and 1 if there is none.
int exif_orientation(std::string_view exif);

// --- BMP and PNM ----------------------------------------------------------------------------------------------------

/// Throws Error "image: NAME: …" for sizes below 1 and more than kMaxImagePixels.
void check_image_size(const std::string& name, int64_t height, int64_t width);

using Rgb = std::array<int, 3>;

/// Writes a color to a pixel of 3 channels, or its luminance to one of 1 channel: by one formula for all kinds of
/// files.
void put(const Rgb& color, int64_t channels, uint8_t* pixel);

/// Likewise for a whole image of 3 channels, which then has 1.
void make_grey(Image& image);

/// P5 or P6 (netpbm's pgm(5), ppm(5)), of up to 16 bits a channel. Maxima other than 255 are scaled to bytes.
DecodeImage decode_pnm;

/// 1, 4 or 8 bits with a palette, 16, 24 or 32 without, rows in either order. A compressed BMP (run lengths, JPEG, PNG)
/// is an error that says so.
DecodeImage decode_bmp;

}  // namespace norma::data
