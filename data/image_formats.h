#pragma once

#include "data/image_file.h"

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

// What read_image() is made of: the kinds of image files, and what reads each of them.

namespace norma::data {

/// The kinds of image files that are read.
enum class ImageKind : uint8_t {
  jpeg,
  png,
  bmp,
  pnm,    ///< raw: P5 (greys) and P6 (colours)
  other,  ///< nothing that is read
};

/// By the first bytes of a file: its name says nothing.
ImageKind image_kind(std::string_view bytes);

/// In words, what a file of ImageKind::other is: "a GIF image", "a text", "an empty file".
std::string describe_file(std::string_view bytes);

/// As the header of a file has it.
struct ImageSize {
  int64_t height = 0;
  int64_t width = 0;
};

// --- PNG ------------------------------------------------------------------------------------------------------------

/// What the header of a PNG file says; none where it has no header.
std::optional<ImageSize> png_size(std::string_view bytes);

/// The same PNG file with pixels that are not compressed. stb looks at no check sum, and it decompresses whatever there
/// is, which can be gigabytes for a few pixels: here zlib stops a little behind the bytes that the header asks for.
/// Throws Error "image: NAME: damaged: …" where the chunks do not go on to an IEND (whose own check sum may be cut
/// off), a check sum or the header is wrong, or the pixels are too few or more than their size; and std::bad_alloc.
std::string with_plain_pixels(std::string_view bytes, const std::string& name);

// --- JPEG -----------------------------------------------------------------------------------------------------------

/// What the first frame of a JPEG file says; none where the file has no frame.
std::optional<ImageSize> jpeg_size(std::string_view bytes);

/// What is wrong with a JPEG file, as far as its segments show it, or "". Decoders make up what a file lacks and do all
/// the work that it asks for, so that this is asked before any of them:
/// - it does not come to its end-of-image marker, a component has no scan, or a scan is shorter than the fewest bits
///   that so many blocks of pixels take: "it ends early";
/// - its scans decode so many blocks that a few kilobytes would take minutes:
///   "it has more scans than an image of its size needs";
/// - several scans make its pixels, which decoders keep in memory meanwhile, and that takes more than 256 MiB and than
///   128 times the file: "its scans take 768 MiB of memory, which a file of 768.1 KiB may not ask for";
/// - its Huffman tables are damaged or missing (stb writes and reads behind the ends of its own then);
/// - it is of a kind that is not read: lossless, arithmetic, of more than 8 bits, of two components.
std::string fault_of_jpeg(std::string_view bytes);

/// A library that decodes JPEG files.
struct JpegDecoder {
  const char* name;     ///< "libjpeg-turbo", "stb"
  const char* version;  ///< "" where it says none
  /// Makes `image` that of a file without fault (fault_of_jpeg()), of the size of its frame. What is wrong with it, ""
  /// for nothing. Throws std::bad_alloc where memory does not suffice.
  std::string (*decode)(std::string_view bytes, const ImageSize& size, int64_t channels, Image& image);
};

/// Null in a build without it.
const JpegDecoder* jpeg_turbo();
const JpegDecoder* jpeg_stb();

/// What decodes: the one that is forced, else the first that is there.
const JpegDecoder& jpeg_decoder();

// --- stb ------------------------------------------------------------------------------------------------------------

/// Makes `image` the JPEG or PNG in `bytes`, of this size, as stb decodes it. What is wrong with it, or "". Throws
/// std::bad_alloc where memory does not suffice.
std::string decode_with_stb(std::string_view bytes, const ImageSize& size, int64_t channels, Image& image);

// --- BMP and PNM ----------------------------------------------------------------------------------------------------

// Images whose file has their pixels as they are. Not by stb: 2.27 makes up the pixels of a BMP that ends early or
// names colours beyond its palette, reads PNM of 16 bits beyond the end of its memory, does not scale smaller maxima,
// and leaves what is missing as it finds it.

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
