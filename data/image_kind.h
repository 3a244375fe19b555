#pragma once

#include <cstdint>
#include <string>
#include <string_view>

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

}  // namespace norma::data
