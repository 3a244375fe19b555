#include "nn/cast_policy.h"

#include "core/factory.h"
#include "fuzz.h"
#include "ops/pointwise/pointwise.h"

using namespace norma;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const fuzz::MemoryFile file(fuzz::text_of(data, size));
  fuzz::read([&] {
    const Autocast autocast(DType::bfloat16, nn::parse_cast_policy(nn::read_cast_policy(file.path()), "policy.toml"));
    neg(ones({1}));  // with an op, the names of all are linked
  });
  return 0;
}
