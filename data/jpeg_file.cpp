#include "data/image_formats.h"

#include "core/excerpt.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

// A marker is 0xFF and its number; all but a few are followed by the length of their segment. Between segments lie the
// pixels, where a 0 follows each 0xFF (ITU T.81, annex B).

namespace norma::data {

namespace {

constexpr uint8_t kProgressive = 0xC2;
constexpr uint8_t kHuffmanTables = 0xC4;
constexpr uint8_t kEndOfImage = 0xD9;
constexpr uint8_t kScan = 0xDA;
constexpr uint8_t kExif = 0xE1;
constexpr uint8_t kAdobe = 0xEE;

/// The most blocks of 8 x 8 values that all scans together may decode, each counted as often as it comes. Usual scripts
/// of scans decode a block five times, so even the 2^23 blocks of the largest image with four full components pass.
/// More than 32 decodings of each block pass only if all of them together take no time.
constexpr int64_t kMostDecodedBlocks = int64_t{1} << 26;
constexpr int64_t kMostScansOfBlock = 32;
constexpr int64_t kFewBlocks = int64_t{1} << 22;

/// If several scans make the pixels, a decoder keeps two bytes for each value of each block until the last scan. A
/// block may take so few bits that a file asks for a thousand times its size. Photographs ask for 10 to 60 times.
constexpr int64_t kBytesOfBlock = 128;
constexpr int64_t kMostBytesOfByte = 128;
constexpr int64_t kFewBytes = int64_t{1} << 28;

uint8_t byte_at(std::string_view bytes, size_t i) {
  return static_cast<uint8_t>(bytes[i]);
}

int64_t two_bytes(std::string_view bytes, size_t i) {
  return int64_t{byte_at(bytes, i)} << 8 | byte_at(bytes, i + 1);
}

int64_t divide_up(int64_t a, int64_t b) {
  return (a + b - 1) / b;
}

struct Segment {
  uint8_t marker = 0;
  size_t begin = 0;               ///< of its marker
  std::string_view content = {};  ///< the bytes after its length; empty at the end of the image
};

/// The first segment from byte `i` on; moves `i` behind it. None if the file ends before or inside the segment.
std::optional<Segment> next_segment(std::string_view bytes, size_t& i) {
  const auto has_length = [](uint8_t marker) {
    return marker > 0x01 && marker != 0xFF && (marker < 0xD0 || marker > 0xD8);
  };
  for (; (i = bytes.find('\xFF', i)) < bytes.size() && i + 1 < bytes.size(); ++i) {
    const uint8_t marker = byte_at(bytes, i + 1);
    if (marker == kEndOfImage) {
      return Segment{.marker = marker, .begin = i};
    }
    if (has_length(marker)) {
      const auto length = static_cast<size_t>(i + 3 < bytes.size() ? two_bytes(bytes, i + 2) : 0);
      if (length < 2 || bytes.size() - i - 2 < length) {
        return std::nullopt;
      }
      const Segment segment{.marker = marker, .begin = i, .content = bytes.substr(i + 4, length - 2)};
      i += 2 + length;
      return segment;
    }
  }
  return std::nullopt;
}

bool is_frame(uint8_t marker) {
  return marker >= 0xC0 && marker <= 0xCF && marker != kHuffmanTables && marker != 0xC8 && marker != 0xCC;
}

/// The Huffman tables read so far, by class (0 DC, 1 AC) and number.
struct HuffmanTables {
  std::array<std::array<bool, 4>, 2> there = {};

  /// Reads a DHT segment: tables of class and number, counts of codes with 1 to 16 bits, and their values (ITU T.81,
  /// B.2.4.2). Returns the fault, or "".
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
      uint32_t used = 0;  // codes of this length that are taken
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
};

struct Component {
  uint8_t number = 0;
  int64_t across = 1;  ///< blocks across in a unit of the image
  int64_t down = 1;
  bool scanned = false;  ///< a scan with its first coefficients has come
};

/// The image as a whole: sizes and components (B.2.2).
struct Frame {
  bool progressive = false;
  int64_t height = 0;
  int64_t width = 0;
  size_t count = 0;  ///< number of components; 0: there is no frame yet
  std::array<Component, 4> components = {};
  int64_t most_across = 1;
  int64_t most_down = 1;

  [[nodiscard]] int64_t blocks_of(const Component& component) const {
    return divide_up(divide_up(width * component.across, most_across), 8) *
           divide_up(divide_up(height * component.down, most_down), 8);
  }

  [[nodiscard]] int64_t blocks() const {
    int64_t sum = 0;
    for (size_t i = 0; i < count; ++i) {
      sum += blocks_of(components[i]);
    }
    return sum;
  }

  [[nodiscard]] int64_t most_decoded_blocks() const {
    return std::min(kMostDecodedBlocks, std::max(kFewBlocks, kMostScansOfBlock * blocks()));
  }

  std::string read(const Segment& segment) {
    const std::string_view content = segment.content;
    if (count != 0) {
      return "it has two frames";
    }
    if (segment.marker > kProgressive) {
      return "it is neither baseline nor progressive";
    }
    if (content.empty() || byte_at(content, 0) != 8) {
      return "its samples have not 8 bits";
    }
    const size_t listed = content.size() < 6 ? 0 : byte_at(content, 5);
    if ((listed != 1 && listed != 3 && listed != 4) || content.size() < 6 + 3 * listed) {
      return "expected 1, 3 or 4 components, got " + std::to_string(listed);
    }
    progressive = segment.marker == kProgressive;
    height = two_bytes(content, 1);
    width = two_bytes(content, 3);
    for (size_t i = 0; i < listed; ++i) {
      Component& component = components[i];
      component.number = byte_at(content, 6 + 3 * i);
      component.across = byte_at(content, 7 + 3 * i) >> 4;
      component.down = byte_at(content, 7 + 3 * i) & 15;
      if (std::clamp<int64_t>(component.across, 1, 4) != component.across ||
          std::clamp<int64_t>(component.down, 1, 4) != component.down) {
        return "its sampling factors are not from 1 to 4";
      }
      most_across = std::max(most_across, component.across);
      most_down = std::max(most_down, component.down);
    }
    count = listed;
    return "";
  }

