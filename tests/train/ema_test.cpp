#include "train/ema.h"
#include "metrics_log.h"

#include "base/error.h"
#include "core/factory.h"
#include "error_text.h"
#include "files.h"
#include "ops/pointwise/pointwise.h"
#include "ops/shape/copy.h"
#include "session/trainer.h"
#include "small_runs.h"
#include "support.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <string_view>
#include <vector>

using namespace norma;
using namespace norma::train;
using test::error_of;
using test::read_file;
using test::TemporaryFolder;

namespace {

/// Five steps in which drop path, batch statistics and flips matter; an evaluation at the end.
Recipe averaged_recipe() {
  Recipe recipe = test::small_recipe("convnext_atto", {.images = 20, .test_images = 8});
  recipe.norm = "batch";
  recipe.drop_path = 0.2;
  recipe.flip = true;
  recipe.model_ema = true;
  recipe.model_ema_decay = 0.5;
  return recipe;
}

TrainerOptions silent(const std::filesystem::path& output = {}) {
  return {.output = output, .resumed = {}, .workers = 0, .log_interval = 1, .quiet = true, .label = ""};
}

}  // namespace

TEST_CASE("ema: decay by update, timm's") {
  const Ema plain({.decay = 0.9});
  CHECK(plain.decay(1) == 0);
  CHECK(plain.decay(2) == 0.9);
  CHECK(plain.decay(100) == 0.9);
  const Ema warm({.decay = 0.9, .warmup = true});
  CHECK(warm.decay(1) == 0);
  CHECK(warm.decay(2) == doctest::Approx(1 - std::pow(2, -2.0 / 3)));
  CHECK(warm.decay(8) == doctest::Approx(0.75));  // 1 - 8^(-2/3)
  CHECK(warm.decay(1000) == 0.9);
}

TEST_CASE("ema: floating tensors are averaged in float32 or wider, counters are copied") {
  Ema ema({.decay = 0.75});
  const auto values = [](double wide, double half, int64_t count) -> nn::NamedTensors {
    return {{"w", full({2, 1}, wide, {.dtype = DType::float64})},
            {"h", full({3}, half, {.dtype = DType::bfloat16})},
            {"n", scalar(count, DType::int64)}};
  };
  CHECK(error_of([&] { ema.update(values(1, 1, 1), 2); }) ==
        "ema: update: expected 1, as there was none before, got 2");
  double wide = 1;
  double half = 2;
  for (int update = 1; update <= 4; ++update) {
    ema.update(values(update, 2 * update, update), update);
    wide = update == 1 ? 1 : wide + 0.25 * (update - wide);
    half = update == 1 ? 2 : half + 0.25 * (2 * update - half);
  }
  CHECK(ema.averages()[0].second.to_vector<double>() == std::vector<double>(2, wide));
  CHECK(ema.averages()[1].second.dtype() == DType::float32);
  CHECK(ema.averages()[1].second.to_vector<float>()[2] == doctest::Approx(half).epsilon(1e-6));
  CHECK(ema.averages()[2].second.item<int64_t>() == 4);
  CHECK(error_of([&] { ema.update({}, 5); }) == "ema: values: expected the 3 tensors of before, got 0");
  CHECK(error_of([&] {
          auto renamed = values(1, 1, 1);
          renamed[1].first = "g";
          ema.update(renamed, 5);
        }) == "ema: values: expected 'h', got 'g'");
}

TEST_CASE("ema: what does not change is its own average, however slow") {
  const nn::NamedTensors same = {{"w", test::random_tensor({50}, 3, DType::float32)}};
  Ema ema({.decay = 0.99999});
  for (int64_t update = 1; update <= 200; ++update) {
    ema.update(same, update);
  }
  CHECK(test::max_difference(ema.averages()[0].second, same[0].second) == 0);
}

