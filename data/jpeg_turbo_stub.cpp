#include "data/image_formats.h"

namespace norma::data {

const JpegDecoder* jpeg_turbo() {
  return nullptr;
}

}  // namespace norma::data