  [[nodiscard]] bool is_complete() const {
    return count != 0 && std::all_of(components.begin(), components.begin() + static_cast<std::ptrdiff_t>(count),
                                     [](const Component& component) { return component.scanned; });
  }
};

/// A scan: some coefficients of some components (B.2.3).
struct Scan {
  int64_t blocks = 0;       ///< the blocks that it decodes
  int64_t fewest_bits = 0;  ///< the least that those blocks take
  bool is_part = false;     ///< other scans add to the same pixels, so that all are kept until the last

  /// Reads an SOS segment: the components, each with its number and two tables, and the range of coefficients. Returns
  /// the fault, or "".
  std::string read(std::string_view content, Frame& frame, const HuffmanTables& tables) {
    const size_t listed = content.empty() ? 0 : byte_at(content, 0);
    if (listed < 1 || listed > frame.count || content.size() < 4 + 2 * listed) {
      return "a scan has no header";
    }
    is_part = frame.progressive || listed < frame.count;
    const bool has_dc = !frame.progressive || byte_at(content, 1 + 2 * listed) == 0;
    const bool has_ac = !frame.progressive || !has_dc;
    const bool refines = frame.progressive && byte_at(content, 3 + 2 * listed) >> 4 != 0;
    std::array<bool, 4> taken = {};
    int64_t blocks_of_unit = 0;
    for (size_t i = 0; i < listed; ++i) {
      size_t c = 0;
      while (c < frame.count && (taken[c] || frame.components[c].number != byte_at(content, 1 + 2 * i))) {
        ++c;
      }
      if (c == frame.count) {
        return "a scan is of a component that there is not";
      }
      taken[c] = true;
      Component& component = frame.components[c];
      component.scanned = component.scanned || (has_dc && !refines);
      blocks_of_unit += component.across * component.down;
      if (listed == 1) {  // such a scan has no blocks beyond the edges
        blocks = frame.blocks_of(component);
      }
      const size_t dc = byte_at(content, 2 + 2 * i) >> 4;
      const size_t ac = byte_at(content, 2 + 2 * i) & 15;
      const bool needs_dc = has_dc && !refines;
      if ((needs_dc && (dc > 3 || !tables.there[0][dc])) || (has_ac && (ac > 3 || !tables.there[1][ac]))) {
        return "a Huffman table is missing";
      }
    }
    if (listed > 1) {
      blocks =
          blocks_of_unit * divide_up(frame.width, 8 * frame.most_across) * divide_up(frame.height, 8 * frame.most_down);
    }
    // A code has at least one bit. Coefficients after the first may be left out in many blocks at once.
    fewest_bits = has_dc ? (frame.progressive ? 1 : 2) * blocks : 0;
    return "";
  }
};

}  // namespace

std::optional<JpegHeader> jpeg_header(std::string_view bytes) {
  JpegHeader header;
  bool has_adobe = false;
  size_t i = 0;
  while (const std::optional<Segment> segment = next_segment(bytes, i)) {
    const std::string_view content = segment->content;
    if (segment->marker == kExif && content.starts_with("Exif")) {
      header.orientation = exif_orientation(content);
    }
    has_adobe = has_adobe || (segment->marker == kAdobe && content.starts_with("Adobe"));
    if (is_frame(segment->marker) && content.size() >= 6) {
      header.height = two_bytes(content, 1);
      header.width = two_bytes(content, 3);
      header.unmarked_inks = byte_at(content, 5) == 4 && !has_adobe;
      return header;
    }
    if (is_frame(segment->marker) || segment->marker == kScan || segment->marker == kEndOfImage) {
      return std::nullopt;
    }
  }
  return std::nullopt;
}

std::string fault_of_jpeg(std::string_view bytes) {
  HuffmanTables tables;
  Frame frame;
  Scan scan;
  size_t scan_begin = 0;
  int64_t decoded = 0;
  size_t i = 0;
  while (const std::optional<Segment> segment = next_segment(bytes, i)) {
    if (static_cast<int64_t>(segment->begin - scan_begin) < divide_up(scan.fewest_bits, 8)) {
      break;
    }
    scan = {};
    if (segment->marker == kEndOfImage) {
      return frame.is_complete() ? "" : "it ends early";
    }
    const bool is_scan = segment->marker == kScan;
    if (std::string fault = is_frame(segment->marker)           ? frame.read(*segment)
                            : segment->marker == kHuffmanTables ? tables.add(segment->content)
                            : is_scan                           ? scan.read(segment->content, frame, tables)
                                                                : std::string();
        !fault.empty()) {
      return fault;
    }
    if (is_scan) {
      scan_begin = i;
      decoded += scan.blocks;
    }
    if (decoded > frame.most_decoded_blocks()) {
      return "it has more scans than an image of its size needs";
    }
    if (const int64_t kept = scan.is_part ? kBytesOfBlock * frame.blocks() : 0;
        kept > std::max(kFewBytes, kMostBytesOfByte * static_cast<int64_t>(bytes.size()))) {
      return fmt::format("its scans take {} of memory, which a file of {} may not ask for",
                         byte_text(static_cast<uint64_t>(kept)), byte_text(bytes.size()));
    }
  }
  return "it ends early";
}

}  // namespace norma::data
