#include "data/image_file.h"

#include "core/factory.h"
#include "data/augment/geometry.h"
#include "data/image_formats.h"
#include "data/resize.h"
#include "data/transform.h"
#include "files.h"

#include <zlib.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

using namespace norma;
using namespace norma::data;
using norma::test::error_of;
using norma::test::read_file;
using norma::test::TemporaryFolder;
using norma::test::write_file;

namespace {

std::string from_hex(const std::string& digits) {
  std::string bytes;
  for (size_t i = 0; i < digits.size(); i += 2) {
    bytes.push_back(static_cast<char>(std::stoi(digits.substr(i, 2), nullptr, 16)));
  }
  return bytes;
}

// Written by Pillow: Image.fromarray(a).save(file, "JPEG", quality=90, subsampling=0, optimize=True) with a of
// numpy.mgrid[0:10, 0:13]: red x * 20, green y * 25, blue 128; then with progressive=True; then red as a PNG of 16
// bits.
const std::string kBaseline = from_hex(
    "ffd8ffe000104a46494600010100000100010000ffdb0043000302020302020303030304030304050805050404050a07"
    "0706080c0a0c0c0b0a0b0b0d0e12100d0e110e0b0b1016101113141515150c0f171816141812141514ffdb0043010304"
    "0405040509050509140d0b0d141414141414141414141414141414141414141414141414141414141414141414141414"
    "1414141414141414141414141414ffc0001108000a000d03011100021101031101ffc400140001000000000000000000"
    "00000000000007ffc40021100000040603010000000000000000000000010306040823243392144251a1ffc400170100"
    "03010000000000000000000000000006070809ffc4002111000102060203000000000000000000000002060104212231"
    "320305121424ffda000c03010002110311003f001164cbce3b6f80fa7dcd9b81f68bc35b8746f4bcd915b79d42fa65cd"
    "7ec583d23c3e6d8606442a14e8a7a90099f5aab5329da3c8bb6b11c9bf0a8f0b0a7a905f4cad5e792c1e93917eb6627f"
    "ffd9");
const std::string kProgressive = from_hex(
    "ffd8ffe000104a46494600010100000100010000ffdb0043000302020302020303030304030304050805050404050a07"
    "0706080c0a0c0c0b0a0b0b0d0e12100d0e110e0b0b1016101113141515150c0f171816141812141514ffdb0043010304"
    "0405040509050509140d0b0d141414141414141414141414141414141414141414141414141414141414141414141414"
    "1414141414141414141414141414ffc2001108000a000d03011100021101031101ffc400140001000000000000000000"
    "00000000000006ffc40017010003010000000000000000000000000005060708ffda000c03010002100310000001107c"
    "7ba5eb0300994dcafd87ffc4001a100001050100000000000000000000000004000102061222ffda0008010100010502"
    "0abc87af7014590f16c7ffc4001c1100010403010000000000000000000000000102040513213123ffda000801030101"
    "3f01a8b8e6c8571e7d2a1cba2139719fffc4001b11000300020300000000000000000000000001030511213161ffda00"
    "08010201013f01be4fd2993e7b2ed946f67fffc400191000020301000000000000000000000000000121223132ffda00"
    "08010100063f025539142311ffc40016100101010000000000000000000000000000d1f1ffda0008010100013f216622"
    "748d3fffda000c030100020003000000100d8fffc40017110003010000000000000000000000000000014110ffda0008"
    "010301013f10c0aa4cb6cfffc4001811000203000000000000000000000000000021103141ffda0008010201013f10ba"
    "14f3374fffc400181001000301000000000000000000000000002171d1f1ffda0008010100013f10e0a2d4ca0c10ffd9");
const std::string kSixteenBits = from_hex(
    "89504e470d0a1a0a0000000d494844520000000d0000000a10000000001a15575b0000001449444154789c63646010c1"
    "0198187082e12a0500eab901f40e9a29460000000049454e44ae426082");

/// The image that these files show.
Image gradients() {
  Image image{.height = 10, .width = 13, .channels = 3, .pixels = {}};
  for (int y = 0; y < 10; ++y) {
    for (int x = 0; x < 13; ++x) {
      for (const int value : {x * 20, y * 25, 128}) {
        image.pixels.push_back(static_cast<uint8_t>(value));
      }
    }
  }
  return image;
}

int largest_difference(const Image& a, const Image& b) {
  REQUIRE(a.pixels.size() == b.pixels.size());
  int largest = 0;
  for (size_t i = 0; i < a.pixels.size(); ++i) {
    largest = std::max(largest, std::abs(int{a.pixels[i]} - int{b.pixels[i]}));
  }
  return largest;
}

const bool kReadsJpeg = read_kinds().find("JPEG") != std::string::npos;

/// 20 x 30 grey pixels, (37 y + 11 x²) mod 256.
Image noise() {
  Image image{.height = 20, .width = 30, .channels = 1, .pixels = {}};
  for (int y = 0; y < 20; ++y) {
    for (int x = 0; x < 30; ++x) {
      image.pixels.push_back(static_cast<uint8_t>((37 * y + 11 * x * x) % 256));
    }
  }
  return image;
}

}  // namespace

