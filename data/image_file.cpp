#include "data/image_file.h"

#include "base/error.h"
#include "base/input_file.h"
#include "core/allocator.h"
#include "data/atomic_file.h"
#include "data/image_formats.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <png.h>

#include <algorithm>
#include <cctype>
#include <new>
#include <optional>

// CMake says which libraries there are (NORMA_HAVE_…: true or false). What is not built is not named for the linker.
#define NORMA_IF(there, what) \
  [] {                        \
    if constexpr (there) {    \
      return what;            \
    } else {                  \
      return nullptr;         \
    }                         \
  }()

namespace norma::data {

namespace {

using namespace std::string_view_literals;

constexpr const char* kOp = "image";

bool is_space(char c) {
  return std::isspace(static_cast<unsigned char>(c)) != 0;
}

bool is_text(std::string_view bytes) {
  return std::ranges::all_of(bytes, [](char c) {
    const auto code = static_cast<unsigned char>(c);
    return code >= ' ' ? code != 0x7F : is_space(c);
  });
}

/// True for a "P", a digit from `first` to `last` and white space: netpbm's kinds begin so.
bool is_pnm(std::string_view bytes, char first, char last) {
  return bytes.size() > 2 && bytes[0] == 'P' && bytes[1] >= first && bytes[1] <= last && is_space(bytes[2]);
}

bool begins_like(std::string_view bytes, const ImageKind& kind) {
  const auto begins = [&](std::string_view begin) {
    return bytes.size() >= kind.at && bytes.starts_with(begin) && bytes.substr(kind.at).starts_with(kind.there);
  };
  return std::ranges::any_of(kind.begins, begins) && (kind.more == nullptr || kind.more(bytes));
}

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

namespace {

/// decode_image(), and decode_part() if only a part is needed and the kind of file has it.
std::optional<Rectangle> decode(std::string_view bytes, const std::string& name, int64_t channels,
                                const NeededPart* needed, Image& image) {
  check(channels == 1 || channels == 3, kOp, "channels: expected 1 or 3, got {}", channels);
  try {
    image.orientation = 1;
    if (const ImageKind* const kind = image_kind(bytes); kind != nullptr && kind->decode != nullptr) {
      if (needed != nullptr && kind->decode_part != nullptr) {
        return kind->decode_part(bytes, name, channels, *needed, image);
      }
      kind->decode(bytes, name, channels, image);
      return std::nullopt;
    }
  } catch (const std::bad_alloc&) {  // not the file's fault
    throw OutOfMemory(fmt::format("{}: {}: decoding takes more memory than there is", kOp, name));
  }
  fail(kOp, "{}: expected a {} image, got {}", name, read_kinds(), describe_file(bytes));
}

}  // namespace

void decode_image(std::string_view bytes, const std::string& name, int64_t channels, Image& image) {
  decode(bytes, name, channels, nullptr, image);
}

Rectangle decode_window(std::string_view bytes, const std::string& name, int64_t channels, const NeededPart& needed,
                        Image& image) {
  // A smaller image shows the part that was chosen in the whole one. Chosen again, a random part would be another.
  std::optional<Rectangle> chosen;
  int64_t of_height = 0;
  int64_t of_width = 0;
  const ChooseWindow once = [&](int64_t height, int64_t width) {
    if (!chosen) {
      chosen = needed.choose(height, width);
      of_height = height;
      of_width = width;
    }
    const auto scaled = [](int64_t at, int64_t from, int64_t to) { return (2 * at * to + from) / (2 * from); };
    const int64_t top = scaled(chosen->top, of_height, height);
    const int64_t left = scaled(chosen->left, of_width, width);
    return Rectangle{.top = top,
                     .left = left,
                     .height = scaled(chosen->top + chosen->height, of_height, height) - top,
                     .width = scaled(chosen->left + chosen->width, of_width, width) - left};
  };
  NeededPart part = needed;
  if (needed.choose) {
    part.choose = std::cref(once);
  }
  if (const std::optional<Rectangle> window = decode(bytes, name, channels, &part, image)) {
    return *window;
  }
  if (needed.upright) {
    turn_upright(image);
  }
  return needed.choose ? once(image.height, image.width) : Rectangle{0, 0, image.height, image.width};
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

const std::vector<ImageKind>& image_kinds() {
  const auto is_bmp = [](std::string_view bytes) { return bytes.size() > 14 && !is_text(bytes.substr(0, 18)); };
  const auto is_raw = [](std::string_view bytes) { return is_pnm(bytes, '5', '6'); };
  static const std::vector<ImageKind> kinds = {
      {.what = "a JPEG image",
       .begins = {"\xFF\xD8"sv},
       .decode = NORMA_IF(NORMA_HAVE_JPEG_TURBO, decode_jpeg),
       .lacks = " (a build with libjpeg62-turbo-dev reads it)",
       .decode_part = NORMA_IF(NORMA_HAVE_JPEG_TURBO, decode_jpeg_part)},
      {.what = "a PNG image", .begins = {"\x89PNG\r\n\x1A\n"sv}, .decode = decode_png},
      {.what = "a BMP image", .begins = {"BM"sv}, .more = is_bmp, .decode = decode_bmp},
      {.what = "a raw PNM image", .begins = {"P5"sv, "P6"sv}, .more = is_raw, .decode = decode_pnm},
      {.what = "a WebP image",
       .begins = {"RIFF"sv},
       .at = 8,
       .there = "WEBP"sv,
       .decode = NORMA_IF(NORMA_HAVE_WEBP, decode_webp),
       .lacks = " (a build with libwebp-dev reads it)"},
      {.what = "a TIFF image",
       .begins = {"II*\0"sv, "MM\0*"sv, "II+\0"sv, "MM\0+"sv},
       .decode = NORMA_IF(NORMA_HAVE_TIFF, decode_tiff),
       .lacks = " (a build with libtiff-dev reads it)"},
      {.what = "a GIF image",
       .begins = {"GIF8"sv},
       .decode = NORMA_IF(NORMA_HAVE_GIF, decode_gif),
       .lacks = " (a build with libgif-dev reads it)"},
      {.what = "an AVIF or HEIC image, or a film", .begins = {""sv}, .at = 4, .there = "ftyp"sv},
      {.what = "a JPEG 2000 image", .begins = {"\0\0\0\x0CjP  "sv, "\xFF\x4F\xFF\x51"sv}},
      {.what = "a JPEG XL image", .begins = {"\0\0\0\x0CJXL "sv, "\xFF\x0A"sv}},
      {.what = "a Photoshop image", .begins = {"8BPS"sv}},
      {.what = "an HDR image", .begins = {"#?RADIANCE"sv}},
      {.what = "an icon", .begins = {"\0\0\1\0"sv}},
  };
  return kinds;
}

const ImageKind* image_kind(std::string_view bytes) {
  const auto& kinds = image_kinds();
  const auto found = std::ranges::find_if(kinds, [&](const ImageKind& kind) { return begins_like(bytes, kind); });
  return found == kinds.end() ? nullptr : &*found;
}

std::string describe_file(std::string_view bytes) {
  if (const ImageKind* const kind = image_kind(bytes); kind != nullptr) {
    return fmt::format("{}{}", kind->what, kind->decode == nullptr ? kind->lacks : "");
  }
  if (bytes.size() > 1 && bytes[0] == 'P' && is_pnm(bytes, '1', '7')) {
    return "a PNM image of the kind " + std::string(bytes.substr(0, 2));
  }
  constexpr size_t kLooked = 256;
  return bytes.empty()                       ? "an empty file"
         : bytes.starts_with("%PDF"sv)       ? "a PDF file"
         : bytes.starts_with("PK\3\4"sv)     ? "a ZIP archive"
         : is_text(bytes.substr(0, kLooked)) ? "a text"
                                             : "something else";
}

std::string read_kinds() {
  std::vector<std::string_view> names;
  for (const ImageKind& kind : image_kinds()) {
    if (kind.decode != nullptr) {
      names.push_back(std::string_view(kind.what).substr(2, kind.what.size() - 8));  // "a … image"
    }
  }
  const std::string_view last = names.back();
  names.pop_back();
  return fmt::format("{} or {}", fmt::join(names, ", "), last);
}

std::vector<std::pair<std::string, std::string>> image_libraries() {
  return {NORMA_IMAGE_LIBRARIES};
}

}  // namespace norma::data
