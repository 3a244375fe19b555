#include "data/image_file.h"

#include "core/error.h"
#include "core/input_file.h"
#include "data/atomic_file.h"

#include <stb_image.h>
#include <stb_image_write.h>

#include <algorithm>
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
  const auto* begin = reinterpret_cast<const stbi_uc*>(bytes.data());
  const int size = static_cast<int>(bytes.size());
  int width = 0;
  int height = 0;
  int of_file = 0;
  if (stbi_info_from_memory(begin, size, &width, &height, &of_file) != 1) {
    fail(kOp, "{}: expected an image (JPEG, PNG, BMP, GIF, TGA, PNM), got something else ({})", name, reason());
  }
  check(int64_t{height} * width <= kMaxPixels, kOp, "{}: expected at most {} pixels, got {} x {}", name, kMaxPixels,
        height, width);
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
