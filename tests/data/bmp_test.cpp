#include "data/image_file.h"
#include "files.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

using namespace norma;
using namespace norma::data;
using norma::test::error_of;
using norma::test::TemporaryFolder;
using norma::test::write_file;

namespace {

using Bytes = std::vector<uint8_t>;

std::string from_hex(const std::string& digits) {
  std::string bytes;
  for (size_t i = 0; i < digits.size(); i += 2) {
    bytes.push_back(static_cast<char>(std::stoi(digits.substr(i, 2), nullptr, 16)));
  }
  return bytes;
}

// Written by Pillow 13: Image.fromarray(a).save(file, "BMP") with a[y, x] = (90 x, 200 y, 128) of 2 x 3 pixels; with
// putalpha(7); of mode P, [[0, 1, 2], [3, 2, 1]] with the palette (10, 20, 30), (40, 50, 60), …; and of mode 1,
// [[0, 1, 0], [1, 1, 0]].
const std::string kColor = from_hex(
    "424d4e0000000000000036000000280000000300000002000000010018000000000018000000c40e0000c40e00000000"
    "00000000000080c80080c85a80c8b400000080000080005a8000b4000000");
const std::string kTransparent = from_hex(
    "424d4e0000000000000036000000280000000300000002000000010020000000000018000000c40e0000c40e00000000"
    "00000000000080c8000780c85a0780c8b4078000000780005a078000b407");
const std::string kPalette = from_hex(
    "424d4e0000000000000046000000280000000300000002000000010008000000000008000000c40e0000c40e00000400"
    "0000040000001e140a003c3228005a504600786e64000302010000010200");
const std::string kTwoColors = from_hex(
    "424d46000000000000003e000000280000000300000002000000010001000000000008000000c40e0000c40e00000200"
    "00000200000000000000ffffff00c000000040000000");

void put(std::string& bytes, size_t at, int64_t value, size_t count) {
  bytes.resize(std::max(bytes.size(), at + count));
  for (size_t i = 0; i < count; ++i) {
    bytes[at + i] = static_cast<char>(value >> (8 * i));
  }
}

struct Header {
  int64_t width = 1;
  int64_t height = 1;
  int64_t bits = 24;
  int64_t compression = 0;
  int64_t size = 40;    ///< of the second header
  int64_t pixels = 54;  ///< where they begin
  int64_t colors = 0;
};

/// The headers of a BMP with these numbers, and what follows.
std::string bmp(const Header& header, const std::string& rest) {
  std::string bytes = "BM";
  put(bytes, 10, header.pixels, 4);
  put(bytes, 14, header.size, 4);
  if (header.size == 12) {
    put(bytes, 18, header.width, 2);
    put(bytes, 20, header.height, 2);
    put(bytes, 22, 1, 2);
    put(bytes, 24, header.bits, 2);
  } else {
    put(bytes, 18, header.width, 4);
    put(bytes, 22, header.height, 4);
    put(bytes, 26, 1, 2);
    put(bytes, 28, header.bits, 2);
    put(bytes, 30, header.compression, 4);
    put(bytes, 46, header.colors, 4);
    put(bytes, 50, 0, 4);
  }
  return bytes + rest;
}

Bytes pixels_of(const std::string& bytes, int64_t channels = 3) {
  Image image;
  decode_image(bytes, "x.bmp", channels, image);
  return image.pixels;
}

std::string error_in(const std::string& bytes) {
  return error_of([&] { pixels_of(bytes); });
}

}  // namespace

TEST_CASE("bmp: what Pillow wrote, in color and grey") {
  const Bytes color = {0, 0, 128, 90, 0, 128, 180, 0, 128, 0, 200, 128, 90, 200, 128, 180, 200, 128};
  CHECK(pixels_of(kColor) == color);
  CHECK(pixels_of(kTransparent) == color);
  CHECK(pixels_of(kPalette) == Bytes{10, 20, 30, 40, 50, 60, 70, 80, 90, 100, 110, 120, 70, 80, 90, 40, 50, 60});
  CHECK(pixels_of(kTwoColors, 1) == Bytes{0, 255, 0, 255, 255, 0});
  CHECK(pixels_of(kPalette, 1)[0] == (10 * 77 + 20 * 150 + 30 * 29) / 256);
  const TemporaryFolder folder;
  write_file(folder / "x.jpg", kColor);  // the name says nothing
  const Image image = read_image(folder / "x.jpg");
  CHECK(image.height == 2);
  CHECK(image.width == 3);
}

