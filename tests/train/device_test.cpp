#include "core/device.h"

#include "core/emulated/host_waits.h"
#include "core/factory.h"
#include "files.h"
#include "nn/optim/clip.h"
#include "ops/loss/loss.h"
#include "support.h"
#include "train/trainer.h"

#include <cmath>

using namespace norma;
using namespace norma::train;
using test::max_difference;
using test::TemporaryFolder;

namespace {

Recipe small_recipe() {
  Recipe recipe;
  recipe.model = "resnet18";
  recipe.norm = "batch";
  recipe.dataset = "shapes";
  recipe.image_size = 32;
  recipe.batch_size = 4;
  recipe.images = 12;
  recipe.test_images = 8;
  recipe.clip_grad = 1;
  recipe.seed = 3;
  recipe.precision = "float64";  // kernels of another device add up in another order
  return recipe;
}

}  // namespace

TEST_CASE("train: a run on another device is that of the CPU, and its checkpoint goes on there") {
  const TemporaryFolder folder;
  const auto options = [&](const char* name) { return TrainerOptions{.output = folder / name, .quiet = true}; };
  const DefaultDeviceGuard on_cpu(kCpu);
  Trainer here(small_recipe(), options("cpu"));
  const TrainResult expected = here.run();
  const DefaultDeviceGuard on_emulated(kCudaEmulated);
  Trainer there(small_recipe(), options("emulated"));
  CHECK(there.model()->device() == kCudaEmulated);
  const TrainResult result = there.run();
  REQUIRE(result.losses.size() == expected.losses.size());
  for (size_t i = 0; i < expected.losses.size(); ++i) {
    CHECK_MESSAGE(std::abs(result.losses[i] - expected.losses[i]) <= 1e-8, i);
  }
  CHECK(std::abs(result.test.loss - expected.test.loss) <= 1e-8);
  CHECK(result.test.accuracy == expected.test.accuracy);
  CHECK(result.peak_bytes > 0);

  const Checkpoint checkpoint = load_checkpoint(folder / "cpu/last.safetensors");
  CHECK(checkpoint.model.front().second.device() == kCpu);
  const Trainer resumed(small_recipe(), {.quiet = true}, checkpoint);
  CHECK(resumed.model()->device() == kCudaEmulated);
  CHECK(resumed.step() == 3);
  const nn::NamedTensors state = resumed.model()->state_dict();
  for (size_t i = 0; i < state.size(); ++i) {
    CHECK_MESSAGE(max_difference(state[i].second, checkpoint.model[i].second) == 0, state[i].first);
    CHECK_MESSAGE(max_difference(state[i].second, there.model()->state_dict()[i].second) <= 1e-7, state[i].first);
  }
}

TEST_CASE("train: the host waits for a device once in a step, for the loss behind it") {
  const DefaultDeviceGuard guard(kCudaEmulated);
  for (const char* model : {"resnet18", "convnext_atto"}) {
    for (const char* opt : {"sgd", "adamw"}) {
      CAPTURE(model);
      CAPTURE(opt);
      Recipe recipe = small_recipe();
      recipe.model = model;
      recipe.opt = opt;
      recipe.smoothing = 0.1;
      recipe.precision = "float32";
      const auto network = make_model(recipe, /* num_classes= */ 10);
      const auto optimizer = make_optimizer(recipe, *network);
      const Tensor images = randn({2, 3, 32, 32});
      const Tensor labels =
          to_device(from_vector<int64_t>({3, 7}, {2}, {.dtype = DType::int64, .device = kCpu}), kCudaEmulated);
      const int64_t before = emulated::host_waits();
      optimizer->zero_grad();
      const Tensor loss = cross_entropy((*network)(images), labels, {.label_smoothing = recipe.smoothing});
      loss.backward();
      nn::clip_gradients_by_norm(optimizer->parameters(), recipe.clip_grad);
      optimizer->step();
      CHECK(emulated::host_waits() == before);
      CHECK(std::isfinite(loss.item<float>()));
      CHECK(emulated::host_waits() == before + 1);
    }
  }
  // A step of the trainer: images, labels and the loss.
  Recipe recipe = small_recipe();
  recipe.model = "convnext_atto";
  recipe.images = 4;
  recipe.test_images = 1;
  Trainer one(recipe, {.quiet = true});
  const int64_t before_one = emulated::host_waits();
  one.run();
  const int64_t of_one = emulated::host_waits() - before_one;
  recipe.images = 12;
  Trainer three(recipe, {.quiet = true});
  const int64_t before_three = emulated::host_waits();
  three.run();
  CHECK(emulated::host_waits() - before_three - of_one == 2 * 3);
}