TEST_CASE("ema: averages that are loaded go on with the same bits, others are refused") {
  const nn::NamedTensors like = {{"w", test::random_tensor({3, 4}, 1)}, {"n", scalar(1, DType::int64)}};
  const nn::NamedTensors next = {{"w", test::random_tensor({3, 4}, 2)}, {"n", scalar(2, DType::int64)}};
  Ema whole({.decay = 0.9});
  whole.update(like, 1);
  whole.update(next, 2);
  Ema second({.decay = 0.9});
  second.load(whole.averages(), like);
  whole.update(like, 3);
  second.update(like, 3);
  CHECK(test::max_difference(whole.averages()[0].second, second.averages()[0].second) == 0);
  CHECK(error_of([&] {
          second.load({{"w", ones({3})}, {"v", ones({1})}}, like);
        }) == "ema: w: expected sizes [3, 4], got [3]; missing: n; unexpected: v");
}

TEST_CASE("ema: a trainer's average is that of its weights, and training has the same bits without it") {
  Recipe recipe = averaged_recipe();
  recipe.images = 4;
  recipe.sched = "constant";
  Recipe two = recipe;
  two.images = 8;
  Trainer one_step(recipe, silent());
  one_step.run();
  Trainer two_steps(two, silent());
  const TrainResult result = two_steps.run();
  two.model_ema = false;
  Trainer without(two, silent());
  CHECK(without.run().losses == result.losses);
  const data::NamedTensors a = one_step.checkpoint().model;
  const Checkpoint b = two_steps.checkpoint();
  CHECK(without.checkpoint().ema.empty());
  REQUIRE(b.ema.size() == b.model.size());
  size_t averaged = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    CAPTURE(a[i].first);
    CHECK(b.ema[i].first == b.model[i].first);
    CHECK(test::max_difference(b.model[i].second, without.checkpoint().model[i].second) == 0);
    if (is_floating(a[i].second.dtype())) {
      const Tensor middle = (to(a[i].second, DType::float64) + to(b.model[i].second, DType::float64)) * 0.5;
      CHECK(test::max_difference(to(b.ema[i].second, DType::float64), middle) <= 1e-6);
      averaged += test::differ(a[i].second, b.model[i].second, 1e-4) ? 1 : 0;
    }
  }
  CHECK(averaged > a.size() / 2);
}

TEST_CASE("ema: a resumed run has the bits and the log of an uninterrupted one, averages included") {
  struct Killed {};
  const TemporaryFolder folder;
  Trainer whole(averaged_recipe(), silent(folder / "whole"));
  const TrainResult expected = whole.run();
  CHECK(expected.ema_test.complete);
  CHECK(expected.ema_test.loss != expected.test.loss);

  Recipe recipe = averaged_recipe();
  TrainerOptions options = silent(folder / "cut");
  int steps = 0;
  options.before_stage = [&](std::string_view stage) {
    if (stage == "step" && ++steps == 4) {
      throw Killed();
    }
  };
  Trainer begun(recipe, options);
  CHECK_THROWS_AS(begun.run(), Killed);
  save_checkpoint(folder / "cut/last.safetensors", begun.checkpoint());
  const Checkpoint checkpoint = load_checkpoint(folder / "cut/last.safetensors");
  CHECK(checkpoint.step == 3);
  CHECK(checkpoint.ema.size() == checkpoint.model.size());
  options = silent(folder / "cut");
  options.resumed = folder / "cut/last.safetensors";
  Trainer resumed(recipe_of(checkpoint), options, checkpoint);
  const TrainResult rest = resumed.run();
  CHECK(rest.ema_test.loss == expected.ema_test.loss);
  CHECK(read_file(folder / "cut/last.safetensors") == read_file(folder / "whole/last.safetensors"));
  const std::string log = read_file(folder / "whole/metrics.csv");
  CHECK(test::without_times(read_file(folder / "cut/metrics.csv")) == test::without_times(log));
  CHECK(log.starts_with(
      "step,epoch,images,lr,loss,images_per_second,test_loss,test_accuracy,ema_test_loss,ema_test_accuracy\n"));
  CHECK(log.ends_with(fmt::format(",{},{},{},{}\n", expected.test.loss, expected.test.accuracy, expected.ema_test.loss,
                                  expected.ema_test.accuracy)));

  // Without its averages it cannot go on.
  Checkpoint lost = checkpoint;
  lost.ema.clear();
  const std::string error = error_of([&] { Trainer(recipe_of(lost), options, lost); });
  CHECK(error.starts_with("ema: missing: stem.0.weight; missing: "));
}
