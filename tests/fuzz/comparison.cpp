#include "fuzz.h"
#include "lab/report/report.h"

using namespace norma;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  fuzz::read([&] {
    const train::Comparison comparison = train::comparison_from_json(std::string(fuzz::text_of(data, size)));
    train::to_json(comparison);
    train::to_table(comparison);
    train::to_csv(comparison);
    train::to_html(comparison);
  });
  return 0;
}
