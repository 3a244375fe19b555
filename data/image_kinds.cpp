#include "data/image_formats.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>
#include <cstddef>
#include <vector>

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

bool is_space(char c) {
  return std::isspace(static_cast<unsigned char>(c)) != 0;
}

bool is_text(std::string_view bytes) {
  return std::all_of(bytes.begin(), bytes.end(), [](char c) {
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

const std::vector<ImageKind>& image_kinds() {
  const auto is_bmp = [](std::string_view bytes) { return bytes.size() > 14 && !is_text(bytes.substr(0, 18)); };
  const auto is_raw = [](std::string_view bytes) { return is_pnm(bytes, '5', '6'); };
  static const std::vector<ImageKind> kinds = {
      {.what = "a JPEG image",
       .begins = {"\xFF\xD8"sv},
       .decode = NORMA_IF(NORMA_HAVE_JPEG_TURBO, decode_jpeg),
       .lacks = " (a build with libjpeg62-turbo-dev reads it)"},
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
