#include "nn/norm/policy.h"

#include "fuzz.h"

using namespace norma;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const fuzz::MemoryFile file(fuzz::text_of(data, size));
  fuzz::read([&] { nn::parse_norm_policy(nn::read_norm_policy(file.path()), "policy.toml"); });
  return 0;
}
