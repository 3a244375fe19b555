#include "fuzz.h"
#include "lab/report/report.h"

using namespace norma;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  fuzz::read([&] {
    const lab::Comparison comparison = lab::comparison_from_json(std::string(fuzz::text_of(data, size)));
    lab::to_json(comparison);
    lab::to_table(comparison);
    lab::to_csv(comparison);
    lab::to_html(comparison);
  });
  return 0;
}
