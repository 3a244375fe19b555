#include "data/image_formats.h"

#include <stb_image.h>

#include <algorithm>
#include <memory>
#include <new>

namespace norma::data {

namespace {

std::string decode(std::string_view bytes, const JpegHeader& header, int64_t channels, Image& image) {
  int width = 0;
  int height = 0;
  int of_file = 0;
  const std::unique_ptr<stbi_uc, decltype(&stbi_image_free)> pixels(
      stbi_load_from_memory(reinterpret_cast<const stbi_uc*>(bytes.data()), static_cast<int>(bytes.size()), &width,
                            &height, &of_file, static_cast<int>(channels)),
      &stbi_image_free);
  if (pixels == nullptr) {
    const char* said = stbi_failure_reason();  // the last message on this thread
    const std::string reason = said == nullptr ? "no reason given" : said;
    // When stb has no memory for its first look at a file, it reports an unknown kind.
    if (reason == "outofmem" || reason == "unknown image type") {
      throw std::bad_alloc();
    }
    return reason;
  }
  if (height != header.height || width != header.width) {
    return "it has two sizes";
  }
  image.set_size(height, width, channels);
  std::copy_n(pixels.get(), image.pixels.size(), image.pixels.data());
  return "";
}

}  // namespace

const JpegDecoder kJpegStb{.name = "stb", .decode = decode};

}  // namespace norma::data
