#include "data/image_formats.h"

#include <webp/decode.h>
#include <webp/demux.h>

#include <algorithm>
#include <memory>
#include <new>

namespace norma::data {

void decode_webp(std::string_view bytes, const std::string& name, int64_t channels, Image& image) {
  const WebPData data{.bytes = reinterpret_cast<const uint8_t*>(bytes.data()), .size = bytes.size()};
  const std::unique_ptr<WebPDemuxer, decltype(&WebPDemuxDelete)> file(WebPDemux(&data), &WebPDemuxDelete);
  WebPIterator frame = {};
  const std::unique_ptr<WebPIterator, decltype(&WebPDemuxReleaseIterator)> frame_end(&frame, &WebPDemuxReleaseIterator);
  check_fault(file != nullptr && WebPDemuxGetFrame(file.get(), 1, &frame) != 0
                  ? ""
                  : "it ends early, or its parts make no sense",
              name);
  const auto height = int64_t{WebPDemuxGetI(file.get(), WEBP_FF_CANVAS_HEIGHT)};
  const auto width = int64_t{WebPDemuxGetI(file.get(), WEBP_FF_CANVAS_WIDTH)};
  check_image_size(name, height, width);
  WebPDecoderConfig config;
  check_fault(WebPInitDecoderConfig(&config) != 0 ? "" : "libwebp is of another version", name);
  image.set_size(height, width, 3);
  std::ranges::fill(image.pixels, uint8_t{0});  // what a film's first frame leaves free
  const int64_t first = (frame.y_offset * width + frame.x_offset) * 3;
  config.output.colorspace = MODE_RGB;
  config.output.is_external_memory = 1;
  config.output.u.RGBA = {.rgba = image.pixels.data() + first,
                          .stride = static_cast<int>(width * 3),
                          .size = image.pixels.size() - static_cast<size_t>(first)};
  const VP8StatusCode status = WebPDecode(frame.fragment.bytes, frame.fragment.size, &config);
  if (status == VP8_STATUS_OUT_OF_MEMORY) {
    throw std::bad_alloc();
  }
  check_fault(status == VP8_STATUS_OK ? "" : "its pixels cannot be decompressed", name);
  WebPChunkIterator exif = {};
  if (WebPDemuxGetChunk(file.get(), "EXIF", 1, &exif) != 0) {
    image.orientation = exif_orientation({reinterpret_cast<const char*>(exif.chunk.bytes), exif.chunk.size});
  }
  WebPDemuxReleaseChunkIterator(&exif);
  if (channels == 1) {
    make_grey(image);
  }
}

}  // namespace norma::data
