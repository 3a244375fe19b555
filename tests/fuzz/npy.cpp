#include "data/tensor_file.h"
#include "fuzz.h"

#include <fstream>

using namespace norma;

// .npy files, and .npz archives, whose reader knows them by their name.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const std::filesystem::path archive =
      std::filesystem::temp_directory_path() / ("fuzz-" + std::to_string(::getpid()) + ".npz");
  fuzz::read([&] { data::tensor_of_npy("fuzz", fuzz::text_of(data, size)); });
  std::ofstream(archive, std::ios::binary) << fuzz::text_of(data, size);
  fuzz::read([&] { data::read_tensor_file(archive); });
  std::filesystem::remove(archive);
  return 0;
}
