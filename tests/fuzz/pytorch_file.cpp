#include "data/tensor_file.h"

#include "fuzz.h"

using namespace norma;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const fuzz::MemoryFile file(fuzz::text_of(data, size));
  fuzz::read([&] { data::load_pytorch_file(file.path()); });
  return 0;
}
