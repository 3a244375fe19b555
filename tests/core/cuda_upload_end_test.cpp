#include "core/copy.h"
#include "core/factory.h"
#include "core/upload.h"
#include "cuda_devices.h"

#include <doctest/doctest.h>

#include <vector>

using namespace norma;

// Its pinned memory goes with it, and the device may not have come to the last copy.
TEST_CASE("cuda upload: it may end while its last copies are under way, which arrive whole") {
  const DefaultDeviceGuard guard(kCpu);
  for (const Device device : test::cuda_devices()) {
    std::vector<Tensor> sent;
    {
      Upload upload(device);
      for (int i = 0; i < 3; ++i) {
        sent.push_back(upload(full({1000}, i)));
      }
    }
    for (int i = 0; i < 3; ++i) {
      const auto values = to_device(sent[static_cast<size_t>(i)], kCpu).to_vector<float>();
      CHECK(values == std::vector<float>(1000, static_cast<float>(i)));
    }
  }
}