TEST_CASE("image: JPEG baseline and progressive, color and grey" * doctest::skip(!kReadsJpeg)) {
  const TemporaryFolder folder;
  for (const std::string& bytes : {kBaseline, kProgressive}) {
    write_file(folder / "picture.jpg", bytes);
    const Image image = read_image(folder / "picture.jpg");
    CHECK(image.height == 10);
    CHECK(image.width == 13);
    CHECK(largest_difference(image, gradients()) <= 8);  // Pillow reads 7
    const Image grey = read_image(folder / "picture.jpg", 1);
    CHECK(grey.pixels.size() == 130);
    const double luminance = 0.299 * 240 + 0.587 * 225 + 0.114 * 128;
    CHECK(std::abs(grey.at(9, 12, 0) - luminance) <= 8);
  }
  // What follows the end does not matter.
  write_file(folder / "picture.jpg", kBaseline + "more");
  CHECK(read_image(folder / "picture.jpg").width == 13);
}

TEST_CASE("image: PNG out and in is the same, and 16 bits become 8") {
  const TemporaryFolder folder;
  write_png(folder / "a.png", gradients());
  const Image image = read_image(folder / "a.png");
  CHECK(image.height == 10);
  CHECK(image.pixels == gradients().pixels);
  CHECK(folder.names() == std::vector<std::string>{"a.png"});
  write_png(folder / "grey.png", noise());
  CHECK(read_image(folder / "grey.png", 1).pixels == noise().pixels);
  const Image color = read_image(folder / "grey.png", 3);
  CHECK(color.at(3, 4, 0) == noise().at(3, 4, 0));
  CHECK(color.at(3, 4, 2) == noise().at(3, 4, 0));
  write_file(folder / "wide.png", kSixteenBits);
  const Image narrow = read_image(folder / "wide.png", 1);
  for (int x = 0; x < 13; ++x) {
    CHECK(int{narrow.at(5, x, 0)} == 20 * x);
  }
}

