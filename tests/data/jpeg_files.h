#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>

namespace norma::test {

/// Entropy-coded data: bits, the first of a byte uppermost, and a 0 behind each 0xFF.
class JpegBits {
 public:
  void put(uint32_t value, int count) {
    for (int i = count - 1; i >= 0; --i) {
      byte_ = byte_ << 1 | (value >> i & 1);
      if (++used_ == 8) {
        bytes_.push_back(static_cast<char>(byte_));
        if (byte_ == 0xFF) {
          bytes_.push_back('\0');
        }
        byte_ = 0;
        used_ = 0;
      }
    }
  }
  [[nodiscard]] std::string take() {
    while (used_ != 0) {
      put(1, 1);
    }
    return std::move(bytes_);
  }

 private:
  std::string bytes_;
  uint32_t byte_ = 0;
  int used_ = 0;
};

inline std::string two_bytes(int64_t x) {
  return {static_cast<char>(x >> 8), static_cast<char>(x)};
}

inline std::string jpeg_segment(uint8_t marker, const std::string& content) {
  return std::string{'\xFF', static_cast<char>(marker)} + two_bytes(static_cast<int64_t>(content.size()) + 2) + content;
}

/// The beginning of a progressive JPEG of one grey, with components of full size: sizes, and tables whose only codes
/// have one bit: "no difference" for the first coefficient, and "so many blocks have no others" with 14 bits of the
/// number.
inline std::string jpeg_head(int64_t height, int64_t width, int components = 1) {
  std::string head = "\xFF\xD8" + jpeg_segment(0xDB, std::string(1, '\0') + std::string(64, '\1'));
  std::string frame = '\x08' + two_bytes(height) + two_bytes(width) + static_cast<char>(components);
  for (int i = 1; i <= components; ++i) {
    frame += static_cast<char>(i) + std::string("\x11\0", 2);
  }
  head += jpeg_segment(0xC2, frame);
  const std::string one_code = '\1' + std::string(15, '\0');
  return head + jpeg_segment(0xC4, '\0' + one_code + '\0') + jpeg_segment(0xC4, '\x10' + one_code + '\xE0');
}

/// The first coefficients of `blocks` blocks of each component: all 0.
inline std::string jpeg_first_scan(int64_t blocks, int components = 1) {
  std::string scan(1, static_cast<char>(components));
  for (int i = 1; i <= components; ++i) {
    scan += static_cast<char>(i) + std::string(1, '\0');
  }
  return jpeg_segment(0xDA, scan + std::string(3, '\0')) +
         std::string(static_cast<size_t>((components * blocks + 7) / 8), '\0');
}

/// The others: none. Some bytes, however many blocks there are.
inline std::string jpeg_empty_scan(int64_t blocks) {
  constexpr int64_t kMostAtOnce = 32'767;
  JpegBits bits;
  for (int64_t done = 0; done < blocks; done += kMostAtOnce) {
    bits.put(0x3FFF, 15);
  }
  return jpeg_segment(0xDA, std::string("\1\1\0\1\x3F\0", 6)) + bits.take();
}

/// A whole progressive JPEG: a grey of 128 everywhere, with `scans` scans.
inline std::string flat_jpeg(int64_t height, int64_t width, int scans) {
  const int64_t blocks = (height + 7) / 8 * ((width + 7) / 8);
  std::string file = jpeg_head(height, width) + jpeg_first_scan(blocks);
  const std::string more = jpeg_empty_scan(blocks);
  for (int i = 1; i < scans; ++i) {
    file += more;
  }
  return file + "\xFF\xD9";
}

}  // namespace norma::test
