#include "core/parallel.h"
#include "cuda_devices.h"
#include "support.h"
#include "train/trainer.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

// Whole networks learn on CUDA what they learn on the CPU. On a GPU (ctest -L gpu) that is a curve of twenty losses; on
// cuda-emulated, which is far slower, the same comparison over the beginning of a smaller one.

using namespace norma;
using namespace norma::train;

namespace {

struct Extent {
  int64_t steps;
  int64_t image_size;
  int64_t batch_size;
};
constexpr Extent kOnGpu{.steps = 20, .image_size = 64, .batch_size = 8};
constexpr Extent kOnEmulated{.steps = 3, .image_size = 32, .batch_size = 4};
constexpr double kToleranceOnEmulated = 1e-4;

struct Case {
  const char* model;
  const char* norm;
  /// Relative, of a loss. Every step makes the difference in rounding larger: on the CPU, float32 and float64 are at
  /// most `tolerance` / 20 apart after twenty steps.
  double tolerance;
};
constexpr Case kCases[] = {{"resnet50", "group:32", 3e-4},
                           {"resnet50", "layer2d", 3e-4},
                           {"convnext_atto", "layer2d", 1e-5},
                           // Over small maps batch norm makes much of little.
                           {"resnet50", "batch", 6e-2}};

Recipe recipe_for(const Case& c, const Extent& extent) {
  Recipe recipe;
  recipe.model = c.model;
  recipe.norm = c.norm;
  if (std::string(c.model) == "resnet50") {
    recipe.zero_init_last = true;  // branches begin with nothing, and the network is tame
  } else {
    recipe.layer_scale = 1;  // else its blocks do next to nothing at first
  }
  recipe.dataset = "shapes";
  recipe.image_size = extent.image_size;
  recipe.batch_size = extent.batch_size;
  recipe.images = extent.steps * extent.batch_size;
  recipe.test_images = extent.batch_size;
  recipe.opt = "sgd";
  recipe.sched = "constant";
  recipe.lr = 1e-3;
  recipe.seed = 3;
  return recipe;
}

TrainResult train_on(Device device, const Recipe& recipe) {
  const DefaultDeviceGuard guard(device);
  return Trainer(recipe, {.evaluate_each_epoch = false, .quiet = true}).run();
}

}  // namespace

TEST_CASE("cuda training: the losses of networks follow the CPU's") {
  const int threads = num_threads();
  for (const Device device : test::cuda_devices()) {
    set_num_threads(device == kCudaEmulated ? 1 : threads);  // others would be told of each change of its pages
    const Extent& extent = device == kCudaEmulated ? kOnEmulated : kOnGpu;
    for (const Case& c : kCases) {
      const double tolerance = device == kCudaEmulated ? std::min(c.tolerance, kToleranceOnEmulated) : c.tolerance;
      for (const bool channels_last : {false, true}) {
        const bool one_format = channels_last == (std::string(c.model) == "resnet50");
        if (device == kCudaEmulated && !one_format) {
          continue;
        }
        CAPTURE(std::string(c.model));
        CAPTURE(channels_last);
        Recipe recipe = recipe_for(c, extent);
        recipe.channels_last = channels_last;
        const TrainResult expected = train_on(kCpu, recipe);
        const TrainResult result = train_on(device, recipe);
        REQUIRE(result.losses.size() == static_cast<size_t>(extent.steps));
        REQUIRE(expected.losses.size() == result.losses.size());
        CHECK(expected.losses.back() != expected.losses.front());
        for (size_t i = 0; i < result.losses.size(); ++i) {
          CAPTURE(i);
          CHECK(std::abs(result.losses[i] - expected.losses[i]) <= tolerance * expected.losses[i]);
        }
        CHECK(std::abs(result.test.loss - expected.test.loss) <= tolerance * expected.test.loss);
      }
    }
  }
  set_num_threads(threads);
}
