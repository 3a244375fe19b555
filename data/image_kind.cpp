#include "data/image_formats.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <cstddef>
#include <utility>

namespace norma::data {

namespace {

using namespace std::string_view_literals;

uint8_t byte_at(std::string_view bytes, size_t i) {
  return static_cast<uint8_t>(bytes[i]);
}

constexpr std::string_view kPngSignature = "\x89PNG\r\n\x1A\n"sv;

/// "P5" and white space: netpbm's names of its kinds, up to `last`.
bool is_pnm(std::string_view bytes, char first, char last) {
  return bytes.size() > 2 && bytes[0] == 'P' && bytes[1] >= first && bytes[1] <= last &&
         std::isspace(byte_at(bytes, 2)) != 0;
}

bool is_text(std::string_view bytes) {
  return std::all_of(bytes.begin(), bytes.end(), [](char c) {
    const auto code = static_cast<unsigned char>(c);
    return code >= ' ' ? code != 0x7F : std::isspace(code) != 0;
  });
}

}  // namespace

ImageKind image_kind(std::string_view bytes) {
  if (bytes.starts_with("\xFF\xD8"sv)) {
    return ImageKind::jpeg;
  }
  if (bytes.starts_with(kPngSignature)) {
    return ImageKind::png;
  }
  if (bytes.starts_with("BM"sv) && bytes.size() > 14 && !is_text(bytes.substr(0, 18))) {
    return ImageKind::bmp;
  }
  return is_pnm(bytes, '5', '6') ? ImageKind::pnm : ImageKind::other;
}

std::string describe_file(std::string_view bytes) {
  if (bytes.empty()) {
    return "an empty file";
  }
  constexpr std::array<std::pair<std::string_view, const char*>, 8> kinds = {{{"GIF8"sv, "a GIF image"},
                                                                              {"II*\0"sv, "a TIFF image"},
                                                                              {"MM\0*"sv, "a TIFF image"},
                                                                              {"8BPS"sv, "a Photoshop image"},
                                                                              {"#?RADIANCE"sv, "an HDR image"},
                                                                              {"\0\0\1\0"sv, "an icon"},
                                                                              {"%PDF"sv, "a PDF file"},
                                                                              {"PK\3\4"sv, "a ZIP archive"}}};
  for (const auto& [beginning, name] : kinds) {
    if (bytes.starts_with(beginning)) {
      return name;
    }
  }
  if (bytes.starts_with("RIFF"sv) && bytes.substr(std::min<size_t>(8, bytes.size())).starts_with("WEBP"sv)) {
    return "a WebP image";
  }
  if (bytes.substr(std::min<size_t>(4, bytes.size())).starts_with("ftyp"sv)) {
    return "an AVIF or HEIC image, or a film";
  }
  if (is_pnm(bytes, '1', '7')) {
    return "a PNM image of the kind " + std::string(bytes.substr(0, 2));
  }
  constexpr size_t kLooked = 256;
  return is_text(bytes.substr(0, kLooked)) ? "a text" : "something else";
}

}  // namespace norma::data
