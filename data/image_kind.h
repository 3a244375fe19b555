#pragma once

#include <cstdint>
#include <optional>
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

/// What is wrong with a JPEG file, as far as its segments show it, or "": it does not come to its end-of-image marker
/// (stb makes up what is missing, in grey), it has no pixels, its Huffman tables are damaged or missing (stb writes and
/// reads behind the ends of its own then), or it is of a kind that stb does not read: "it ends early".
std::string fault_of_jpeg(std::string_view bytes);

struct ImageSize {
  int64_t height = 0;
  int64_t width = 0;
};
/// What the header of a PNG file says; none where it has no header.
std::optional<ImageSize> png_size(std::string_view bytes);

/// What is wrong with the chunks of a PNG file, or "": they do not go on to an IEND (whose check sum may be cut off), a
/// check sum is wrong (stb looks at none of them), or the pixels decompress to so much more than the header's size asks
/// for that stb would fill the memory with them: "its pixels are more than its size". Looked at in files with 1 MB and
/// more of compressed pixels, which are decompressed for it.
std::string fault_of_png(std::string_view bytes);

}  // namespace norma::data
