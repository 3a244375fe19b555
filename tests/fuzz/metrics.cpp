#include "fuzz.h"
#include "session/run_log.h"

#include <fstream>

using namespace norma;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const std::filesystem::path folder =
      std::filesystem::path("/dev/shm") / ("norma-fuzz-" + std::to_string(::getpid()));
  static const int remove_at_end = std::atexit([] { std::filesystem::remove_all(folder); });
  static_cast<void>(remove_at_end);
  std::filesystem::create_directories(folder);
  std::ofstream(folder / "metrics.csv", std::ios::binary) << fuzz::text_of(data, size);
  fuzz::read([&] { train::RunLog({.folder = folder, .earlier = folder, .last_step = 3}).write({.step = 4}); });
  return 0;
}
