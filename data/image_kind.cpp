#include "data/image_kind.h"

#include <zlib.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cstddef>
#include <utility>
#include <vector>

namespace norma::data {

namespace {

using namespace std::string_view_literals;

uint8_t byte_at(std::string_view bytes, size_t i) {
  return static_cast<uint8_t>(bytes[i]);
}

uint32_t big_endian(std::string_view bytes, size_t i) {
  return uint32_t{byte_at(bytes, i)} << 24 | uint32_t{byte_at(bytes, i + 1)} << 16 |
         uint32_t{byte_at(bytes, i + 2)} << 8 | byte_at(bytes, i + 3);
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

namespace {

/// The Huffman tables of a JPEG file that are there so far, by class (0 DC, 1 AC) and number.
struct HuffmanTables {
  std::array<std::array<bool, 4>, 2> there = {};

  /// Takes over a DHT segment behind its length: class and number, how many codes have 1 to 16 bits, their values; and
  /// again (ITU T.81, B.2.4.2). What is wrong with it, "" for nothing.
  std::string add(std::string_view segment) {
    constexpr size_t kLengths = 16;
    constexpr uint32_t kMostCodes = 256;
    while (!segment.empty()) {
      if (segment.size() <= kLengths) {
        return "a Huffman table is cut off";
      }
      const size_t kind = byte_at(segment, 0) >> 4;
      const size_t number = byte_at(segment, 0) & 15;
      uint32_t codes = 0;
      uint32_t used = 0;  // of the codes of this length
      bool fits = true;
      for (size_t bits = 1; bits <= kLengths; ++bits) {
        codes += byte_at(segment, bits);
        used = 2 * used + byte_at(segment, bits);
        fits = fits && used <= uint32_t{1} << bits;
      }
      if (kind > 1 || number > 3 || codes > kMostCodes || !fits || segment.size() <= kLengths + codes) {
        return "a Huffman table is none";
      }
      there[kind][number] = true;
      segment.remove_prefix(1 + kLengths + codes);
    }
    return "";
  }

  /// Whether the tables are there that a scan names behind its length: components, each with its number and two tables,
  /// and what of the coefficients comes (B.2.3). A progressive scan needs one kind.
  [[nodiscard]] bool suffice(std::string_view scan, bool progressive) const {
    const size_t components = scan.empty() ? 0 : byte_at(scan, 0);
    if (components < 1 || components > 4 || scan.size() < 4 + 2 * components) {
      return false;
    }
    const bool has_dc = byte_at(scan, 1 + 2 * components) == 0;
    const bool refines = byte_at(scan, 3 + 2 * components) >> 4 != 0;
    for (size_t i = 0; i < components; ++i) {
      const size_t dc = byte_at(scan, 2 + 2 * i) >> 4;
      const size_t ac = byte_at(scan, 2 + 2 * i) & 15;
      const bool needs_dc = !progressive || (has_dc && !refines);
      const bool needs_ac = !progressive || !has_dc;
      if ((needs_dc && (dc > 3 || !there[0][dc])) || (needs_ac && (ac > 3 || !there[1][ac]))) {
        return false;
      }
    }
    return true;
  }
};

}  // namespace

// Markers are 0xFF and their number; all but a few are followed by the length of their segment. Between segments lie
// pixels, in which 0xFF is followed by 0 (ITU T.81, annex B).
std::string fault_of_jpeg(std::string_view bytes) {
  constexpr uint8_t kHuffmanTables = 0xC4;
  constexpr uint8_t kProgressive = 0xC2;
  constexpr uint8_t kEndOfImage = 0xD9;
  constexpr uint8_t kScan = 0xDA;
  const auto has_length = [](uint8_t marker) {
    return marker > 0x01 && marker != 0xFF && (marker < 0xD0 || marker > 0xD8);
  };
  const auto is_frame = [](uint8_t marker) {
    return marker >= 0xC0 && marker <= 0xCF && marker != kHuffmanTables && marker != 0xC8 && marker != 0xCC;
  };
  HuffmanTables tables;
  bool progressive = false;
  for (size_t i = 0; i + 1 < bytes.size();) {
    const uint8_t marker = byte_at(bytes, i + 1);
    if (byte_at(bytes, i) != 0xFF || !has_length(marker)) {
      ++i;
      continue;
    }
    if (marker == kEndOfImage) {
      return "";
    }
    const size_t length = i + 3 < bytes.size() ? size_t{byte_at(bytes, i + 2)} << 8 | byte_at(bytes, i + 3) : 0;
    if (length < 2 || bytes.size() - i - 2 < length) {
      break;
    }
    const std::string_view segment = bytes.substr(i + 4, length - 2);
    if (is_frame(marker)) {
      if (marker > kProgressive) {
        return "it is neither baseline nor progressive";
      }
      if (segment.empty() || byte_at(segment, 0) != 8) {
        return "its samples have not 8 bits";
      }
      if (segment.size() < 5 || (byte_at(segment, 1) | byte_at(segment, 2)) == 0 ||
          (byte_at(segment, 3) | byte_at(segment, 4)) == 0) {
        return "it has no pixels";
      }
      progressive = marker == kProgressive;
    } else if (marker == kHuffmanTables) {
      if (const std::string fault = tables.add(segment); !fault.empty()) {
        return fault;
      }
    } else if (marker == kScan && !tables.suffice(segment, progressive)) {
      return "a Huffman table is missing";
    }
    i += 2 + length;
  }
  return "it ends early";
}

namespace {

/// The pixels of a PNG file as its chunks have them.
struct PngPixels {
  uint64_t bytes = 0;  ///< that the header's size asks for, with the filter of each row; at most
  uint64_t least = 0;  ///< of them without filters
  bool plain = true;   ///< compressed with a header of zlib's; without one in Apple's kind
  uint64_t compressed = 0;
  std::vector<std::string_view> chunks = {};

  /// IHDR: width, height, bits of a sample, kind of colour, …, interlacing (PNG specification, 11.2.2).
  void read_header(std::string_view header) {
    constexpr std::array<uint64_t, 7> kSamples = {1, 1, 3, 1, 2, 1, 4};  // of a pixel, by kind of colour
    if (header.size() != 13 || byte_at(header, 9) >= kSamples.size()) {
      return;  // stb says what is wrong with it
    }
    const uint64_t height = big_endian(header, 4);
    const uint64_t row_bits = uint64_t{big_endian(header, 0)} * byte_at(header, 8) * kSamples[byte_at(header, 9)];
    const uint64_t rows_of_passes = byte_at(header, 12) == 0 ? 0 : 4 * height + 16;  // and the last byte of each
    bytes = height * ((row_bits + 7) / 8 + 1) + rows_of_passes;
    least = height * row_bits / 8;
  }

  /// What is wrong with them, or "". stb takes whatever they decompress to, which can be gigabytes of a few pixels;
  /// files that are too small for that are not looked at, as it costs as much as reading the image.
  [[nodiscard]] std::string fault() const {
    constexpr uint64_t kMostGain = 1032;  // of deflate
    constexpr uint64_t kNotMuch = uint64_t{1} << 30;
    const uint64_t limit = bytes + kNotMuch;
    z_stream stream = {};
    if (compressed * kMostGain <= limit || inflateInit2(&stream, plain ? MAX_WBITS : -MAX_WBITS) != Z_OK) {
      return "";
    }
    std::vector<Bytef> out(size_t{1} << 16);
    uint64_t count = 0;
    int state = Z_OK;
    for (size_t i = 0; i < chunks.size() && state == Z_OK && count <= limit; ++i) {
      // zlib does not write there.
      stream.next_in = const_cast<Bytef*>(reinterpret_cast<const Bytef*>(chunks[i].data()));
      stream.avail_in = static_cast<uInt>(chunks[i].size());
      do {
        stream.next_out = out.data();
        stream.avail_out = static_cast<uInt>(out.size());
        state = inflate(&stream, Z_NO_FLUSH);
        count += out.size() - stream.avail_out;
      } while (state == Z_OK && stream.avail_out == 0 && count <= limit);
      state = state == Z_BUF_ERROR ? Z_OK : state;  // it waits for the next chunk
    }
    inflateEnd(&stream);
    if (count > limit) {
      return "its pixels are more than its size";
    }
    const bool ended_early = state != Z_OK && state != Z_STREAM_END && count < least;
    return ended_early ? "its pixels cannot be decompressed" : "";
  }
};

}  // namespace

// The header is the first chunk, but for Apple's kind, in which it is the second.
std::optional<ImageSize> png_size(std::string_view bytes) {
  constexpr size_t kRest = 12;  // of a chunk beside its content
  size_t i = kPngSignature.size();
  if (bytes.size() >= i + 8 && bytes.substr(i + 4, 4) == "CgBI"sv) {
    i += big_endian(bytes, i) + kRest;
  }
  if (bytes.size() < i + 16 || bytes.substr(i + 4, 4) != "IHDR"sv) {
    return std::nullopt;
  }
  return ImageSize{.height = big_endian(bytes, i + 12), .width = big_endian(bytes, i + 8)};
}

// A chunk is its length, its type, so many bytes, and the check sum of type and bytes (PNG specification, 5.3).
std::string fault_of_png(std::string_view bytes) {
  PngPixels pixels;
  for (size_t i = kPngSignature.size(); bytes.size() >= i + 8;) {
    const size_t length = big_endian(bytes, i);
    const std::string_view type = bytes.substr(i + 4, 4);
    if (type == "IEND"sv) {
      return pixels.fault();
    }
    if (bytes.size() - i < length + 12) {
      break;
    }
    const auto* checked = reinterpret_cast<const Bytef*>(bytes.data() + i + 4);
    if (crc32_z(0, checked, length + 4) != big_endian(bytes, i + 8 + length)) {
      return "a check sum is wrong";
    }
    const std::string_view content = bytes.substr(i + 8, length);
    if (type == "IHDR"sv) {
      pixels.read_header(content);
    } else if (type == "CgBI"sv) {
      pixels.plain = false;
    } else if (type == "IDAT"sv) {
      pixels.compressed += length;
      pixels.chunks.push_back(content);
    }
    i += length + 12;
  }
  return "it ends early";
}

}  // namespace norma::data