TEST_CASE("bmp: rows from the top, 16 bits, masks, 4 bits, the header of OS/2") {
  CHECK(pixels_of(bmp({.height = -2}, std::string("\1\2\3\0\4\5\6\0", 8))) == Bytes{3, 2, 1, 6, 5, 4});
  // 5 bits each: 31, 16 and 1 of 31.
  CHECK(pixels_of(bmp({.bits = 16}, std::string("\x01\x7E", 2))) == Bytes{255, 131, 8});
  const std::string masks = from_hex("00f80000e00700001f000000");
  CHECK(pixels_of(bmp({.bits = 16, .compression = 3, .pixels = 66}, masks + "\xE0\x07")) == Bytes{0, 255, 0});
  const std::string reversed = from_hex("ff00000000ff00000000ff00");
  CHECK(pixels_of(bmp({.bits = 32, .compression = 3, .pixels = 66}, reversed + "\1\2\3\4")) == Bytes{1, 2, 3});
  const std::string sixteen_greys = [] {
    std::string bytes;
    for (int i = 0; i < 16; ++i) {
      bytes += std::string(3, static_cast<char>(i)) + '\0';
    }
    return bytes;
  }();
  CHECK(pixels_of(bmp({.width = 3, .bits = 4, .pixels = 118}, sixteen_greys + "\xA5\xF0"), 1) == Bytes{10, 5, 15});
  CHECK(pixels_of(bmp({.size = 12, .pixels = 26}, "\1\2\3")) == Bytes{3, 2, 1});
  CHECK(pixels_of(bmp({.bits = 1, .size = 12, .pixels = 32}, std::string("\1\2\3\4\5\6\x80", 7))) == Bytes{6, 5, 4});
  // A header of 124 bytes, as most programs write today.
  std::string rest(84, '\0');
  rest.append("\1\2\3");
  CHECK(pixels_of(bmp({.size = 124, .pixels = 138}, rest)) == Bytes{3, 2, 1});
}

TEST_CASE("bmp: cut off anywhere it is damaged, and never made up") {
  const std::string damaged = "image: x.bmp: damaged: ";
  // The bytes that fill up the last row, of 3 pixels, are no part of the image.
  for (const auto& [whole, filling] :
       std::vector<std::pair<std::string, size_t>>{{kColor, 3}, {kTransparent, 0}, {kPalette, 1}, {kTwoColors, 3}}) {
    for (size_t length = 19; length + filling < whole.size(); ++length) {
      CHECK_MESSAGE(error_in(whole.substr(0, length)).starts_with(damaged), length);
    }
    CHECK(pixels_of(whole.substr(0, whole.size() - filling)) == pixels_of(whole));
  }
  CHECK(error_in(kColor.substr(0, kColor.size() - 4)) == damaged + "it ends early");
  CHECK(error_in(bmp({.width = 100, .height = 100}, "")) == damaged + "it ends early");
}

TEST_CASE("bmp: headers that make no sense") {
  const std::string damaged = "image: x.bmp: damaged: ";
  CHECK(error_in(bmp({.size = 39}, "123")) == damaged + "expected a header of 12 or 40 to 1024 bytes, got 39");
  CHECK(error_in(bmp({.bits = 2}, "123")) == damaged + "expected 1, 4, 8, 16, 24 or 32 bits a pixel, got 2");
  CHECK(error_in(bmp({.pixels = 14}, "123")) ==
        damaged + "expected pixels behind the header's 54 bytes, got them at 14");
  CHECK(error_in(bmp({.pixels = 0xFFFFFFFF}, "123")) == damaged + "it ends early");
  CHECK(error_in(bmp({.width = 0}, "123")) == damaged + "expected at least 1 pixel, got 1 x 0");
  CHECK(error_in(bmp({.width = -1}, "123")) == damaged + "expected at least 1 pixel, got 1 x -1");
  CHECK(error_in(bmp({.width = 30'000, .height = -30'000}, "123")) ==
        "image: x.bmp: expected at most 134217728 pixels, got 30000 x 30000");
  CHECK(error_in(bmp({.height = -2'147'483'648}, "123")).find("got 2147483648 x 1") != std::string::npos);
  CHECK(error_in(bmp({.bits = 8, .compression = 1}, "123")) ==
        "image: x.bmp: expected a BMP without compression, got one with number 1");
  CHECK(error_in(bmp({.bits = 16, .compression = 3, .pixels = 66}, from_hex("0500000000f800001f00000012"))) ==
        damaged + "expected a mask of bits in a row, got 0x5");
  // A palette of two colors, and a pixel of the third.
  CHECK(error_in(bmp({.bits = 8, .pixels = 62, .colors = 2}, "12345678\2")) ==
        damaged + "a pixel has color 2 of a palette of 2");
  CHECK(pixels_of(bmp({.bits = 8, .pixels = 62, .colors = 2}, "12345678\1")) == Bytes{'7', '6', '5'});
}
