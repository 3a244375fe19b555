#include "core/autocast.h"
#include "core/dlpack.h"
#include "core/factory.h"
#include "ops/conv/conv.h"
#include "ops/matmul/matmul.h"
#include "support.h"

#include <dlpack/dlpack.h>

#include <algorithm>
#include <optional>

// Weights whose memory others write to: whatever is derived from a weight and kept must not outlive its values.

namespace norma::test {

TEST_CASE("inference follows changes of a weight that others make by DLPack and nobody counts") {
  const DefaultDeviceGuard on_host(kCpu);  // nobody else may touch other devices' memory
  const NoGradGuard no_grad;
  const Tensor x = ones({300, 300});
  const Tensor images = ones({2, 64, 20, 20});
  const Tensor weight = ones({330, 300}).set_requires_grad();
  const Tensor filter = ones({64, 64, 3, 3}).set_requires_grad();
  const auto results = [&](const Tensor& w) {
    return w.rank() == 2 ? linear(x, w, {}) : conv2d(images, w, {}, {.padding = 1});
  };
  for (const Tensor& w : {weight, filter}) {
    CAPTURE(to_string(w.sizes()));
    for (const bool in_bfloat16 : {false, true}) {
      CAPTURE(in_bfloat16);
      std::optional<Autocast> autocast;
      if (in_bfloat16) {
        autocast.emplace();
      }
      const double one = largest_number(results(w));
      DLManagedTensor* const shared = to_dlpack(w);
      auto* const numbers = static_cast<float*>(shared->dl_tensor.data);
      std::fill_n(numbers, w.numel(), 2.0F);
      CHECK(largest_number(results(w)) == 2 * one);
      std::fill_n(numbers, w.numel(), 4.0F);
      CHECK(largest_number(results(w)) == 4 * one);
      std::fill_n(numbers, w.numel(), 8.0F);
      shared->deleter(shared);
      CHECK(largest_number(results(w)) == 8 * one);
      std::fill_n(w.data<float>(), w.numel(), 1.0F);
      w.bump_version();
      CHECK(largest_number(results(w)) == one);
    }
  }
}

TEST_CASE("inference follows changes of a weight whose memory is another's") {
  const DefaultDeviceGuard on_host(kCpu);  // nobody else may touch other devices' memory
  const NoGradGuard no_grad;
  const Tensor x = ones({300, 300});
  const Tensor theirs = ones({330, 300});
  const Tensor weight = from_dlpack(to_dlpack(theirs)).set_requires_grad();
  const double one = largest_number(linear(x, weight, {}));
  fill_(theirs, 2);  // counted there, not in weight's storage
  CHECK(largest_number(linear(x, weight, {})) == 2 * one);
}

}  // namespace norma::test
