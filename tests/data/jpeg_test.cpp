#include "core/allocator.h"
#include "data/dataset.h"
#include "data/image_file.h"
#include "data/image_formats.h"
#include "data/jpeg_files.h"
#include "data/resize.h"
#include "data/safetensors.h"
#include "files.h"
#include "paths.h"

#include <nlohmann/json.hpp>

#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <random>
#include <string>
#include <utility>
#include <vector>

using namespace norma;
using namespace norma::data;
using namespace norma::test;

namespace {

std::string fault_of(const std::string& bytes) {
  Image image;
  const std::string text = error_of([&] { decode_image(bytes, "x.jpg", 3, image); });
  const std::string beginning = "image: x.jpg: damaged: ";
  return text.starts_with(beginning) ? text.substr(beginning.size()) : text;
}

std::vector<uint8_t> bytes_of(const Tensor& x) {
  return x.to_vector<uint8_t>();
}

bool is_like(const Image& image, const Tensor& expected) {
  return Sizes{image.height, image.width, image.channels} == expected.sizes() && image.pixels == bytes_of(expected);
}

}  // namespace

/// For builds with libjpeg-turbo.
#define JPEG_TEST_CASE(name) TEST_CASE(name* doctest::skip(read_kinds().find("JPEG") == std::string::npos))

JPEG_TEST_CASE("jpeg: the bytes of Pillow") {
  const Safetensors file = load_safetensors(source_folder() / "tests" / "reference" / "jpeg.safetensors");
  const auto cases = nlohmann::json::parse(file.metadata.at("cases")).get<std::vector<std::string>>();
  CHECK(cases.size() == 22);
  for (const std::string& name : cases) {
    CAPTURE(name);
    const std::vector<uint8_t> packed = bytes_of(file.find(name + ".file"));
    const std::string bytes(packed.begin(), packed.end());
    for (const int64_t channels : {3, 1}) {
      if (channels == 3 || !name.ends_with("k")) {
        Image image;
        decode_image(bytes, name, channels, image);
        CHECK(is_like(image, file.find(name + (channels == 3 ? ".color" : ".grey"))));
      }
    }
  }
}

namespace {

std::string text_of(const Safetensors& file, const std::string& name) {
  const std::vector<uint8_t> packed = bytes_of(file.find(name));
  return {packed.begin(), packed.end()};
}

/// True iff decode_window() gives the window's pixels of the whole image, `whole`.
bool has_window_of(const Image& whole, const std::string& bytes, const Rectangle& window) {
  Image part;
  const auto choose = [&](int64_t height, int64_t width) {
    CHECK(std::pair(height, width) == std::pair(whole.height, whole.width));
    return window;
  };
  const Rectangle place = decode_window(bytes, "x.jpg", whole.channels, {.choose = choose, .upright = true}, part);
  return crop(part, place.top, place.left, place.height, place.width).pixels ==
         crop(whole, window.top, window.left, window.height, window.width).pixels;
}

}  // namespace

JPEG_TEST_CASE("jpeg: a window has the pixels of the whole image, of every kind of file") {
  std::vector<std::string> files;
  for (const char* name : {"jpeg", "jpeg_windows"}) {
    const Safetensors file =
        load_safetensors(source_folder() / "tests/reference" / (name + std::string(".safetensors")));
    for (const auto& key : nlohmann::json::parse(file.metadata.at("cases")).get<std::vector<std::string>>()) {
      files.push_back(text_of(file, key + (file.metadata.contains("pillow") ? ".file" : "")));
    }
  }
  CHECK(files.size() == 32);
  std::mt19937 random(1);
  const auto whole_number = [&](int64_t low, int64_t high) {
    return std::uniform_int_distribution<int64_t>(low, high)(random);
  };
  for (size_t i = 0; i < files.size(); ++i) {
    CAPTURE(i);
    for (const int64_t channels : {3, 1}) {
      Image whole;
      decode_image(files[i], "x.jpg", channels, whole);
      REQUIRE(has_window_of(whole, files[i], {.height = whole.height, .width = whole.width}));
      for (int round = 0; round < 40; ++round) {
        Rectangle window{.height = whole_number(1, whole.height), .width = whole_number(1, whole.width)};
        window.top = whole_number(0, whole.height - window.height);
        window.left = whole_number(0, whole.width - window.width);
        REQUIRE(has_window_of(whole, files[i], window));
      }
    }
  }
}

