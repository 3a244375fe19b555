#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace norma::data {

/// An image in memory: bytes, row by row from the top, the channels of a pixel side by side.
struct Image {
  int64_t height = 0;
  int64_t width = 0;
  int64_t channels = 3;
  std::vector<uint8_t> pixels;  ///< height * width * channels
  int orientation = 1;          ///< EXIF's, 1 to 8: how a photograph has to be turned; 1: it is upright

  /// Sets the sizes. Memory is used again; the pixels are undefined afterwards.
  void set_size(int64_t new_height, int64_t new_width, int64_t new_channels) {
    height = new_height;
    width = new_width;
    channels = new_channels;
    pixels.resize(static_cast<size_t>(height * width * channels));
  }
  [[nodiscard]] uint8_t at(int64_t y, int64_t x, int64_t channel) const {
    return pixels[static_cast<size_t>((y * width + x) * channels + channel)];
  }
};

/// Rows [top, top + height) and columns [left, left + width) of an image.
struct Rectangle {
  int64_t top = 0;
  int64_t left = 0;
  int64_t height = 0;
  int64_t width = 0;
};

/// The most pixels of an image, more than any camera's, so that a header of a few bytes cannot claim all memory.
inline constexpr int64_t kMaxImagePixels = int64_t{1} << 27;

/// Throws Error "op: image: …" unless the image has pixels, 1 or 3 channels, and as many bytes as that makes.
void check_image(std::string_view op, const Image& image);

/// Reads a JPEG (in a build with libjpeg-turbo), a PNG, a BMP without compression, a raw PNM (P5,
/// P6), or, as far as the build has libwebp, libtiff and giflib, a WebP, TIFF or GIF, of which the first picture
/// counts. The first bytes decide which, not the name. Of 16 bits a channel, a PNG's are cut to the upper 8, and a
/// PNM's are scaled to 8. `channels`: 1 for grey (luminance), 3 for color; transparency is left out. The orientation
/// that EXIF notes is not applied (turn_upright()), except a TIFF's, as in Pillow. Throws Error "image: …" that names
/// the file when it is missing, of another kind (and says which), damaged or cut short, has more than kMaxImagePixels,
/// or would take far more work than its size warrants. Throws OutOfMemory that names it, if decoding takes more memory
/// than there is; the file itself may be sound.
Image read_image(const std::filesystem::path& file, int64_t channels = 3);

/// The longest file that is read as an image, in bytes.
inline constexpr uint64_t kMaxImageBytes = uint64_t{1} << 30;

/// Decodes the bytes of such a file into `image`, whose memory is used again; `name` stands for the file in error
/// texts. Throws as read_image() does.
void decode_image(std::string_view bytes, const std::string& name, int64_t channels, Image& image);

/// Chooses the part of an image of these sizes that is needed.
using ChooseWindow = std::function<Rectangle(int64_t height, int64_t width)>;

/// What is needed of an image.
struct NeededPart {
  ChooseWindow choose;   ///< the window, chosen once; none: all of it
  bool upright = false;  ///< turn_upright() before the window is chosen
  /// 0: the image's own pixels. Else a JPEG is decoded at 1/2, 1/4 or 1/8 of its size if its window then still has so
  /// many pixels in each direction: the window is then the same part of the smaller image, to the nearest pixel.
  int64_t enough = 0;
};

/// As decode_image(), but only for a window. `image` becomes the whole image or a part with all of the window, whose
/// place in it is returned; the pixels of the window are those of the whole image. Of a JPEG of one scan that needs no
/// turning, colors are made around the window alone, though damage anywhere in the file is still an error.
Rectangle decode_window(std::string_view bytes, const std::string& name, int64_t channels, const NeededPart& needed,
                        Image& image);

/// Turns and mirrors the image as its orientation asks, and sets that to 1.
void turn_upright(Image& image);

/// The libraries by which this build reads images, each with its version.
std::vector<std::pair<std::string, std::string>> image_libraries();

/// Writes a PNG of 1 or 3 channels to a temporary file, which is then renamed. Throws Error when the image has no
/// pixels or the file cannot be written.
void write_png(const std::filesystem::path& file, const Image& image);

}  // namespace norma::data
