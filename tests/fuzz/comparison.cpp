#include "fuzz.h"
#include "lab/report/merged.h"

using namespace norma;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  fuzz::read([&] {
    const lab::Parts parts = lab::parts_from_json(std::string(fuzz::text_of(data, size)));
    lab::to_json(parts);
    lab::to_table(parts);
    lab::to_csv(parts);
    lab::to_html(parts);
    lab::to_markdown(parts);
  });
  return 0;
}
