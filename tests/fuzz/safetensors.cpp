#include "data/safetensors.h"

#include "fuzz.h"

using namespace norma;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const fuzz::MemoryFile file(fuzz::text_of(data, size));
  fuzz::read([&] { data::load_safetensors(file.path()); });
  fuzz::read([&] { data::load_safetensors_metadata(file.path()); });
  return 0;
}
