#include "core/parallel.h"
#include "cuda_devices.h"
#include "session/trainer.h"
#include "support.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

// Whole networks learn on CUDA what they learn on the CPU. On a GPU (ctest -L '^gpu$') that is a curve of twenty
// losses; on cuda-emulated and the virtual GPU, which are far slower, the same comparison over the beginning of a
// smaller one.

using namespace norma;
using namespace norma::train;

namespace {

struct Extent {
  int64_t steps;
  int64_t image_size;
  int64_t batch_size;
};
constexpr Extent kOnGpu{.steps = 20, .image_size = 64, .batch_size = 8};
constexpr Extent kWithoutGpu{.steps = 3, .image_size = 32, .batch_size = 4};
constexpr double kToleranceWithoutGpu = 1e-4;

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

Recipe recipe_for(const std::string& model, const std::string& norm, const Extent& extent) {
  Recipe recipe;
  recipe.model = model;
  recipe.norm = norm;
  if (model.starts_with("resnet")) {
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

/// What a network is after some steps, and what it was before them.
struct Trained {
  std::vector<double> losses;
  double test_loss = 0;
  nn::NamedTensors start;
  nn::NamedTensors weights;  ///< with running statistics
};

nn::NamedTensors copies_on_cpu(nn::NamedTensors state) {
  for (auto& [name, tensor] : state) {
    tensor = copy_of(to_device(tensor.detach(), kCpu), MemoryFormat::contiguous);
  }
  return state;
}

/// The largest difference as a share of the largest number.
double relative_difference(const Tensor& a, const Tensor& b) {
  double largest = 0;
  for (const double number : b.to_vector<double>()) {
    largest = std::max(largest, std::abs(number));
  }
  return test::max_difference(a, b) / largest;
}

}  // namespace

TEST_CASE("cuda training: the losses of networks follow the CPU's" * doctest::test_suite("again")) {
  const int threads = num_threads();
  for (const Device device : test::cuda_devices()) {
    set_num_threads(device == kCudaEmulated ? 1 : threads);  // others would be told of each change of its pages
    const bool slow = device == kCudaEmulated || test::is_virtual(device);
    const Extent& extent = slow ? kWithoutGpu : kOnGpu;
    for (const Case& c : kCases) {
      const double tolerance = slow ? std::min(c.tolerance, kToleranceWithoutGpu) : c.tolerance;
      for (const bool channels_last : {false, true}) {
        const bool one_format = channels_last == (std::string(c.model) == "resnet50");
        if (slow && !one_format) {
          continue;
        }
        CAPTURE(std::string(c.model));
        CAPTURE(channels_last);
        Recipe recipe = recipe_for(c.model, c.norm, extent);
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
        // It is of other images, and of weights one step further.
        CHECK(std::abs(result.test.loss - expected.test.loss) <= 2 * tolerance * expected.test.loss);
      }
    }
  }
  set_num_threads(threads);
}

TEST_CASE("cuda training: ResNet-18 in float64 has the CPU's losses and weights to ten digits" *
          doctest::test_suite("again")) {
  constexpr double kTolerance = 1e-10;  // rounding makes 2e-13 with batch norm, 1e-14 with the others
  constexpr Extent kExtent{.steps = 3, .image_size = 32, .batch_size = 8};
  const int threads = num_threads();
  for (const Device device : test::cuda_devices()) {
    set_num_threads(device == kCudaEmulated ? 1 : threads);
    for (const char* norm : {"batch", "layer2d", "group:32"}) {
      if (device == kCudaEmulated && std::string(norm) != "batch") {
        continue;  // for time: the test above has them
      }
      CAPTURE(std::string(norm));
      Recipe recipe = recipe_for("resnet18", norm, kExtent);
      recipe.zero_init_last = false;  // all branches learn from the first step on
      recipe.precision = "float64";
      recipe.lr = 2e-3;
      const auto trained_on = [&](Device where) {
        const DefaultDeviceGuard guard(where);
        Trainer trainer(recipe, {.evaluate_each_epoch = false, .quiet = true});
        const nn::NamedTensors start = copies_on_cpu(trainer.checkpoint().model);
        const TrainResult result = trainer.run();
        return Trained{.losses = result.losses,
                       .test_loss = result.test.loss,
                       .start = start,
                       .weights = copies_on_cpu(trainer.checkpoint().model)};
      };
      const Trained expected = trained_on(kCpu);
      const Trained result = trained_on(device);
      REQUIRE(result.losses.size() == static_cast<size_t>(kExtent.steps));
      for (size_t i = 0; i < result.losses.size(); ++i) {
        CAPTURE(i);
        CHECK(std::abs(result.losses[i] - expected.losses[i]) <= kTolerance * expected.losses[i]);
      }
      CHECK(std::abs(result.test_loss - expected.test_loss) <= kTolerance * expected.test_loss);
      REQUIRE(result.weights.size() == expected.weights.size());
      for (size_t i = 0; i < result.weights.size(); ++i) {
        CAPTURE(expected.weights[i].first);
        CHECK(relative_difference(result.weights[i].second, expected.weights[i].second) <= kTolerance);
        // What was learned is far more.
        CHECK(relative_difference(expected.start[i].second, expected.weights[i].second) > 1e5 * kTolerance);
      }
    }
  }
  set_num_threads(threads);
}
