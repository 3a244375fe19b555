#include "data/image_file.h"

#include "core/error.h"
#include "core/input_file.h"
#include "data/atomic_file.h"
#include "data/image_kind.h"
#include "data/raw_image.h"

#include <stb_image.h>
#include <stb_image_write.h>

#include <algorithm>
#include <memory>
#include <new>
#include <optional>
#include <string>

namespace norma::data {

namespace {

using namespace std::string_literals;

constexpr const char* kOp = "image";

/// What stb said last on this thread.
std::string reason() {
  const char* text = stbi_failure_reason();
  return text == nullptr ? "no reason given" : text;
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
  const ImageKind kind = image_kind(bytes);
  check(kind != ImageKind::other, kOp, "{}: expected a JPEG, PNG, BMP or raw PNM image, got {}", name,
        describe_file(bytes));
  if (kind == ImageKind::pnm) {
    decode_pnm(bytes, name, channels, image);
    return;
  }
  if (kind == ImageKind::bmp) {
    decode_bmp(bytes, name, channels, image);
    return;
  }
  const auto* begin = reinterpret_cast<const stbi_uc*>(bytes.data());
  const int size = static_cast<int>(bytes.size());
  int width = 0;
  int height = 0;
  int of_file = 0;
  // Before stb, which of most headers says only that they are none of another format.
  if (kind == ImageKind::png) {
    if (const std::optional<ImageSize> of_header = png_size(bytes)) {
      check_image_size(name, of_header->height, of_header->width);
    }
  }
  const std::string fault = kind == ImageKind::jpeg ? fault_of_jpeg(bytes) : fault_of_png(bytes);
  check(fault.empty(), kOp, "{}: damaged: {}", name, fault);
  check(stbi_info_from_memory(begin, size, &width, &height, &of_file) == 1, kOp,
        "{}: damaged: its header makes no sense", name);
  check_image_size(name, height, width);
  const std::unique_ptr<stbi_uc, decltype(&stbi_image_free)> pixels(
      stbi_load_from_memory(begin, size, &width, &height, &of_file, static_cast<int>(channels)), &stbi_image_free);
  if (pixels == nullptr) {
    // Of some damage stb gives no reason: what it said last was that this is no JPEG.
    const std::string why =
        kind == ImageKind::png && reason() == "no SOI"s ? "its pixels cannot be decompressed" : reason();
    // "outofmem" is stb's word for it: of the file, not of a batch that is too large.
    fail(kOp, "{}: {}", name, why == "outofmem" ? "decoding takes more memory than there is" : "damaged: " + why);
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
