#include "fuzz.h"
#include "nn/plugin_file.h"

using namespace norma;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const fuzz::MemoryFile file(fuzz::text_of(data, size));
  fuzz::read([&] {
    if (nn::PluginFile(file.path()).record().sha256.size() != 64) {
      std::abort();
    }
  });
  return 0;
}
