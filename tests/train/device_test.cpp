#include "core/device.h"

#include "core/emulated/launch.h"
#include "core/emulated/memory.h"
#include "core/factory.h"
#include "files.h"
#include "nn/optim/clip.h"
#include "ops/loss/loss.h"
#include "session/trainer.h"
#include "small_runs.h"
#include "support.h"

#include <cmath>
#include <utility>

using namespace norma;
using namespace norma::train;
using test::max_difference;
using test::TemporaryFolder;

namespace {

Recipe exact_recipe() {
  Recipe recipe = test::small_recipe("resnet18", {.images = 12, .test_images = 8});
  recipe.norm = "batch";
  recipe.clip_grad = 1;
  recipe.seed = 3;
  recipe.precision = "float64";  // kernels of another device add up in another order
  return recipe;
}

/// Trains by a recipe that `change` has changed: tensor functions alone give the CPU's numbers elsewhere. The network
/// has a third of ResNet-18's weights, since optimizers and averages take time for each.
template <typename Change>
void same_elsewhere(const Change& change) {
  Recipe recipe = exact_recipe();
  recipe.model = "convnext_atto";
  recipe.patch_size = 4;
  recipe.layer_scale = 1;  // else its blocks do next to nothing at first
  change(recipe);
  const DefaultDeviceGuard on_cpu(kCpu);
  Trainer here(recipe, {.evaluate_each_epoch = false, .quiet = true});
  const TrainResult expected = here.run();
  const DefaultDeviceGuard on_emulated(kCudaEmulated);
  Trainer there(recipe, {.evaluate_each_epoch = false, .quiet = true});
  const TrainResult result = there.run();
  REQUIRE(result.losses.size() == 3);
  for (size_t i = 0; i < result.losses.size(); ++i) {
    CHECK_MESSAGE(std::abs(result.losses[i] - expected.losses[i]) <= 1e-8, i);
  }
  CHECK(std::abs(result.test.loss - expected.test.loss) <= 1e-8);
  CHECK(result.ema_test.images == (recipe.model_ema ? 8 : 0));
  CHECK(expected.ema_test.images == result.ema_test.images);
  CHECK(std::abs(result.ema_test.loss - expected.ema_test.loss) <= 1e-8);
  const Checkpoint of_cpu = here.checkpoint();
  const Checkpoint of_emulated = there.checkpoint();
  for (const auto& [mine, theirs] : {std::pair(of_emulated.model, of_cpu.model),
                                     {of_emulated.optimizer, of_cpu.optimizer},
                                     {of_emulated.ema, of_cpu.ema}}) {
    REQUIRE(mine.size() == theirs.size());
    for (size_t i = 0; i < mine.size(); ++i) {
      CHECK_MESSAGE(max_difference(mine[i].second, theirs[i].second) <= 1e-7, mine[i].first);
    }
  }
}

}  // namespace

TEST_CASE("train: a run on another device is that of the CPU, and its checkpoint goes on there" *
          doctest::test_suite("again")) {
  const TemporaryFolder folder;
  const auto options = [&](const char* name) { return TrainerOptions{.output = folder / name, .quiet = true}; };
  const DefaultDeviceGuard on_cpu(kCpu);
  Trainer here(exact_recipe(), options("cpu"));
  const TrainResult expected = here.run();
  const DefaultDeviceGuard on_emulated(kCudaEmulated);
  Trainer there(exact_recipe(), options("emulated"));
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
  const Trainer resumed(exact_recipe(), {.quiet = true}, checkpoint);
  CHECK(resumed.model()->device() == kCudaEmulated);
  CHECK(resumed.step() == 3);
  const nn::NamedTensors state = resumed.model()->state_dict();
  for (size_t i = 0; i < state.size(); ++i) {
    CHECK_MESSAGE(max_difference(state[i].second, checkpoint.model[i].second) == 0, state[i].first);
    CHECK_MESSAGE(max_difference(state[i].second, there.model()->state_dict()[i].second) <= 1e-7, state[i].first);
  }
}

TEST_CASE("train: lamb, agc, bce and averages give the CPU's numbers elsewhere") {
  same_elsewhere([](Recipe& recipe) {
    recipe.opt = "lamb";
    recipe.clip_mode = "agc";
    recipe.clip_grad = 0.02;
    recipe.bce_loss = true;
    recipe.smoothing = 0.1;
    recipe.model_ema = true;
    recipe.model_ema_decay = 0.6;
  });
}

