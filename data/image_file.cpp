#include "data/image_file.h"

#include "core/error.h"
#include "core/input_file.h"
#include "data/atomic_file.h"

#include <stb_image.h>
#include <stb_image_write.h>

#include <algorithm>
#include <cctype>
#include <memory>
#include <new>
#include <string>

namespace norma::data {

namespace {

constexpr const char* kOp = "image";

/// More than any camera's; a header of a few bytes must not fetch all memory.
constexpr int64_t kMaxPixels = int64_t{1} << 27;

/// What stb said last on this thread.
std::string reason() {
  const char* text = stbi_failure_reason();
  return text == nullptr ? "no reason given" : text;
}

uint8_t byte_at(std::string_view bytes, size_t i) {
  return static_cast<uint8_t>(bytes[i]);
}

/// Whether a JPEG file comes to its end-of-image marker: stb makes up what is missing, in grey. Markers are 0xFF and
/// their number; all but a few are followed by the length of their segment. Between segments lie pixels, in which 0xFF
/// is followed by 0 (ITU T.81, annex B).
bool is_whole_jpeg(std::string_view bytes) {
  constexpr uint8_t kEndOfImage = 0xD9;
  const auto has_length = [](uint8_t marker) {
    return marker > 0x01 && marker != 0xFF && (marker < 0xD0 || marker > 0xD8);
  };
  for (size_t i = 0; i + 1 < bytes.size();) {
    const uint8_t marker = byte_at(bytes, i + 1);
    if (byte_at(bytes, i) != 0xFF || !has_length(marker)) {
      ++i;
      continue;
    }
    if (marker == kEndOfImage) {
      return true;
    }
    if (i + 3 >= bytes.size()) {
      return false;
    }
    i += 2 + (size_t{byte_at(bytes, i + 2)} << 8 | byte_at(bytes, i + 3));
  }
  return false;
}

/// "P5" and "P6", PNM's raw greys and colours (netpbm's pgm(5), ppm(5)). Not by stb: 2.27 reads 16-bit ones beyond the
/// end of its memory, does not scale smaller maxima, and leaves what is missing as it finds it.
bool is_raw_pnm(std::string_view bytes) {
  return bytes.size() > 2 && bytes[0] == 'P' && (bytes[1] == '5' || bytes[1] == '6') &&
         std::isspace(byte_at(bytes, 2)) != 0;
}

/// The next number of a PNM's header, behind white space and comments; -1: there is none, or a far too large one.
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

void check_size(const std::string& name, int64_t height, int64_t width) {
  check(height > 0 && width > 0, kOp, "{}: damaged: expected at least 1 pixel, got {} x {}", name, height, width);
  check(height <= kMaxPixels / width, kOp, "{}: expected at most {} pixels, got {} x {}", name, kMaxPixels, height,
        width);
}

void decode_pnm(std::string_view bytes, const std::string& name, int64_t channels, Image& image) {
  size_t at = 2;
  const int64_t width = header_number(bytes, at);
  const int64_t height = header_number(bytes, at);
  const int64_t most = header_number(bytes, at);
  check(width >= 0 && height >= 0 && most > 0 && most < 65'536, kOp,
        "{}: damaged: expected width, height and a maximum from 1 to 65535", name);
  check_size(name, height, width);
  ++at;  // one character of white space
  const int64_t of_file = bytes[1] == '6' ? 3 : 1;
  const int64_t wide = most > 255 ? 2 : 1;
  const auto left = static_cast<int64_t>(bytes.size()) - static_cast<int64_t>(at);
  check(left >= height * width * of_file * wide, kOp, "{}: damaged: it ends early", name);
  // Big-endian, from 0 to the maximum.
  const auto sample = [&](int64_t i) {
    const size_t place = at + static_cast<size_t>(i * wide);
    const int value = wide == 2 ? byte_at(bytes, place) << 8 | byte_at(bytes, place + 1) : byte_at(bytes, place);
    return static_cast<int>((std::min<int64_t>(value, most) * 255 + most / 2) / most);
  };
  image.set_size(height, width, channels);
  for (int64_t i = 0; i < height * width; ++i) {
    const int red = sample(i * of_file);
    const int green = of_file == 3 ? sample(i * of_file + 1) : red;
    const int blue = of_file == 3 ? sample(i * of_file + 2) : red;
    uint8_t* const pixel = image.pixels.data() + i * channels;
    if (channels == 1) {  // the luminance of stb, for all kinds of files the same
      pixel[0] = static_cast<uint8_t>((red * 77 + green * 150 + blue * 29) >> 8);
    } else {
      pixel[0] = static_cast<uint8_t>(red);
      pixel[1] = static_cast<uint8_t>(green);
      pixel[2] = static_cast<uint8_t>(blue);
    }
  }
}

}  // namespace

void check_image(std::string_view op, const Image& image) {
  check(image.height > 0 && image.width > 0 && (image.channels == 1 || image.channels == 3), op,
        "image: expected pixels of 1 or 3 channels, got {} x {} of {}", image.height, image.width, image.channels);
  check(static_cast<int64_t>(image.pixels.size()) == image.height * image.width * image.channels, op,
        "image: expected {} bytes, got {}", image.height * image.width * image.channels, image.pixels.size());
}

Image read_image(const std::filesystem::path& file, int64_t channels) {
  Image image;
  decode_image(read_text_file(kOp, file, kMaxImageBytes), file.string(), channels, image);
  return image;
}

void decode_image(std::string_view bytes, const std::string& name, int64_t channels, Image& image) {
  check(channels == 1 || channels == 3, kOp, "channels: expected 1 or 3, got {}", channels);
  if (is_raw_pnm(bytes)) {
    decode_pnm(bytes, name, channels, image);
    return;
  }
  const auto* begin = reinterpret_cast<const stbi_uc*>(bytes.data());
  const int size = static_cast<int>(bytes.size());
  int width = 0;
  int height = 0;
  int of_file = 0;
  if (stbi_info_from_memory(begin, size, &width, &height, &of_file) != 1) {
    fail(kOp, "{}: expected an image (JPEG, PNG, BMP, GIF, TGA, PNM), got something else ({})", name, reason());
  }
  check_size(name, height, width);
  check(!bytes.starts_with("\xFF\xD8") || is_whole_jpeg(bytes), kOp, "{}: damaged: it ends early", name);
  const std::unique_ptr<stbi_uc, decltype(&stbi_image_free)> pixels(
      stbi_load_from_memory(begin, size, &width, &height, &of_file, static_cast<int>(channels)), &stbi_image_free);
  if (pixels == nullptr) {
    const std::string why = reason();
    if (why == "outofmem") {  // stb's word for it
      throw std::bad_alloc();
    }
    fail(kOp, "{}: damaged: {}", name, why);
  }
  image.set_size(height, width, channels);
  std::copy_n(pixels.get(), image.pixels.size(), image.pixels.data());
}

void write_png(const std::filesystem::path& file, const Image& image) {
  check_image(kOp, image);
  AtomicFile out(kOp, file);
  const auto append = [](void* to, void* bytes, int count) {
    static_cast<std::string*>(to)->append(static_cast<const char*>(bytes), static_cast<size_t>(count));
  };
  std::string bytes;
  const auto channels = static_cast<int>(image.channels);
  const auto width = static_cast<int>(image.width);
  check(stbi_write_png_to_func(append, &bytes, width, static_cast<int>(image.height), channels, image.pixels.data(),
                               width * channels) != 0,
        kOp, "{}: not enough memory for {} x {} pixels", file.string(), image.height, image.width);
  out.write(bytes.data(), bytes.size());
  out.commit();
}

}  // namespace norma::data