JPEG_TEST_CASE("jpeg: a window of an image that is turned, and damage below a window") {
  const Safetensors file = load_safetensors(source_folder() / "tests/reference/jpeg_windows.safetensors");
  const std::string good = text_of(file, "2x2");
  std::string turned = good;
  // EXIF of one entry: orientation 6.
  const std::string exif("Exif\0\0II*\0\x08\0\0\0\1\0\x12\1\3\0\1\0\0\0\6\0\0\0\0\0\0\0", 32);
  turned.insert(2, jpeg_segment(0xE1, exif));
  Image whole;
  decode_image(turned, "x.jpg", 3, whole);
  REQUIRE(whole.orientation == 6);
  turn_upright(whole);
  CHECK(has_window_of(whole, turned, {.top = 90, .left = 10, .height = 15, .width = 40}));
  // Upright, its upper half is nearly a square; as it lies in the file, that half has half as many pixels one way.
  for (const bool upright : {true, false}) {
    const auto upper = [](int64_t height, int64_t width) { return Rectangle{.height = height / 2, .width = width}; };
    Image small;
    decode_window(turned, "x.jpg", 3, {.choose = upper, .upright = upright, .enough = whole.width / 2 - 1}, small);
    CHECK(std::max(small.height, small.width) == (upright ? (whole.height + 1) / 2 : whole.height));
  }

  const std::string cut = good.substr(0, good.size() - 40) + "\xFF\xD9";
  Image part;
  CHECK(error_of([&] {
          decode_window(cut, "x.jpg", 3,
                        {.choose = [](int64_t, int64_t) { return Rectangle{.height = 5, .width = 5}; }}, part);
        }) == "image: x.jpg: damaged: it ends early");
}

JPEG_TEST_CASE("jpeg: a smaller image has the means of blocks of pixels, and its windows are parts of it") {
  const Safetensors file = load_safetensors(source_folder() / "tests/reference/jpeg_windows.safetensors");
  int64_t windows = 0;
  int64_t chosen = 0;
  const auto corner = [&](int64_t height, int64_t width) {
    ++chosen;
    return Rectangle{.top = height * 3 / 4, .left = width * 3 / 4, .height = height / 8, .width = width / 8};
  };
  for (const auto& key : nlohmann::json::parse(file.metadata.at("cases")).get<std::vector<std::string>>()) {
    CAPTURE(key);
    const std::string bytes = text_of(file, key);
    Image whole;
    decode_image(bytes, "x.jpg", 3, whole);
    const int64_t shorter = std::min(whole.height, whole.width);
    for (const int64_t times : {2, 4, 8}) {
      CAPTURE(times);
      Image small;
      decode_window(bytes, "x.jpg", 3, {.enough = shorter / times}, small);
      CHECK(small.height == (whole.height + times - 1) / times);
      CHECK(small.width == (whole.width + times - 1) / times);
      double off = 0;
      const int64_t height = whole.height / times;
      const int64_t width = whole.width / times;
      for (int64_t i = 0; i < height * width * 3; ++i) {
        const int64_t y = i / 3 / width;
        const int64_t x = i / 3 % width;
        double sum = 0;
        for (int64_t k = 0; k < times * times; ++k) {
          sum += whole.pixels[static_cast<size_t>(((y * times + k / times) * whole.width + x * times + k % times) * 3 +
                                                  i % 3)];
        }
        off += std::abs(sum / static_cast<double>(times * times) -
                        small.pixels[static_cast<size_t>((y * small.width + x) * 3 + i % 3)]);
      }
      // Colors that more pixels share in one direction than in the other are blurred there.
      const bool is_even = key.size() > 3 || key[0] == key[2];
      CHECK(off / static_cast<double>(height * width * 3) < (is_even ? 4 : 40));

      Image part;
      chosen = 0;
      const Rectangle place = decode_window(bytes, "x.jpg", 3, {.choose = corner, .enough = shorter / 8 / times}, part);
      CHECK(chosen == 1);  // chosen again, a random part of the smaller image would be another one
      const Rectangle large = corner(whole.height, whole.width);
      const auto y = static_cast<double>(small.height) / static_cast<double>(whole.height);
      const auto x = static_cast<double>(small.width) / static_cast<double>(whole.width);
      const int64_t top = std::lround(static_cast<double>(large.top) * y);
      const int64_t left = std::lround(static_cast<double>(large.left) * x);
      CHECK(place.height == std::lround(static_cast<double>(large.top + large.height) * y) - top);
      CHECK(place.width == std::lround(static_cast<double>(large.left + large.width) * x) - left);
      CHECK(crop(part, place.top, place.left, place.height, place.width).pixels ==
            crop(small, top, left, place.height, place.width).pixels);
      windows += part.height < small.height && part.width < small.width ? 1 : 0;
    }
    Image same;
    decode_window(bytes, "x.jpg", 3, {.enough = shorter / 2 + 1}, same);
    CHECK(same.pixels == whole.pixels);
  }
  CHECK(windows >= 5);
}

