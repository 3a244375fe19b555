#include "lab/studies/study.h"

#include "fuzz.h"

using namespace norma;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  fuzz::read([&] { lab::study_from_toml(fuzz::text_of(data, size), "study.toml", "study"); });
  return 0;
}
