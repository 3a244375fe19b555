#include "data/image_file.h"

#include "fuzz.h"

using namespace norma;

/// As grey and as color, whole and in a window of a smaller image.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  for (const int64_t channels : {1, 3}) {
    fuzz::read([&] {
      data::Image image;
      data::decode_image(fuzz::text_of(data, size), "fuzz", channels, image);
      data::turn_upright(image);
    });
    fuzz::read([&] {
      data::Image image;
      const auto choose = [](int64_t height, int64_t width) {
        return data::Rectangle{
            .top = height / 3, .left = width / 3, .height = (height + 1) / 2, .width = (width + 1) / 2};
      };
      const auto enough = static_cast<int64_t>(size % 9);
      data::decode_window(fuzz::text_of(data, size), "fuzz", channels, {choose, /* upright= */ true, enough}, image);
    });
  }
  return 0;
}