TEST_CASE("image: what is no image, or damaged, has a text that names the file") {
  const TemporaryFolder folder;
  const std::string file = (folder / "x.jpg").string();
  const auto error = [&](const std::string& bytes) {
    write_file(file, bytes);
    return error_of([&] { read_image(file); });
  };
  const std::string none = "image: " + file + ": expected a " + read_kinds() + " image, got ";
  CHECK(error("just a text\n") == none + "a text");
  CHECK(error("BMW is no picture") == none + "a text");
  CHECK(error("") == none + "an empty file");
  for (size_t missing = 13; missing < 60; ++missing) {  // the last 12 bytes of a PNG say nothing but that it ends
    CHECK_MESSAGE(error(kSixteenBits.substr(0, kSixteenBits.size() - missing)).starts_with("image: " + file + ": "),
                  missing);
  }
  // One wrong bit in the pixels or the header of a PNG.
  for (const size_t at : {24, 42, 50}) {
    std::string wrong = kSixteenBits;
    wrong[at] = static_cast<char>(wrong[at] ^ 1);
    CHECK_MESSAGE(error(wrong).starts_with("image: " + file + ": damaged: "), error(wrong));
  }
  CHECK(error(kSixteenBits.substr(0, kSixteenBits.size() - 13)) == "image: " + file + ": damaged: it ends early");
  // The header of a PNG of 30000 x 30000 pixels.
  std::string huge = kSixteenBits;
  huge.replace(16, 8, std::string("\0\0\x75\x30\0\0\x75\x30", 8));
  const std::string too_many = "image: " + file + ": expected at most 134217728 pixels, got 30000 x 30000";
  CHECK(error(huge) == too_many);
  huge.replace(24, 2, "\x08\x02");  // in colors of 8 bits stb refuses it by itself, without a word
  CHECK(error(huge) == too_many);
  CHECK(error(huge.substr(0, 33)) == too_many);
  huge.replace(20, 4, 4, '\0');
  CHECK(error(huge) == "image: " + file + ": damaged: expected at least 1 pixel, got 0 x 30000");
  CHECK(error(kSixteenBits.substr(0, 8)) == "image: " + file + ": damaged: it ends early");
  CHECK(error_of([&] { read_image(folder / "none.png"); }) ==
        "image: cannot open " + (folder / "none.png").string() + ": No such file or directory");
  CHECK(error_of([&] { read_image(file, 2); }) == "image: channels: expected 1 or 3, got 2");
  CHECK(error_of([&] { write_png(folder / "x.png", {}); }) ==
        "image: image: expected pixels of 1 or 3 channels, got 0 x 0 of 3");
  CHECK(error_of([&] { write_png(folder / "x.png", {.height = 1, .width = 2, .channels = 1, .pixels = {1}}); }) ==
        "image: image: expected 2 bytes, got 1");
  CHECK(folder.names() == std::vector<std::string>{"x.jpg"});
}

TEST_CASE("image: damaged JPEGs have a text that names the file" * doctest::skip(!kReadsJpeg)) {
  const TemporaryFolder folder;
  const std::string file = (folder / "x.jpg").string();
  const auto error = [&](const std::string& bytes) {
    write_file(file, bytes);
    return error_of([&] { read_image(file); });
  };
  CHECK(error(kBaseline.substr(0, 20)).starts_with("image: " + file + ": damaged: "));
  CHECK(error("\xFF\xD8").starts_with("image: " + file + ": damaged: "));
  // However much is missing: all that can be read is never made up in grey.
  for (size_t missing = 1; missing < 150; ++missing) {
    CHECK_MESSAGE(error(kBaseline.substr(0, kBaseline.size() - missing)).starts_with("image: " + file + ": "), missing);
    CHECK_MESSAGE(error(kProgressive.substr(0, kProgressive.size() - missing)).starts_with("image: " + file + ": "),
                  missing);
  }
  CHECK(error(kBaseline.substr(0, kBaseline.size() - 2)) == "image: " + file + ": damaged: it ends early");
  // Damaged Huffman tables: all codes of each length, more values than the segment has, three codes of one bit.
  for (const std::string& whole : {kBaseline, kProgressive}) {
    for (const std::string& counts :
         {std::string(16, '\xFF'), std::string(15, '\0') + '\xFF', std::string("\3", 1) + std::string(15, '\0')}) {
      std::string wrong = whole;
      wrong.replace(whole.find("\xFF\xC4") + 5, 16, counts);
      CHECK_MESSAGE(error(wrong).starts_with("image: " + file + ": damaged: "), error(wrong));
    }
  }
  std::string flat = kBaseline;
  flat.replace(flat.find("\xFF\xC0") + 5, 2, 2, '\0');  // behind the segment's length and the bits of a sample
  CHECK(error(flat).starts_with("image: " + file + ": damaged: "));
}

