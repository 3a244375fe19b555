#include "data/image_file.h"

#include "fuzz.h"

using namespace norma;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const fuzz::MemoryFile file(fuzz::text_of(data, size));
  fuzz::read([&] { data::read_image(file.path(), /* channels= */ 1); });
  fuzz::read([&] { data::read_image(file.path(), /* channels= */ 3); });
  return 0;
}
