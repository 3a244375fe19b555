#include "data/image_formats.h"

#include "ops/implementations.h"

namespace norma::data {

namespace {

kernels::Implementations<JpegDecoder>& decoders() {
  static kernels::Implementations<JpegDecoder> list("image", "NORMA_JPEG", {jpeg_turbo(), jpeg_stb()}, *jpeg_stb());
  return list;
}

}  // namespace

const JpegDecoder& jpeg_decoder() {
  return decoders().preferred();
}

std::vector<std::string> jpeg_decoders() {
  return decoders().names();
}

void set_jpeg_decoder(const std::string& name) {
  decoders().force(name);
}

std::string jpeg_turbo_version() {
  return jpeg_turbo() == nullptr ? "" : jpeg_turbo()->version;
}

}  // namespace norma::data
