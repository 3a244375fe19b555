#include "data/image_formats.h"

#include "base/error.h"
#include "base/lists.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cctype>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <vector>

namespace norma::data {

namespace {

constexpr const char* kOp = "image";

uint8_t byte_at(std::string_view bytes, size_t i) {
  return static_cast<uint8_t>(bytes[i]);
}

/// The next number of a PNM's header, after white space and comments; -1 if there is none, or a far too large one.
int64_t header_number(std::string_view bytes, size_t& at) {
  while (at < bytes.size() && (bytes[at] == '#' || std::isspace(byte_at(bytes, at)) != 0)) {
    at = bytes[at] == '#' ? std::min(bytes.find('\n', at), bytes.size()) : at + 1;
  }
  constexpr int64_t kMost = int64_t{1} << 31;
  int64_t value = -1;
  for (; at < bytes.size() && std::isdigit(byte_at(bytes, at)) != 0 && value < kMost; ++at) {
    value = std::max<int64_t>(value, 0) * 10 + (bytes[at] - '0');
  }
  return value < kMost ? value : -1;
}

// --- BMP -------------------------------------------------------------------------------------------------------

/// A BMP's numbers, least byte first.
uint32_t number(std::string_view bytes, size_t at, size_t count) {
  uint32_t value = 0;
  for (size_t i = 0; i < count; ++i) {
    value |= uint32_t{byte_at(bytes, at + i)} << (8 * i);
  }
  return value;
}

struct BmpHeader {
  int64_t width = 0;
  int64_t height = 0;
  bool top_down = false;
  uint32_t bits = 0;                   ///< of a pixel
  size_t pixels = 0;                   ///< offset of the pixels
  std::array<uint32_t, 3> masks = {};  ///< of red, green and blue, for 16 and 32 bits
  std::vector<Rgb> palette;            ///< for up to 8 bits
};

constexpr size_t kFileHeader = 14;
constexpr size_t kCoreHeader = 12;  // size of OS/2's header
constexpr size_t kInfoHeader = 40;
constexpr uint32_t kBitFields = 3;

BmpHeader read_bmp_header(std::string_view bytes, const std::string& name) {
  const auto check_whole = [&](size_t end) { check(bytes.size() >= end, kOp, "{}: damaged: it ends early", name); };
  check_whole(kFileHeader + kCoreHeader);
  BmpHeader header{.pixels = number(bytes, 10, 4)};
  const size_t size = number(bytes, kFileHeader, 4);
  const bool is_core = size == kCoreHeader;
  check(is_core || (size >= kInfoHeader && size <= 1024), kOp,
        "{}: damaged: expected a header of 12 or 40 to 1024 bytes, got {}", name, size);
  check_whole(kFileHeader + size);
  uint32_t compression = 0;
  if (is_core) {
    header.width = number(bytes, 18, 2);
    header.height = number(bytes, 20, 2);
    header.bits = number(bytes, 24, 2);
  } else {
    header.width = static_cast<int32_t>(number(bytes, 18, 4));
    header.height = static_cast<int32_t>(number(bytes, 22, 4));
    header.bits = number(bytes, 28, 2);
    compression = number(bytes, 30, 4);
  }
  header.top_down = header.height < 0;
  header.height = std::abs(header.height);
  check_image_size(name, header.height, header.width);
  const bool has_masks = compression == kBitFields && (header.bits == 16 || header.bits == 32);
  check(compression == 0 || has_masks, kOp, "{}: expected a BMP without compression, got one with number {}", name,
        compression);
  constexpr std::array<uint32_t, 6> depths = {1, 4, 8, 16, 24, 32};
  check(is_in(depths, header.bits), kOp, "{}: damaged: expected 1, 4, 8, 16, 24 or 32 bits a pixel, got {}", name,
        header.bits);

  size_t end = kFileHeader + size;  // of the part before the pixels
  if (has_masks) {
    end = std::max(end, kFileHeader + kInfoHeader + 12);
    check_whole(end);
    for (size_t c = 0; c < 3; ++c) {
      const uint32_t mask = number(bytes, kFileHeader + kInfoHeader + 4 * c, 4);
      const uint32_t ones = mask == 0 ? 0 : mask >> std::countr_zero(mask);
      check(ones > 0 && (ones & (ones + 1)) == 0, kOp, "{}: damaged: expected a mask of bits in a row, got {:#x}", name,
            mask);
      header.masks[c] = mask;
    }
  } else {
    header.masks = header.bits == 16 ? std::array<uint32_t, 3>{0x7C00, 0x03E0, 0x001F}
                                     : std::array<uint32_t, 3>{0xFF0000, 0x00FF00, 0x0000FF};
  }
  if (header.bits <= 8) {
    const size_t most = size_t{1} << header.bits;
    const size_t entry = is_core ? 3 : 4;
    const size_t used = is_core ? 0 : number(bytes, 46, 4);
    const size_t room = header.pixels > end ? (header.pixels - end) / entry : 0;
    const size_t count = std::min({used == 0 ? most : used, most, room});
    check_whole(end + count * entry);
    for (size_t i = 0; i < count; ++i) {
      const size_t at = end + i * entry;
      header.palette.push_back({byte_at(bytes, at + 2), byte_at(bytes, at + 1), byte_at(bytes, at)});
    }
    end += count * entry;
  }
  check(header.pixels >= end, kOp, "{}: damaged: expected pixels behind the header's {} bytes, got them at {}", name,
        end, header.pixels);
  return header;
}

/// The bits under the mask, scaled to 0 … 255 and rounded down, as Pillow does.
int masked(uint32_t value, uint32_t mask) {
  const int shift = std::countr_zero(mask);
  return static_cast<int>(uint64_t{(value & mask) >> shift} * 255 / (mask >> shift));
}

}  // namespace

void check_image_size(const std::string& name, int64_t height, int64_t width) {
  check(height > 0 && width > 0, kOp, "{}: damaged: expected at least 1 pixel, got {} x {}", name, height, width);
  check(height <= kMaxImagePixels / width, kOp, "{}: expected at most {} pixels, got {} x {}", name, kMaxImagePixels,
        height, width);
}

void put(const Rgb& color, int64_t channels, uint8_t* pixel) {
  if (channels == 1) {
    pixel[0] = static_cast<uint8_t>((color[0] * 77 + color[1] * 150 + color[2] * 29) >> 8);
    return;
  }
  for (size_t c = 0; c < 3; ++c) {
    pixel[c] = static_cast<uint8_t>(color[c]);
  }
}

void make_grey(Image& image) {
  for (int64_t i = 0; i < image.height * image.width; ++i) {
    const uint8_t* const from = image.pixels.data() + 3 * i;
    put({from[0], from[1], from[2]}, 1, image.pixels.data() + i);  // never beyond what is read
  }
  image.set_size(image.height, image.width, 1);
}

void decode_pnm(std::string_view bytes, const std::string& name, int64_t channels, Image& image) {
  size_t at = 2;
  const int64_t width = header_number(bytes, at);
  const int64_t height = header_number(bytes, at);
  const int64_t most = header_number(bytes, at);
  check(width >= 0 && height >= 0 && most > 0 && most < 65'536, kOp,
        "{}: damaged: expected width, height and a maximum from 1 to 65535", name);
  check_image_size(name, height, width);
  ++at;  // one character of white space
  const int64_t of_file = bytes[1] == '6' ? 3 : 1;
  const int64_t wide = most > 255 ? 2 : 1;
  const auto left = static_cast<int64_t>(bytes.size()) - static_cast<int64_t>(at);
  check(left >= height * width * of_file * wide, kOp, "{}: damaged: it ends early", name);
  // Samples are big-endian, from 0 to the maximum.
  const auto sample = [&](int64_t i) {
    const size_t place = at + static_cast<size_t>(i * wide);
    const int value = wide == 2 ? byte_at(bytes, place) << 8 | byte_at(bytes, place + 1) : byte_at(bytes, place);
    return static_cast<int>((std::min<int64_t>(value, most) * 255 + most / 2) / most);
  };
  image.set_size(height, width, channels);
  for (int64_t i = 0; i < height * width; ++i) {
    const int first = sample(i * of_file);
    const Rgb color = of_file == 3 ? Rgb{first, sample(i * 3 + 1), sample(i * 3 + 2)} : Rgb{first, first, first};
    put(color, channels, image.pixels.data() + i * channels);
  }
}

void decode_bmp(std::string_view bytes, const std::string& name, int64_t channels, Image& image) {
  const BmpHeader header = read_bmp_header(bytes, name);
  const size_t row_bits = static_cast<size_t>(header.width) * header.bits;
  const size_t stride = (row_bits + 31) / 32 * 4;
  // The bytes that pad the last row may be missing: nothing reads them.
  const size_t needed = stride * static_cast<size_t>(header.height - 1) + (row_bits + 7) / 8;
  check(bytes.size() >= header.pixels && bytes.size() - header.pixels >= needed, kOp, "{}: damaged: it ends early",
        name);
  image.set_size(header.height, header.width, channels);
  for (int64_t y = 0; y < header.height; ++y) {
    const size_t row = header.pixels + stride * static_cast<size_t>(header.top_down ? y : header.height - 1 - y);
    uint8_t* to = image.pixels.data() + y * header.width * channels;
    for (size_t x = 0; x < static_cast<size_t>(header.width); ++x, to += channels) {
      if (header.bits > 8) {
        const size_t size = header.bits / 8;
        const uint32_t value = number(bytes, row + x * size, size);
        put({masked(value, header.masks[0]), masked(value, header.masks[1]), masked(value, header.masks[2])}, channels,
            to);
        continue;
      }
      const size_t bit = x * header.bits;  // the first pixel is in the upper bits
      const uint32_t index = byte_at(bytes, row + bit / 8) >> (8 - header.bits - bit % 8) & ((1U << header.bits) - 1);
      check(index < header.palette.size(), kOp, "{}: damaged: a pixel has color {} of a palette of {}", name, index,
            header.palette.size());
      put(header.palette[index], channels, to);
    }
  }
}

}  // namespace norma::data
