#pragma once

#include "core/device.h"
#include "core/device_functions.h"
#include "core/device_graph.h"
#include "error_text.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

namespace norma::test {

/// Where tests of CUDA's kernels run: on cuda-emulated, or on a GPU, with NORMA_DEVICE=cuda in the environment or with
/// NORMA_TEST_GPU=1 (ctest -L '^gpu$'), which leaves the CPU to be the default. Where there is none, nowhere: ctest
/// finds the line that says so.
inline std::vector<Device> cuda_devices() {
  const Device cuda{.type = DeviceType::cuda};
  const auto variable = [](const char* name) {
    const char* value = std::getenv(name);
    return std::string(value == nullptr ? "" : value);
  };
  if (variable("NORMA_TEST_GPU").empty() && variable("NORMA_DEVICE") != "cuda") {
    return {kCudaEmulated};
  }
  const std::string reason = error_of([&] { check_available("test", cuda); });
  if (reason != "no error") {
    std::printf("skipped: no GPU (%s)\n", reason.c_str());
    return {};
  }
  return {cuda};
}

/// Those of cuda_devices() that have graphs. Where a GPU has none, a line says so.
inline std::vector<Device> devices_with_graphs() {
  std::vector<Device> devices;
  for (const Device device : cuda_devices()) {
    if (make_device_graph(device) != nullptr) {
      devices.push_back(device);
    } else if (device.type == DeviceType::cuda) {
      std::printf("skipped: graphs need the caching allocator (NORMA_CUDA_CACHING=1)\n");
    }
  }
  return devices;
}

/// Whether `device` is the virtual GPU (docs/cuda.md), where tests take small networks.
inline bool is_virtual(Device device) {
  if (device.type != DeviceType::cuda) {
    return false;
  }
  const Facts facts = cuda_facts();
  return std::any_of(facts.begin(), facts.end(), [](const auto& fact) {
    return fact.first == "cuda:0" && fact.second.find(" (virtual),") != std::string::npos;
  });
}

/// Whether `text`, the error of an op that was asked for `cuda`, is what this build has to say: that it has no CUDA;
/// or, if it has, that there is no GPU, or nothing.
inline bool is_refusal_of_cuda(const std::string& text, const std::string& op) {
  const std::string no_cuda = "this build of Norma has no CUDA";
  if (error_of([&] { check_available("test", {.type = DeviceType::cuda}); }) == "test: " + no_cuda) {
    return text == op + ": " + no_cuda;
  }
  return text == "no error" || text.starts_with(op + ": expected a GPU, got none: ");
}

}  // namespace norma::test
