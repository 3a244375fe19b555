#include "data/image_formats.h"

#include "core/error.h"

#include <zlib.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <new>
#include <vector>

// A PNG file is a signature and chunks: a length, a type, so many bytes, and the check sum of type and bytes (PNG
// specification, 5.3). The pixels are one zlib stream over the content of all IDAT chunks.

namespace norma::data {

namespace {

using namespace std::string_view_literals;

constexpr size_t kSignature = 8;
constexpr size_t kRest = 12;  // of a chunk beside its content

uint8_t byte_at(std::string_view bytes, size_t i) {
  return static_cast<uint8_t>(bytes[i]);
}

uint32_t big_endian(std::string_view bytes, size_t i) {
  return uint32_t{byte_at(bytes, i)} << 24 | uint32_t{byte_at(bytes, i + 1)} << 16 |
         uint32_t{byte_at(bytes, i + 2)} << 8 | byte_at(bytes, i + 3);
}

/// What the pixels of an image take before they are compressed.
struct PngBytes {
  uint64_t most = 0;   ///< with the filter of each row
  uint64_t least = 0;  ///< without
};

/// An IHDR chunk has width, height, bits of a sample, kind of colour, …, interlacing (11.2.2). None: it makes no sense.
std::optional<PngBytes> bytes_of_pixels(std::string_view header) {
  constexpr std::array<uint64_t, 7> kSamples = {1, 0, 3, 1, 2, 0, 4};  // of a pixel, by kind of colour
  if (header.size() != 13 || byte_at(header, 9) >= kSamples.size() || kSamples[byte_at(header, 9)] == 0) {
    return std::nullopt;
  }
  const uint64_t height = big_endian(header, 4);
  const uint64_t row_bits = uint64_t{big_endian(header, 0)} * byte_at(header, 8) * kSamples[byte_at(header, 9)];
  const uint64_t rows_of_passes = byte_at(header, 12) == 0 ? 0 : 4 * height + 16;  // and the last byte of each
  return PngBytes{.most = height * ((row_bits + 7) / 8 + 1) + rows_of_passes, .least = height * row_bits / 8};
}

/// zlib's decompression of a list of pieces.
class Inflater {
 public:
  /// `plain`: with zlib's header; without one in Apple's kind of PNG.
  Inflater(const std::vector<std::string_view>& pieces, bool plain) : pieces_(pieces) {
    if (inflateInit2(&stream_, plain ? MAX_WBITS : -MAX_WBITS) != Z_OK) {
      throw std::bad_alloc();
    }
  }
  ~Inflater() { inflateEnd(&stream_); }
  Inflater(const Inflater&) = delete;
  Inflater& operator=(const Inflater&) = delete;

  /// The next bytes, as many as there is room for; fewer at the end, and where it cannot go on.
  size_t read(char* to, size_t room) {
    stream_.next_out = reinterpret_cast<Bytef*>(to);
    stream_.avail_out = static_cast<uInt>(room);
    while (state_ == Z_OK && stream_.avail_out > 0) {
      if (stream_.avail_in == 0) {
        if (next_ == pieces_.size()) {
          break;
        }
        // zlib does not write there.
        stream_.next_in = const_cast<Bytef*>(reinterpret_cast<const Bytef*>(pieces_[next_].data()));
        stream_.avail_in = static_cast<uInt>(pieces_[next_].size());
        ++next_;
      }
      state_ = inflate(&stream_, Z_NO_FLUSH);
      state_ = state_ == Z_BUF_ERROR ? Z_OK : state_;  // it waits for the next piece
    }
    if (state_ == Z_MEM_ERROR) {
      throw std::bad_alloc();
    }
    return room - stream_.avail_out;
  }
  /// Whether the stream is damaged, where it could go no further.
  [[nodiscard]] bool is_damaged() const { return state_ != Z_OK && state_ != Z_STREAM_END; }

