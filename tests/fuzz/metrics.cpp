#include "fuzz.h"
#include "train/metrics_log.h"

#include <fstream>

using namespace norma;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const std::filesystem::path file =
      std::filesystem::path("/dev/shm") / ("norma-fuzz-" + std::to_string(::getpid()) + ".csv");
  static const int remove_at_end = std::atexit([] { std::filesystem::remove(file); });
  static_cast<void>(remove_at_end);
  std::ofstream(file, std::ios::binary) << fuzz::text_of(data, size);
  fuzz::read([&] { train::MetricsLog(file, {.file = file, .last_step = 3}).write({.step = 4}); });
  return 0;
}
