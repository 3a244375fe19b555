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

/// A kind of image files. Its first bytes show it; the name of the file says nothing.
struct ImageKind {
  std::string what;                                ///< "a WebP image"
  std::vector<std::string_view> begins;            ///< one of these
  size_t at = 0;                                   ///< where `there` stands
  std::string_view there = {};                     ///< also there
  bool (*more)(std::string_view bytes) = nullptr;  ///< what else holds
  DecodeImage* decode = nullptr;                   ///< null: not read (in this build)
  const char* lacks = "";                          ///< what to say then
};

/// The kind of a file; null if it is none that is known, read or not.
const ImageKind* image_kind(std::string_view bytes);

/// A file in words: "a GIF image", "a text", "an empty file".
std::string describe_file(std::string_view bytes);

/// The kinds that this build reads: "JPEG, PNG, BMP or raw PNM".
std::string read_kinds();

/// Throws Error "image: NAME: damaged: FAULT" unless the fault is "".
void check_fault(const std::string& fault, const std::string& name);

/// What the header of a JPEG says.
struct JpegHeader {
  int64_t height = 0;
  int64_t width = 0;
  int orientation = 1;         ///< of EXIF
  bool unmarked_inks = false;  ///< four components, and no marker of Adobe that says which
};

// --- JPEG -----------------------------------------------------------------------------------------------------------

/// The first frame of a JPEG file, and what stands before it; none if the file has no frame.
std::optional<JpegHeader> jpeg_header(std::string_view bytes);

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
  const char* name;  ///< "libjpeg-turbo", "stb"
  /// Decodes a file without fault (fault_of_jpeg()), of this header, into `image`. Returns the fault found,
  /// or "". Throws std::bad_alloc if memory does not suffice.
  std::string (*decode)(std::string_view bytes, const JpegHeader& header, int64_t channels, Image& image);
};

extern const JpegDecoder kJpegTurbo;  ///< in a build with it
extern const JpegDecoder kJpegStb;

// --- by libraries ---------------------------------------------------------------------------------------------------

DecodeImage decode_png;   ///< libpng. Of 16 bits the upper 8
DecodeImage decode_webp;  ///< libwebp, in a build with it. The first frame of a film
DecodeImage decode_tiff;  ///< libtiff, in a build with it. The first page, turned upright as Pillow does
DecodeImage decode_gif;   ///< giflib, in a build with it. The first frame, what is transparent in its colour

/// The orientation in a block of EXIF data (with or without the "Exif\0\0" of JPEGs): 1 to 8, and 1 if there is none.
int exif_orientation(std::string_view exif);

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

/// Likewise for a whole image of 3 channels, which then has 1.
void make_grey(Image& image);

/// P5 or P6 (netpbm's pgm(5), ppm(5)), of up to 16 bits a channel. Maxima other than 255 are scaled to bytes.
DecodeImage decode_pnm;

/// 1, 4 or 8 bits with a palette, 16, 24 or 32 without, rows in either order. A compressed BMP (run lengths, JPEG, PNG)
/// is an error that says so.
DecodeImage decode_bmp;

}  // namespace norma::data