 private:
  const std::vector<std::string_view>& pieces_;
  size_t next_ = 0;
  z_stream stream_ = {};
  int state_ = Z_OK;
};

void append_big_endian(std::string& to, uint32_t value) {
  for (const int shift : {24, 16, 8, 0}) {
    to.push_back(static_cast<char>(value >> shift));
  }
}

/// Appends IDAT chunks with what `pieces` decompress to as stored blocks of deflate, one in each (RFC 1951, 3.2.4).
/// stb looks at no check sum, so that none is right. What is wrong, or "".
std::string append_plain(std::string& to, const std::vector<std::string_view>& pieces, bool plain,
                         const PngBytes& expected) {
  constexpr size_t kBlock = 65'535;
  constexpr size_t kBlockHeader = 5;
  const std::string_view zlib_header = plain ? "\x78\x01"sv : ""sv;
  Inflater inflater(pieces, plain);
  uint64_t count = 0;
  for (bool last = false; !last;) {
    const size_t header = count == 0 ? zlib_header.size() : 0;
    const size_t begin = to.size();
    const size_t content = begin + 8 + header + kBlockHeader;
    to.resize(content + kBlock);
    const size_t size = inflater.read(to.data() + content, kBlock);
    last = size < kBlock;
    std::string head;
    append_big_endian(head, static_cast<uint32_t>(header + kBlockHeader + size));
    head += "IDAT";
    head += zlib_header.substr(0, header);
    head += {static_cast<char>(last), static_cast<char>(size), static_cast<char>(size >> 8), static_cast<char>(~size),
             static_cast<char>(~size >> 8)};
    std::copy(head.begin(), head.end(), to.begin() + static_cast<std::ptrdiff_t>(begin));
    to.resize(content + size);
    append_big_endian(to, /* check sum */ 0);
    count += size;
    if (count > expected.most + kBlock) {
      return "its pixels are more than its size";
    }
  }
  if (count >= expected.least) {
    return "";  // what follows may be damaged: it is left out
  }
  return inflater.is_damaged() ? "its pixels cannot be decompressed" : "it ends early";
}

}  // namespace

// The header is the first chunk, but for Apple's kind, in which it is the second.
std::optional<ImageSize> png_size(std::string_view bytes) {
  size_t i = kSignature;
  if (bytes.size() >= i + 8 && bytes.substr(i + 4, 4) == "CgBI"sv) {
    i += big_endian(bytes, i) + kRest;
  }
  if (bytes.size() < i + 16 || bytes.substr(i + 4, 4) != "IHDR"sv) {
    return std::nullopt;
  }
  return ImageSize{.height = big_endian(bytes, i + 12), .width = big_endian(bytes, i + 8)};
}

std::string with_plain_pixels(std::string_view bytes, const std::string& name) {
  const auto check_fault = [&](const std::string& fault) {
    check(fault.empty(), "image", "{}: damaged: {}", name, fault);
  };
  std::string out(bytes.substr(0, kSignature));
  std::string behind;  // the pixels
  std::vector<std::string_view> pixels;
  std::optional<PngBytes> expected;
  bool plain = true;
  for (size_t i = kSignature; bytes.size() >= i + 8;) {
    const size_t length = big_endian(bytes, i);
    const std::string_view type = bytes.substr(i + 4, 4);
    if (type == "IEND"sv) {
      check_fault(expected ? append_plain(out, pixels, plain, *expected) : "its header makes no sense");
      return out + behind + std::string("\0\0\0\0IEND\0\0\0\0", kRest);
    }
    if (bytes.size() - i < length + kRest) {
      break;
    }
    const auto* checked = reinterpret_cast<const Bytef*>(bytes.data() + i + 4);
    check_fault(crc32_z(0, checked, length + 4) == big_endian(bytes, i + 8 + length) ? "" : "a check sum is wrong");
    const std::string_view content = bytes.substr(i + 8, length);
    if (type == "IDAT"sv) {
      pixels.push_back(content);
    } else {
      (pixels.empty() ? out : behind) += bytes.substr(i, length + kRest);
    }
    if (type == "IHDR"sv) {
      check_fault(expected ? "it has two headers" : "");
      expected = bytes_of_pixels(content);
      check_fault(expected ? "" : "its header makes no sense");
    } else if (type == "CgBI"sv) {
      plain = false;
    }
    i += length + kRest;
  }
  check_fault("it ends early");
  return out;
}

}  // namespace norma::data