TEST_CASE(
    "train: rmsproptf, clipped values, two batches, layer decay and all gradients give the CPU's numbers elsewhere") {
  same_elsewhere([](Recipe& recipe) {
    recipe.opt = "rmsproptf";
    recipe.lr = 1e-4;
    recipe.clip_mode = "value";
    recipe.clip_grad = 0.05;
    recipe.grad_accum_steps = 2;
    recipe.batch_size = 2;
    recipe.norm = "group/8";  // batch norm over two images and one pixel multiplies what rounding differs by
    recipe.layer_decay = 0.8;
    recipe.skip_nonfinite = true;
  });
}

TEST_CASE(
    "train: nesterov, mixed images, bce with a threshold and averages that warm up give the CPU's numbers elsewhere") {
  same_elsewhere([](Recipe& recipe) {
    recipe.opt = "nesterov";
    recipe.lr = 0.01;
    recipe.mixup = 0.8;
    recipe.cutmix = 1;
    recipe.bce_loss = true;
    recipe.bce_target_thresh = 0.2;
    recipe.model_ema = true;
    recipe.model_ema_warmup = true;
  });
}

TEST_CASE("train: the host waits for a device once in a step, for the loss behind it") {
  const DefaultDeviceGuard guard(kCudaEmulated);
  for (const char* model : {"resnet18", "convnext_atto"}) {
    for (const char* opt : {"sgd", "adamw"}) {
      CAPTURE(model);
      CAPTURE(opt);
      Recipe recipe = exact_recipe();
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
      nn::clip_grad_norm_(optimizer->parameters(), recipe.clip_grad);
      optimizer->step();
      CHECK(emulated::host_waits() == before);
      CHECK(std::isfinite(loss.item<float>()));
      CHECK(emulated::host_waits() == before + 1);
    }
  }
  // A step of the trainer: the loss. Images and labels go to the device without a wait.
  Recipe recipe = exact_recipe();
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
  CHECK(emulated::host_waits() - before_three - of_one == 2);
}

TEST_CASE("train: batch norm has at most two launches more than layer norm in each layer of a step") {
  const DefaultDeviceGuard guard(kCudaEmulated);
  const auto launches = [](const std::string& norm, MemoryFormat format) {
    Recipe recipe = exact_recipe();
    recipe.norm = norm;
    recipe.precision = "float32";
    const auto network = make_model(recipe, /* num_classes= */ 10);
    const auto optimizer = make_optimizer(recipe, *network);
    const Tensor images = copy_of(randn({2, 3, 32, 32}), format);
    const Tensor labels =
        to_device(from_vector<int64_t>({3, 7}, {2}, {.dtype = DType::int64, .device = kCpu}), kCudaEmulated);
    const int64_t before = emulated::launch_counts().launches;
    optimizer->zero_grad();
    cross_entropy((*network)(images), labels).backward();
    optimizer->step();
    return emulated::launch_counts().launches - before;
  };
  constexpr int64_t kLayers = 20;  // of ResNet-18
  for (const MemoryFormat format : {MemoryFormat::contiguous, MemoryFormat::channels_last}) {
    const int64_t batch = launches("batch", format);
    const int64_t layer = launches("layer2d", format);
    CHECK(batch - layer <= 2 * kLayers);
  }
}

TEST_CASE("train: mixed precision converts all parameters, and all gradients, in two launches each" *
          doctest::test_suite("again")) {
  const DefaultDeviceGuard guard(kCudaEmulated);
  Recipe recipe = exact_recipe();
  recipe.norm = "layer2d";
  recipe.image_size = 16;
  recipe.test_images = 1;
  const auto launches_of_step = [&](const std::string& precision, bool averages) {
    recipe.precision = precision;
    recipe.model_ema = averages;
    const auto launches_of_run = [&](int64_t steps) {
      recipe.images = steps * recipe.batch_size;
      Trainer trainer(recipe, {.evaluate = false, .quiet = true});
      const int64_t before = emulated::launch_counts().launches;
      trainer.run();
      return emulated::launch_counts().launches - before;
    };
    return launches_of_run(3) - launches_of_run(2);
  };
  const int64_t plain = launches_of_step("float32", false);
  // Besides parameters, images and logits are converted, and the gradients of both.
  CHECK(launches_of_step("amp_bfloat16", false) - plain <= 2 + 2 + 4);
  CHECK(launches_of_step("float32", true) - plain <= 3);
}
