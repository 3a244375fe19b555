#pragma once

#include "core/device.h"
#include "error_text.h"

#include <cstdio>
#include <cstdlib>
#include <vector>

namespace norma::test {

/// Where tests of CUDA's kernels run: on cuda-emulated, or, with NORMA_TEST_GPU=1 in the environment (ctest -L gpu), on
/// a GPU. Where there is none, nowhere: ctest finds the line that says so.
inline std::vector<Device> cuda_devices() {
  const char* on_gpu = std::getenv("NORMA_TEST_GPU");
  if (on_gpu == nullptr || *on_gpu == '\0') {
    return {kCudaEmulated};
  }
  const Device cuda{.type = DeviceType::cuda};
  const std::string reason = error_of([&] { check_available("test", cuda); });
  if (reason != "no error") {
    std::printf("skipped: no GPU (%s)\n", reason.c_str());
    return {};
  }
  return {cuda};
}

}  // namespace norma::test
