#pragma once

#include "data/image_file.h"

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

// The parts of read_image(): the kinds of image files, and a reader for each.

namespace norma::data {

/// The kinds of image files that are read.
enum class ImageKind : uint8_t {
  jpeg,
  png,
  bmp,
  pnm,    ///< raw: P5 (greys) and P6 (colours)
  other,  ///< none of these
};

/// The kind that the first bytes of a file show; its name says nothing.
ImageKind image_kind(std::string_view bytes);

/// A file of ImageKind::other in words: "a GIF image", "a text", "an empty file".
std::string describe_file(std::string_view bytes);

/// The size in a file's header.
struct ImageSize {
  int64_t height = 0;
  int64_t width = 0;
};

// --- PNG ------------------------------------------------------------------------------------------------------------

/// The size in the header of a PNG file; none if it has no header.
std::optional<ImageSize> png_size(std::string_view bytes);

/// The same PNG file with pixels that are not compressed, for stb. stb checks no check sum, and it decompresses all
/// that there is, which can be gigabytes for a few pixels. Here zlib stops a little behind the bytes that the header
/// asks for. Throws Error "image: NAME: damaged: …" if the chunks do not go on to an IEND (whose own check sum may be
/// cut off), a check sum or the header is wrong, or the pixels are fewer or more than its size; and std::bad_alloc.
std::string with_plain_pixels(std::string_view bytes, const std::string& name);

// --- JPEG -----------------------------------------------------------------------------------------------------------

/// The size in the first frame of a JPEG file; none if the file has no frame.
std::optional<ImageSize> jpeg_size(std::string_view bytes);

/// The fault of a JPEG file, as far as its segments show it, or "". Decoders make up missing parts of a file and do all
/// the work that it asks for, so it is checked before it is decoded:
/// - it does not come to its end-of-image marker, a component has no scan, or a scan is shorter than the fewest bits
///   that so many blocks of pixels take: "it ends early";
/// - its scans decode so many blocks that a few kilobytes would take minutes:
///   "it has more scans than an image of its size needs";
/// - several scans make its pixels, which decoders keep in memory meanwhile, and that takes more than 256 MiB and than
///   128 times the file: "its scans take 768 MiB of memory, which a file of 768.1 KiB may not ask for";
/// - its Huffman tables are damaged or missing (stb would write and read behind the ends of its arrays);
/// - it is of a kind that is not read: lossless, arithmetic, of more than 8 bits, of two components.
std::string fault_of_jpeg(std::string_view bytes);

/// A library that decodes JPEG files.
struct JpegDecoder {
  const char* name;     ///< "libjpeg-turbo", "stb"
  const char* version;  ///< "" if it gives none
  /// Decodes a file without fault (fault_of_jpeg()), of the size of its frame, into `image`. Returns the fault found,
  /// or "". Throws std::bad_alloc if memory does not suffice.
  std::string (*decode)(std::string_view bytes, const ImageSize& size, int64_t channels, Image& image);
};

/// The decoder of libjpeg-turbo; null in a build without it.
const JpegDecoder* jpeg_turbo();
const JpegDecoder* jpeg_stb();

/// The decoder in use: the forced one, else the first of jpeg_decoders().
const JpegDecoder& jpeg_decoder();

// --- stb ------------------------------------------------------------------------------------------------------------

/// Decodes the JPEG or PNG in `bytes`, of this size, with stb into `image`. Returns the fault found, or "". Throws
/// std::bad_alloc if memory does not suffice.
std::string decode_with_stb(std::string_view bytes, const ImageSize& size, int64_t channels, Image& image);

// --- BMP and PNM ----------------------------------------------------------------------------------------------------

// These files store their pixels as they are. They are not read with stb: 2.27 makes up the pixels of a BMP that ends
// early or names colours beyond its palette, reads PNM of 16 bits beyond the end of its memory, does not scale smaller
// maxima, and leaves missing pixels as they are in memory.

/// Throws Error "image: NAME: …" for sizes below 1 and more than kMaxImagePixels.
void check_image_size(const std::string& name, int64_t height, int64_t width);

using Rgb = std::array<int, 3>;

/// Writes a colour to a pixel of 3 channels, or its luminance to one of 1 channel: by stb's formula, for all kinds of
/// files.
void put(const Rgb& colour, int64_t channels, uint8_t* pixel);

/// Decodes a PNM file of kind P5 or P6 (netpbm's pgm(5), ppm(5)), of up to 16 bits a channel, into `image`. Maxima
/// other than 255 are scaled to bytes. channels: 1 or 3. Throws Error "image: NAME: damaged: …" for a file that is no
/// such PNM or ends early.
void decode_pnm(std::string_view bytes, const std::string& name, int64_t channels, Image& image);

/// Likewise for a BMP: 1, 4 or 8 bits with a palette, 16, 24 or 32 without, rows in either order. A compressed BMP (run
/// lengths, JPEG, PNG) is an error that says so.
void decode_bmp(std::string_view bytes, const std::string& name, int64_t channels, Image& image);

}  // namespace norma::data