JPEG_TEST_CASE("jpeg: inks as grey are the luminance of their colors") {
  const Safetensors file = load_safetensors(source_folder() / "tests" / "reference" / "jpeg.safetensors");
  const std::vector<uint8_t> packed = bytes_of(file.find("cmyk.file"));
  const std::string bytes(packed.begin(), packed.end());
  Image color;
  decode_image(bytes, "x", 3, color);
  Image grey;
  decode_image(bytes, "x", 1, grey);
  REQUIRE(grey.pixels.size() == color.pixels.size() / 3);
  for (size_t i = 0; i < grey.pixels.size(); ++i) {
    const double luminance =
        0.299 * color.pixels[3 * i] + 0.587 * color.pixels[3 * i + 1] + 0.114 * color.pixels[3 * i + 2];
    CHECK(std::abs(grey.pixels[i] - luminance) <= 1.5);
  }
}

JPEG_TEST_CASE("jpeg: inks without Adobe's marker, and 0xFF 0x00 between segments, as in Pillow") {
  const Safetensors file = load_safetensors(source_folder() / "tests" / "reference" / "jpeg.safetensors");
  const auto bytes_in = [&](const char* name) {
    const std::vector<uint8_t> packed = bytes_of(file.find(name));
    return std::string(packed.begin(), packed.end());
  };
  std::string unmarked = bytes_in("cmyk.file");
  unmarked[unmarked.find("Adobe")] = 'a';
  std::string stuffed = bytes_in("4:4:4.file");
  stuffed.insert(stuffed.find("\xFF\xC4"), std::string("\xFF\0", 2));
  for (const auto& [name, bytes] : {std::pair("cmyk", unmarked), {"4:4:4", stuffed}}) {
    CAPTURE(name);
    Image image;
    decode_image(bytes, "x.jpg", 3, image);
    CHECK(is_like(image, file.find(name + std::string(".color"))));
  }
}

JPEG_TEST_CASE("jpeg: more pixels than the data can hold are refused before any is decoded") {
  // 1125 bytes that claim 134,078,500 pixels: 797 MB and 12 s, when they were decoded.
  std::string bomb = jpeg_head(65'500, 2'047) + jpeg_first_scan(0);
  bomb += std::string(1123 - bomb.size(), '\0') + "\xFF\xD9";
  CHECK(fault_of(bomb) == "it ends early");
  // The fewest bytes that 100 x 200 pixels take, and one fewer.
  const int64_t blocks = 13 * 25;
  CHECK(fault_of(jpeg_head(100, 200) + jpeg_first_scan(blocks) + "\xFF\xD9") == "no error");
  CHECK(fault_of(jpeg_head(100, 200) + jpeg_first_scan(blocks - 8) + "\xFF\xD9") == "it ends early");
  CHECK(fault_of(jpeg_head(100, 200) + jpeg_first_scan(blocks - 8) + jpeg_empty_scan(blocks) + "\xFF\xD9") ==
        "it ends early");
  // A baseline block takes two bits.
  std::string baseline = jpeg_head(100, 200);
  baseline[baseline.find("\xFF\xC2") + 1] = '\xC0';
  CHECK(fault_of(baseline + jpeg_first_scan(blocks) + "\xFF\xD9") == "it ends early");
  // No scan has the first coefficients.
  CHECK(fault_of(jpeg_head(100, 200) + jpeg_empty_scan(blocks) + "\xFF\xD9") == "it ends early");
  CHECK(fault_of(jpeg_head(100, 200) + "\xFF\xD9") == "Invalid JPEG file structure: missing SOS marker");
}