TEST_CASE("image: a PNG whose pixels are fewer than its size is refused, and what is more stays packed") {
  const TemporaryFolder folder;
  const auto big_endian = [](uint32_t x) {
    return std::string{static_cast<char>(x >> 24), static_cast<char>(x >> 16), static_cast<char>(x >> 8),
                       static_cast<char>(x)};
  };
  const auto chunk = [&](const std::string& type, const std::string& content) {
    const std::string checked = type + content;
    const auto sum = crc32_z(0, reinterpret_cast<const Bytef*>(checked.data()), checked.size());
    return big_endian(static_cast<uint32_t>(content.size())) + checked + big_endian(static_cast<uint32_t>(sum));
  };
  // Zeros: one block is compressed, and comes as often as it takes.
  const auto compressed = [](size_t count) {
    constexpr size_t kBlock = size_t{1} << 20;
    const auto deflated = [](size_t zeros, int flush) {
      std::vector<Bytef> in(zeros);
      std::string bytes(size_t{1} << 16, '\0');
      z_stream stream = {};
      REQUIRE(deflateInit2(&stream, Z_BEST_COMPRESSION, Z_DEFLATED, -MAX_WBITS, 9, Z_DEFAULT_STRATEGY) == Z_OK);
      stream.next_in = in.data();
      stream.avail_in = static_cast<uInt>(zeros);
      stream.next_out = reinterpret_cast<Bytef*>(bytes.data());
      stream.avail_out = static_cast<uInt>(bytes.size());
      deflate(&stream, flush);
      REQUIRE(stream.avail_in == 0);
      deflateEnd(&stream);
      return bytes.substr(0, bytes.size() - stream.avail_out);
    };
    const std::string block = deflated(kBlock, Z_FULL_FLUSH);
    std::string bytes = "\x78\xDA";
    for (size_t i = 0; i < count / kBlock; ++i) {
      bytes += block;
    }
    bytes += deflated(count % kBlock, Z_FINISH);
    const auto sum = static_cast<uint32_t>(count % 65521 << 16 | 1);  // Adler-32 of zeros
    return bytes + std::string{static_cast<char>(sum >> 24), static_cast<char>(sum >> 16), static_cast<char>(sum >> 8),
                               static_cast<char>(sum)};
  };
  // `side` pixels square of 8 bits' grey; the pixels in chunks of 1000 bytes.
  const auto png = [&](uint32_t side, const std::string& pixels, char interlaced) {
    std::string bytes = "\x89PNG\r\n\x1A\n" +
                        chunk("IHDR", big_endian(side) + big_endian(side) + std::string("\x08\0\0\0", 4) + interlaced);
    for (size_t i = 0; i < pixels.size(); i += 1000) {
      bytes += chunk("IDAT", pixels.substr(i, 1000));
    }
    write_file(folder / "x.png", bytes + chunk("IEND", ""));
    return error_of([&] { read_image(folder / "x.png"); });
  };
  const std::string bomb = compressed(size_t{500} << 20);
  CHECK(png(100, bomb, '\0') == "no error");
  CHECK(png(9, bomb, '\1') == "no error");
  // A second header, which claims more, does not raise the bound.
  const std::string second = chunk("IHDR", big_endian(60'000) + big_endian(60'000) + std::string("\x10\x06\0\0\0", 5));
  write_file(folder / "x.png", "\x89PNG\r\n\x1A\n" +
                                   chunk("IHDR", big_endian(9) + big_endian(9) + std::string("\x08\0\0\0\0", 5)) +
                                   second + chunk("IDAT", bomb) + chunk("IEND", ""));
  CHECK(error_of([&] { read_image(folder / "x.png"); }) ==
        "image: " + (folder / "x.png").string() + ": damaged: IHDR: out of place");
  // Stored pixels of as many bytes, none too many: the error is that of no picture. And a small one with too many.
  std::string stored(size_t{600} * 601, '\0');
  for (size_t i = 0; i < stored.size(); ++i) {
    stored[i] = i % 601 == 0 ? '\0' : static_cast<char>(i * i * 2654435761U >> 13);
  }
  std::string out(compressBound(stored.size()), '\0');
  uLongf size = out.size();
  REQUIRE(compress(reinterpret_cast<Bytef*>(out.data()), &size, reinterpret_cast<const Bytef*>(stored.data()),
                   stored.size()) == Z_OK);
  CHECK(png(600, out.substr(0, size), '\0') == "no error");
  CHECK(read_image(folder / "x.png").at(3, 4, 0) == static_cast<uint8_t>(stored[3 * 601 + 5]));
  std::string wrong = out.substr(0, size);
  wrong[2] = '\x07';  // a kind of block that there is not
  CHECK(png(600, wrong, '\0') == "image: " + (folder / "x.png").string() + ": damaged: IDAT: invalid block type");
  CHECK(png(2, compressed(5000), '\0') == "no error");
  // Fewer than its size.
  const std::string damaged = "image: " + (folder / "x.png").string() + ": damaged: ";
  CHECK(png(300, compressed(80'000), '\0') == damaged + "Not enough image data");
  CHECK(png(3, compressed(8), '\0') == damaged + "Not enough image data");
  // A few kilobytes that claim 100 million take no memory for them.
  for (const char interlaced : {'\0', '\1'}) {
    CHECK(png(10'000, compressed(1 << 20), interlaced) == damaged + "it ends early");
    Image image;
    CHECK(error_of([&] { decode_image(read_file(folder / "x.png"), "x", 3, image); }) ==
          "image: x: damaged: it ends early");
    CHECK(image.pixels.capacity() == 0);
  }
}

TEST_CASE("image: raw PNM of 8 and 16 bits and of other maxima, in grey and color") {
  const TemporaryFolder folder;
  const auto pixels = [&](const std::string& bytes, int64_t channels) {
    write_file(folder / "x.ppm", bytes);
    return read_image(folder / "x.ppm", channels).pixels;
  };
  using Bytes = std::vector<uint8_t>;
  CHECK(pixels(std::string("P5\n2 1\n255\n\x07\xFF"), 1) == Bytes{7, 255});
  CHECK(pixels(std::string("P5 2 # wide\n#\n1 15\n\x0F\x07 more"), 3) == Bytes{255, 255, 255, 119, 119, 119});
  CHECK(pixels(std::string("P5\n2 1\n65535\n\x80\x00\x00\xFF", 17), 3) == Bytes{128, 128, 128, 1, 1, 1});
  CHECK(pixels(std::string("P6\n1 1\n65535\n\xFF\xFF\x80\x00\x00\x00", 19), 3) == Bytes{255, 128, 0});
  CHECK(pixels(std::string("P6\n1 1\n255\n\xFF\x00\x00", 14), 1) == Bytes{76});
  CHECK(pixels(std::string("P5\n1 1\n7\n\xFF"), 1) == Bytes{255});
  write_file(folder / "wide.pgm", "P5\n500 500\n65535\n" + std::string(500'000, 'x'));
  CHECK(read_image(folder / "wide.pgm").pixels == Bytes(750'000, 120));  // 0x7878 of 65535 are 120 of 255
  const auto error = [&](const std::string& bytes) { return error_of([&] { pixels(bytes, 3); }); };
  const std::string damaged = "image: " + (folder / "x.ppm").string() + ": damaged: ";
  CHECK(error("P6\n64 64\n255\n") == damaged + "it ends early");
  CHECK(error("P5\n2 2\n65535\n1234567") == damaged + "it ends early");
  CHECK(error("P5\n2 1\n255") == damaged + "it ends early");
  CHECK(error("P6\n0 5\n255\n") == damaged + "expected at least 1 pixel, got 5 x 0");
  for (const char* header : {"P5\n", "P5\n1 1\n", "P5\n-1 1\n255\n", "P5\n1 1\n0\n1", "P5\n1 1\n65536\n12",
                             "P6\n99999999999999999999 1 255\n1", "P5 # no end"}) {
    CHECK_MESSAGE(error(header) == damaged + "expected width, height and a maximum from 1 to 65535", header);
  }
  CHECK(error("P5\n30000 30000\n255\n").ends_with("expected at most 134217728 pixels, got 30000 x 30000"));
  CHECK(error("P5\n2000000000 2000000000\n255\n").find("expected at most") != std::string::npos);
}

TEST_CASE("image: other kinds of files are refused by name, whole or not") {
  // What stb would make pixels of without being sure: the first pixels of a TGA.
  const std::string tga("\0\0\2\0\0\0\0\0\0\0\0\0\x40\0\x40\0\x18\0", 18);
  for (const auto& [bytes, kind] :
       std::vector<std::pair<std::string, std::string>>{{tga, "something else"},
                                                        {tga + std::string(3 * 64 * 64, 'x'), "something else"},
                                                        {std::string("\0\0\0\x1C"
                                                                     "ftypavif",
                                                                     12),
                                                         "an AVIF or HEIC image, or a film"},
                                                        {std::string("\0\0\0\x0CJXL \r\n", 10), "a JPEG XL image"},
                                                        {std::string("\0\0\0\x0CjP  \r\n", 10), "a JPEG 2000 image"},
                                                        {"8BPS", "a Photoshop image"},
                                                        {"#?RADIANCE\n", "an HDR image"},
                                                        {"P3\n1 1\n255\n1 2 3\n", "a PNM image of the kind P3"},
                                                        {"<svg/>", "a text"},
                                                        {"caf\xC3\xA9", "a text"},
                                                        {"P", "a text"}}) {
    Image image;
    CHECK(error_of([&, &bytes = bytes] { decode_image(bytes, "x.png", 3, image); }) ==
          "image: x.png: expected a " + read_kinds() + " image, got " + kind);
  }
  // Those of which the build may lack the library, cut off.
  const std::string all = read_kinds();
  CHECK(all.find("PNG, BMP") != std::string::npos);
  for (const auto& [bytes, kind, package] : std::vector<std::array<std::string, 3>>{
           {std::string("GIF89a\x40\0\x40\0\0\0\0,\0\0\0\0\x40\0\x40\0\0\2\2", 25), "GIF", "libgif-dev"},
           {std::string("II*\0\x08\0\0\0", 8), "TIFF", "libtiff-dev"},
           {std::string("MM\0*\0\0\0\x08", 8), "TIFF", "libtiff-dev"},
           {std::string("RIFF\x10\0\0\0WEBPVP8 ", 16), "WebP", "libwebp-dev"}}) {
    Image image;
    CHECK(error_of([&, &bytes = bytes] { decode_image(bytes, "x.png", 3, image); })
              .starts_with(all.find(kind) != std::string::npos
                               ? "image: x.png: damaged: "
                               : "image: x.png: expected a " + all + " image, got a " + kind + " image (a build with " +
                                     package + " reads it)"));
  }
}

TEST_CASE("image: to a tensor and back") {
  const Image image = gradients();
  const Tensor x = image_to_tensor(image, kImageNetMean, kImageNetStd);
  CHECK(x.sizes() == Sizes{1, 3, 10, 13});
  const std::vector<double> values = x.to_vector<double>();
  CHECK(values[4 * 13 + 6] == doctest::Approx((120.0 / 255 - 0.485) / 0.229).epsilon(1e-6));        // red
  CHECK(values[130 + 4 * 13 + 6] == doctest::Approx((100.0 / 255 - 0.456) / 0.224).epsilon(1e-6));  // green
  CHECK(values[259 + 130] == doctest::Approx((128.0 / 255 - 0.406) / 0.225).epsilon(1e-6));         // the last blue
  CHECK(tensor_to_image(image_to_tensor(image)).pixels == image.pixels);
  const Image cut = tensor_to_image(from_vector<float>({-1, 2, std::nanf(""), 0.5F}, {1, 2, 2}));
  CHECK(cut.pixels == std::vector<uint8_t>{0, 255, 0, 128});
  CHECK(error_of([&] {
          tensor_to_image(zeros({2, 3, 3}));
        }) == "tensor_to_image: x: expected the sizes (C, H, W) or (1, C, H, W) with 1 or 3 channels, got [2, 3, 3]");
  CHECK(error_of([&] { image_to_tensor({}); }) ==
        "image_to_tensor: image: expected pixels of 1 or 3 channels, got 0 x 0 of 3");
}

TEST_CASE("resize: the bytes of Pillow") {
  // a = ((37 * y + 11 * x * x) % 256).astype(numpy.uint8); Image.fromarray(a).resize((width, height), Image.BILINEAR)
  const std::vector<uint8_t> bilinear = {109, 132, 132, 132, 128, 124, 106, 125, 130, 136, 119, 121, 127, 134,
                                         135, 123, 128, 140, 134, 140, 125, 126, 106, 130, 118, 131, 122, 116,
                                         124, 135, 142, 117, 141, 121, 134, 147, 121, 131, 103, 125};
  const std::vector<uint8_t> bicubic = {107, 136, 130, 134, 129, 125, 100, 126, 129, 136, 118, 117, 128, 136,
                                        138, 121, 128, 143, 133, 144, 123, 127, 100, 133, 115, 133, 121, 111,
                                        124, 137, 147, 113, 143, 117, 135, 151, 119, 132, 96,  127};
  CHECK(resize(noise(), 5, 8, ResizeFilter::bilinear).pixels == bilinear);
  CHECK(resize(noise(), 5, 8, ResizeFilter::bicubic).pixels == bicubic);
  const auto sum = [](const Image& image) { return std::accumulate(image.pixels.begin(), image.pixels.end(), 0); };
  CHECK(sum(resize(noise(), 24, 33, ResizeFilter::bilinear)) == 99994);
  CHECK(sum(resize(noise(), 24, 33, ResizeFilter::bicubic)) == 99903);
}

TEST_CASE("resize: channels are apart, sizes may stay, and sizes that are none are refused") {
  Image color{.height = 20, .width = 30, .channels = 3, .pixels = {}};
  for (const uint8_t value : noise().pixels) {
    color.pixels.insert(color.pixels.end(), {value, static_cast<uint8_t>(255 - value), 7});
  }
  const Image grey = resize(noise(), 7, 11);
  const Image small = resize(color, 7, 11);
  for (int64_t y = 0; y < 7; ++y) {
    for (int64_t x = 0; x < 11; ++x) {
      CHECK(small.at(y, x, 0) == grey.at(y, x, 0));
      CHECK(std::abs(small.at(y, x, 1) + grey.at(y, x, 0) - 255) <= 1);  // halves are rounded up in both
      CHECK(int{small.at(y, x, 2)} == 7);
    }
  }
  CHECK(resize(color, 20, 30).pixels == color.pixels);
  CHECK(error_of([&] { resize(color, 0, 3); }) ==
        "resize: sizes: expected at least 1 and at most 134217728 pixels, got 0 x 3");
  CHECK(error_of([&] { resize({}, 1, 3); }) == "resize: image: expected pixels of 1 or 3 channels, got 0 x 0 of 3");
}

TEST_CASE("resize_window: crops, resizes and mirrors at once") {
  Image image;
  image.set_size(23, 31, 3);
  for (size_t i = 0; i < image.pixels.size(); ++i) {
    image.pixels[i] = static_cast<uint8_t>(i * i * 37 % 251);
  }
  const std::vector<Rectangle> windows = {{.height = 23, .width = 31},
                                          {.top = 22, .left = 30, .height = 1, .width = 1},
                                          {.top = 5, .left = 3, .height = 11, .width = 7},
                                          {.top = 12, .left = 20, .height = 11, .width = 11},
                                          {.top = 0, .left = 24, .height = 23, .width = 7}};
  Image got;
  for (const auto& [top, left, height, width] : windows) {
    for (const ResizeFilter filter : {ResizeFilter::bilinear, ResizeFilter::bicubic}) {
      for (const int flips : {0, 1, 2, 3}) {
        resize_window(image, {top, left, height, width}, 11, 7, filter, {.across = flips % 2 == 1, .down = flips > 1},
                      got);
        Image expected = resize(crop(image, top, left, height, width), 11, 7, filter);
        expected = flips % 2 == 1 ? hflip(expected) : expected;
        expected = flips > 1 ? vflip(expected) : expected;
        CHECK(got.pixels == expected.pixels);
      }
    }
  }
  CHECK(error_of([&] {
          resize_window(image, {1, 0, 23, 31}, 4, 4, ResizeFilter::bilinear, {}, got);
        }) == "resize: expected a window inside 23 x 31 pixels, got 23 x 31 from row 1 and column 0 on");
}

TEST_CASE("resize_and_crop: the middle of the image with its shorter side resized") {
  const Image cropped = resize_and_crop(noise(), 10, 7);
  const Image whole = resize(noise(), 10, 15);
  REQUIRE(cropped.pixels.size() == 49);
  for (int64_t y = 0; y < 7; ++y) {
    for (int64_t x = 0; x < 7; ++x) {
      CHECK(cropped.at(y, x, 0) == whole.at(y + 2, x + 4, 0));  // 1.5 rows above: 2, the even number
    }
  }
  // Upwards too, with either filter, where the crop touches the border and where it does not.
  for (const auto& [size, crop_size] : {std::pair(20, 20), std::pair(31, 17), std::pair(47, 46), std::pair(3, 1)}) {
    for (const ResizeFilter filter : {ResizeFilter::bilinear, ResizeFilter::bicubic}) {
      const Image resized = resize(noise(), size, 30 * size / 20, filter);
      const int64_t left = std::lrint(static_cast<double>(resized.width - crop_size) / 2);
      const int64_t top = std::lrint(static_cast<double>(size - crop_size) / 2);
      CHECK(resize_and_crop(noise(), size, crop_size, filter).pixels ==
            crop(resized, top, left, crop_size, crop_size).pixels);
    }
  }
  // A strip whose whole would have 2^31 pixels.
  Image strip;
  strip.set_size(1, 1 << 15, /* new_channels= */ 1);
  strip.pixels.assign(strip.pixels.size(), 77);
  CHECK(resize_and_crop(strip, 256, 5).pixels == std::vector<uint8_t>(25, 77));
  CHECK(error_of([&] { resize_and_crop(strip, int64_t{1} << 28, 5); }) ==
        "resize: size: expected at most 134217728, got 268435456");
  CHECK(error_of([&] { resize_and_crop(noise(), 4, 5); }) ==
        "resize: crop_size: expected a number from 1 to 4, the size, got 5");
  CHECK(error_of([&] { crop(noise(), 15, 0, 6, 4); }) ==
        "crop: expected a window inside 20 x 30 pixels, got 6 x 4 from row 15 and column 0 on");
}

TEST_CASE("png: a chunk before the header is no image, whatever was read before") {
  const TemporaryFolder folder;
  Image image;
  image.set_size(4, 4, 3);
  write_png(folder / "a.png", image);
  const std::string sound = test::read_file(folder / "a.png");
  using namespace std::string_literals;
  const std::string text = "\0\0\0\1tEXta\0\0\0\0"s;  // its check sum is wrong, too
  Image into;
  for (const int64_t size : {0, 1}) {
    into.set_size(size, size, 3);
    CHECK(error_of([&] { decode_image(sound.substr(0, 8) + text + sound.substr(8), "a.png", 3, into); }) ==
          "image: a.png: damaged: it does not begin with a header");
  }
}
