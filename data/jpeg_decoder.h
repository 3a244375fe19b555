#pragma once

#include "data/image_file.h"
#include "data/image_kind.h"

#include <string>
#include <string_view>

namespace norma::data {

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

}  // namespace norma::data