JPEG_TEST_CASE("jpeg: scans are counted by the work that they make") {
  // 400 scans of a large image are some kilobytes more than its first, and took 17 s.
  for (const int scans : {33, 400}) {
    CHECK(fault_of(flat_jpeg(4096, 4096, scans)) == "it has more scans than an image of its size needs");
  }
  CHECK(fault_of(flat_jpeg(100, 200, 400)) == "no error");
  CHECK(fault_of(flat_jpeg(2048, 4096, 32)) == "no error");
  Image image;
  decode_image(flat_jpeg(20, 30, 400), "x", 3, image);
  CHECK(image.pixels == std::vector<uint8_t>(1800, 128));
}

JPEG_TEST_CASE("jpeg: what a decoder keeps between scans is bounded by the size of the file") {
  const auto color = [](int64_t height, int64_t width, size_t comment) {
    std::string file = jpeg_head(height, width, 3) + jpeg_first_scan((height + 7) / 8 * ((width + 7) / 8), 3);
    for (; comment > 0; comment -= std::min<size_t>(comment, 60'000)) {
      file += jpeg_segment(0xFE, std::string(std::min<size_t>(comment, 60'000), 'c'));
    }
    return file + "\xFF\xD9";
  };
  const std::string bomb = color(16'384, 8'191, 0);  // took 1.2 GB and 2 s
  CHECK(bomb.size() < 787'000);
  CHECK(fault_of(bomb) == "its scans take more memory than a file of 768.1 KiB may ask for");
  CHECK(fault_of(color(400, 300, 0)) == "no error");
  // A photograph of 50 megapixels in full color has some megabytes.
  CHECK(fault_of(color(6'144, 8'192, 2'100'000)) == "no error");
  CHECK(fault_of(color(6'144, 8'192, 0)) == "its scans take more memory than a file of 288.1 KiB may ask for");
  // As many scans as components: each is kept until all have come, in a baseline file as well.
  std::string apart = color(16'384, 8'191, 0);
  apart[apart.find("\xFF\xC2") + 1] = '\xC0';
  const size_t scan = apart.find("\xFF\xDA");
  CHECK(fault_of(apart) == "it ends early");  // one scan, and so nothing kept; a block takes two bits
  apart.replace(scan, std::string::npos, jpeg_first_scan(2 * 2048 * 1024) + "\xFF\xD9");
  CHECK(fault_of(apart) == "its scans take more memory than a file of 512.1 KiB may ask for");
}

JPEG_TEST_CASE("jpeg: data that end early inside a scan") {
  const Safetensors file = load_safetensors(source_folder() / "tests" / "reference" / "jpeg.safetensors");
  for (const char* name : {"4:2:0", "progressive", "grey", "restarts", "cmyk"}) {
    CAPTURE(name);
    const std::vector<uint8_t> packed = bytes_of(file.find(std::string(name) + ".file"));
    const std::string bytes(packed.begin(), packed.end());
    // The end of the image follows too soon.
    for (const size_t missing : {5, 20, 40}) {
      const std::string cut = bytes.substr(0, bytes.size() - 2 - missing) + "\xFF\xD9";
      CHECK_MESSAGE(fault_of(cut) == "it ends early", missing);
    }
  }
}

JPEG_TEST_CASE("jpeg: frames and scans that make no sense") {
  const std::string head = jpeg_head(100, 200);
  const std::string scan = jpeg_first_scan(13 * 25);
  const size_t frame = head.find("\xFF\xC2");
  const auto changed = [&](size_t at, char to) {
    std::string file = head;
    file[frame + at] = to;
    return fault_of(file + scan + "\xFF\xD9");
  };
  // Samples of 12 bits, two components and three of which the segment has one, sampling factors of 5
  // and 0, a scan of a component that there is not.
  for (const auto& [at, to] : std::vector<std::pair<size_t, char>>{
           {4, '\x0C'}, {9, '\2'}, {9, '\3'}, {11, '\x51'}, {11, '\x10'}, {10, '\7'}}) {
    CAPTURE(at);
    CHECK(changed(at, to) != "no error");
  }
  CHECK(fault_of(head + head.substr(frame) + scan + "\xFF\xD9") != "no error");  // two frames
  CHECK(fault_of(head.substr(0, frame) + scan + "\xFF\xD9") != "no error");      // a scan without one
  CHECK(fault_of("\xFF\xD8\xFF\xD9") != "no error");
  for (const char byte : {'\0', '\xFF'}) {  // no pixel, or too many
    std::string wrong = head + scan + "\xFF\xD9";
    wrong.replace(frame + 5, 4, 4, byte);
    CHECK(fault_of(wrong) != "no error");
  }
  std::string wide = head + scan + "\xFF\xD9";
  wide.replace(frame + 5, 4, "\xF0\0\xF0\0", 4);
  CHECK(fault_of(wide) == "image: x.jpg: expected at most 134217728 pixels, got 61440 x 61440");
}

#if defined(__SANITIZE_ADDRESS__)  // which takes terabytes of addresses, so that no limit can be set
#define NORMA_LIMITED_TEST_CASE(name) TEST_CASE(name* doctest::skip(true))
#define NORMA_LIMITED_JPEG_TEST_CASE(name) NORMA_LIMITED_TEST_CASE(name)
#else
#define NORMA_LIMITED_TEST_CASE(name) TEST_CASE(name)
#define NORMA_LIMITED_JPEG_TEST_CASE(name) JPEG_TEST_CASE(name)
#endif

/// What f() throws in a process that may have so many bytes more.
template <class F>
std::string error_within(int64_t room, F&& f) {
  std::array<int, 2> pipe = {};
  REQUIRE(::pipe(pipe.data()) == 0);
  const pid_t child = ::fork();
  if (child == 0) {
    int64_t pages = 0;
    std::ifstream("/proc/self/statm") >> pages;
    const auto limit = static_cast<rlim_t>(pages * ::sysconf(_SC_PAGESIZE) + room);
    const rlimit limits{.rlim_cur = limit, .rlim_max = limit};
    ::setrlimit(RLIMIT_AS, &limits);
    const auto say = [&](const char* text) { return ::write(pipe[1], text, std::strlen(text)); };
    try {
      f();
      say("no error");
    } catch (const OutOfMemory& error) {
      say(error.what());
    } catch (const std::exception& error) {
      say("another error: ");
      say(error.what());
    }
    ::_exit(0);
  }
  ::close(pipe[1]);
  std::array<char, 4096> text = {};
  const ssize_t size = ::read(pipe[0], text.data(), text.size());
  ::close(pipe[0]);
  REQUIRE(::waitpid(child, nullptr, 0) == child);
  return {text.data(), static_cast<size_t>(std::max<ssize_t>(size, 0))};
}

NORMA_LIMITED_JPEG_TEST_CASE("jpeg: too little memory is no fault of the image, and no reason to skip it") {
  const TemporaryFolder folder;
  std::filesystem::create_directories(folder / "train/a");
  const std::filesystem::path file = folder / "train/a/1.jpg";
  write_file(file, flat_jpeg(8192, 8192, 2));
  write_png(folder / "train/a/2.png", {.height = 1, .width = 1, .channels = 3, .pixels = {1, 2, 3}});
  const auto dataset = make_dataset("imagefolder", {.folder = folder.path(), .skip_bad_images = true});
  for (const int64_t room : {16 << 20, 40 << 20, 100 << 20, 180 << 20, 250 << 20}) {
    CAPTURE(room);
    CHECK(error_within(room, [&] {
            Image image;
            dataset->load(0, image);
          }) == "image: " + file.string() + ": decoding takes more memory than there is");
  }
}

NORMA_LIMITED_TEST_CASE("image: too little memory for a PNG is no fault of the image") {
  Image image;
  image.set_size(6000, 6000, 3);
  const TemporaryFolder folder;
  write_png(folder / "x.png", image);
  const std::string bytes = read_file(folder / "x.png");
  image = {};
  for (const int64_t room : {1 << 20, 60 << 20}) {
    CAPTURE(room);
    CHECK(error_within(room, [&] { decode_image(bytes, "x.png", 3, image); }) ==
          "image: x.png: decoding takes more memory than there is");
  }
}
