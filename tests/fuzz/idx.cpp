#include "data/idx.h"

#include "fuzz.h"

using namespace norma;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const fuzz::MemoryFile file(fuzz::text_of(data, size));
  fuzz::read([&] { data::read_idx(file.path(), /* rank= */ 1); });
  fuzz::read([&] { data::read_idx(file.path(), /* rank= */ 3); });
  return 0;
}
