#include "data/jpeg_decoder.h"

namespace norma::data {

const JpegDecoder* jpeg_turbo() {
  return nullptr;
}

}  // namespace norma::data
