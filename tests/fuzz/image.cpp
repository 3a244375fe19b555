#include "data/image_file.h"

#include "fuzz.h"

using namespace norma;

/// As grey and as color.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  for (const int64_t channels : {1, 3}) {
    fuzz::read([&] {
      data::Image image;
      data::decode_image(fuzz::text_of(data, size), "fuzz", channels, image);
      data::turn_upright(image);
    });
  }
  return 0;
}
