#include "data/jpeg_decoder.h"
#include "data/stb.h"

namespace norma::data {

const JpegDecoder* jpeg_stb() {
  static constexpr JpegDecoder decoder{.name = "stb", .version = "", .decode = decode_with_stb};
  return &decoder;
}

}  // namespace norma::data
