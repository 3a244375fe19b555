#include "data/image_file.h"

#include "fuzz.h"

#include <string>

using namespace norma;

/// Each decoder of JPEGs that the build has, as grey and as colour.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view bytes = fuzz::text_of(data, size);
  for (const std::string& decoder : norma::data::jpeg_decoders()) {
    norma::data::set_jpeg_decoder(decoder);
    for (const int64_t channels : {1, 3}) {
      fuzz::read([&] {
        norma::data::Image image;
        norma::data::decode_image(bytes, "fuzz", channels, image);
      });
    }
  }
  return 0;
}
