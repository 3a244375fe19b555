#include "data/image_file.h"

#include "base/error.h"
#include "base/input_file.h"
#include "core/allocator.h"
#include "data/atomic_file.h"
#include "data/image_formats.h"

#include <fmt/format.h>
#include <png.h>

#include <algorithm>
#include <cstddef>
#include <new>
#include <string>
#include <utility>

namespace norma::data {

namespace {

using namespace std::string_view_literals;

constexpr const char* kOp = "image";

}  // namespace

void check_fault(const std::string& fault, const std::string& name) {
  check(fault.empty(), kOp, "{}: damaged: {}", name, fault);
}

void check_image(std::string_view op, const Image& image) {
  check(image.height > 0 && image.width > 0 && (image.channels == 1 || image.channels == 3), op,
        "image: expected pixels of 1 or 3 channels, got {} x {} of {}", image.height, image.width, image.channels);
  check(static_cast<int64_t>(image.pixels.size()) == image.height * image.width * image.channels, op,
        "image: expected {} bytes, got {}", image.height * image.width * image.channels, image.pixels.size());
}

Image read_image(const std::filesystem::path& file, int64_t channels) {
  Image image;
  decode_image(read_text_file(kOp, file, kMaxImageBytes), file.string(), channels, image);
  return image;
}

void decode_image(std::string_view bytes, const std::string& name, int64_t channels, Image& image) {
  check(channels == 1 || channels == 3, kOp, "channels: expected 1 or 3, got {}", channels);
  try {
    image.orientation = 1;
    if (const ImageKind* const kind = image_kind(bytes); kind != nullptr && kind->decode != nullptr) {
      kind->decode(bytes, name, channels, image);
      return;
    }
  } catch (const std::bad_alloc&) {  // not the file's fault
    throw OutOfMemory(fmt::format("{}: {}: decoding takes more memory than there is", kOp, name));
  }
  fail(kOp, "{}: expected a {} image, got {}", name, read_kinds(), describe_file(bytes));
}

// EXIF data are a small TIFF: a byte order, 42, the place of a table, and there a count and as many entries of 12
// bytes: tag, type, count, value.
int exif_orientation(std::string_view exif) {
  if (exif.starts_with("Exif\0\0"sv)) {
    exif.remove_prefix(6);
  }
  const bool little = exif.starts_with("II"sv);
  const auto number = [&](size_t at, size_t count) {
    size_t value = 0;
    for (size_t i = 0; i < count && at + count <= exif.size(); ++i) {
      value = value << 8 | static_cast<uint8_t>(exif[little ? at + count - 1 - i : at + i]);
    }
    return value;
  };
  constexpr size_t kOrientation = 0x0112;
  constexpr size_t kShort = 3;
  const size_t table = number(4, 4);
  for (size_t i = 0; (little || exif.starts_with("MM"sv)) && i < number(table, 2); ++i) {
    const size_t entry = table + 2 + 12 * i;
    if (const size_t value = number(entry + 8, 2); number(entry, 2) == kOrientation && number(entry + 2, 2) == kShort) {
      return value >= 1 && value <= 8 ? static_cast<int>(value) : 1;
    }
  }
  return 1;
}

void turn_upright(Image& image) {
  const int orientation = std::exchange(image.orientation, 1);
  if (orientation == 1) {
    return;
  }
  const bool transposed = orientation >= 5;
  const bool from_below = orientation == 3 || orientation == 4 || orientation == 6 || orientation == 7;
  const bool from_right = orientation == 2 || orientation == 3 || orientation >= 7;
  Image upright;
  upright.set_size(transposed ? image.width : image.height, transposed ? image.height : image.width, image.channels);
  uint8_t* to = upright.pixels.data();
  for (int64_t y = 0; y < upright.height; ++y) {
    for (int64_t x = 0; x < upright.width; ++x, to += image.channels) {
      const int64_t row = transposed ? x : y;
      const int64_t column = transposed ? y : x;
      const int64_t from =
          (from_below ? image.height - 1 - row : row) * image.width + (from_right ? image.width - 1 - column : column);
      std::copy_n(image.pixels.data() + from * image.channels, image.channels, to);
    }
  }
  image = std::move(upright);
}

void write_png(const std::filesystem::path& file, const Image& image) {
  check_image(kOp, image);
  AtomicFile out(kOp, file);
  png_image png = {};
  png.version = PNG_IMAGE_VERSION;
  png.height = static_cast<png_uint_32>(image.height);
  png.width = static_cast<png_uint_32>(image.width);
  png.format = image.channels == 3 ? PNG_FORMAT_RGB : PNG_FORMAT_GRAY;
  png_alloc_size_t size = PNG_IMAGE_PNG_SIZE_MAX(png);
  std::string bytes(size, '\0');
  check(png_image_write_to_memory(&png, bytes.data(), &size, /* convert_to_8_bit= */ 0, image.pixels.data(), 0,
                                  nullptr) != 0,
        kOp, "{}: {} x {} pixels: {}", file.string(), image.height, image.width, png.message);
  out.write(bytes.data(), size);
  out.commit();
}

}  // namespace norma::data
