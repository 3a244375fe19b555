#include "data/image_file.h"

#include "core/allocator.h"
#include "core/error.h"
#include "core/input_file.h"
#include "data/atomic_file.h"
#include "data/image_formats.h"

#include <fmt/format.h>
#include <stb_image_write.h>

#include <new>
#include <optional>
#include <string>

namespace norma::data {

namespace {

constexpr const char* kOp = "image";

}  // namespace

void check_fault(const std::string& fault, const std::string& name) {
  check(fault.empty(), kOp, "{}: damaged: {}", name, fault);
}

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
  try {
    image.orientation = 1;
    if (const ImageKind* const kind = image_kind(bytes); kind != nullptr && kind->decode != nullptr) {
      kind->decode(bytes, name, channels, image);
      return;
    }
  } catch (const std::bad_alloc&) {  // not the file's fault
    throw OutOfMemory(fmt::format("{}: {}: decoding takes more memory than there is", kOp, name));
  }
  fail(kOp, "{}: expected a {} image, got {}", name, read_kinds(), describe_file(bytes));
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
