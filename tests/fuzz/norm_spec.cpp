#include "fuzz.h"
#include "nn/norm/factory.h"

using namespace norma;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  fuzz::read([&] { nn::parse_norm(std::string(fuzz::text_of(data, size))); });
  return 0;
}
