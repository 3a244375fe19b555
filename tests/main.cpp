#define DOCTEST_CONFIG_IMPLEMENT
#include "base/error.h"
#include "core/device.h"

#include <doctest/doctest.h>

#include <cstdio>
#include <cstdlib>

// Where NORMA_DEVICE names a device that is not there, nothing runs, and ctest is told so by kSkipped.

namespace {

constexpr int kSkipped = 77;

/// False, with a line that says why, where tests cannot run on the device that they are asked to run on.
bool device_is_there(const char* name) {
  const norma::Device device = norma::device_from_string(name);
  try {
    norma::check_available("tests", device);
    return true;
  } catch (const norma::Error& error) {
    std::printf("skipped: %s\n", error.what());
    return false;
  }
}

}  // namespace

int main(int argc, char** argv) {
  ::setenv("OMPI_MCA_btl", "^tcp", /* overwrite= */ 0);  // processes share memory: a container may have no network
  const char* name = std::getenv("NORMA_DEVICE");
  try {
    if (name != nullptr && *name != '\0' && !device_is_there(name)) {
      return kSkipped;
    }
  } catch (const norma::Error& error) {
    std::fprintf(stderr, "NORMA_DEVICE: %s\n", error.what());
    return EXIT_FAILURE;
  }
  return doctest::Context(argc, argv).run();
}
