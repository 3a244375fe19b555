#include "data/image_formats.h"

#include <stb_image.h>

#include <algorithm>
#include <memory>
#include <new>

namespace norma::data {

std::string decode_with_stb(std::string_view bytes, const ImageSize& size, int64_t channels, Image& image) {
  int width = 0;
  int height = 0;
  int of_file = 0;
  const std::unique_ptr<stbi_uc, decltype(&stbi_image_free)> pixels(
      stbi_load_from_memory(reinterpret_cast<const stbi_uc*>(bytes.data()), static_cast<int>(bytes.size()), &width,
                            &height, &of_file, static_cast<int>(channels)),
      &stbi_image_free);
  if (pixels == nullptr) {
    const char* said = stbi_failure_reason();  // the last word on this thread
    const std::string reason = said == nullptr ? "no reason given" : said;
    // Without memory for its first look at a file stb takes it for none that it knows.
    if (reason == "outofmem" || reason == "unknown image type") {
      throw std::bad_alloc();
    }
    // stb gives no reason for some damage to a PNG. Its last one is then that this is no JPEG.
    return reason == "no SOI" ? "its pixels cannot be decompressed" : reason;
  }
  if (height != size.height || width != size.width) {
    return "it has two sizes";
  }
  image.set_size(height, width, channels);
  std::copy_n(pixels.get(), image.pixels.size(), image.pixels.data());
  return "";
}

const JpegDecoder* jpeg_stb() {
  static constexpr JpegDecoder decoder{.name = "stb", .version = "", .decode = decode_with_stb};
  return &decoder;
}

}  // namespace norma::data
