#include "error_text.h"
#include "files.h"
#include "session/trainer.h"
#include "small_runs.h"
#include "support.h"
#include "train/training_state.h"

#include <doctest/doctest.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

using namespace norma;
using namespace norma::train;
using test::read_file;
using test::TemporaryFolder;

namespace {

Recipe exact_recipe() {
  Recipe recipe = test::small_recipe("convnext_atto", {.batch_size = 6, .images = 12, .test_images = 2});
  recipe.opt = "sgd";
  recipe.lr = 0.05;
  recipe.precision = "float64";
  return recipe;
}

TrainerOptions silent() {
  return {.workers = 0, .evaluate = false, .quiet = true};
}

/// Stops a run as a kill does.
struct Killed {};

}  // namespace

TEST_CASE("accumulation: which batches make which step") {
  const StepPlan plan{.batches_per_epoch = 5, .total_batches = 13, .accumulate = 2};
  CHECK(plan.steps_per_epoch() == 3);
  CHECK(plan.total_steps() == 8);  // 2 + 2 + 1, 2 + 2 + 1, 2 + 1
  const int64_t batches[] = {2, 2, 1, 2, 2, 1, 2, 1};
  int64_t before = 0;
  for (int64_t step = 0; step < 8; ++step) {
    CAPTURE(step);
    CHECK(plan.batches_before(step) == before);
    CHECK(plan.batches_of(step) == batches[step]);
    before += batches[step];
  }
  CHECK(plan.batches_before(8) == 13);
  const StepPlan plain{.batches_per_epoch = 5, .total_batches = 13, .accumulate = 1};
  CHECK(plain.total_steps() == 13);
  CHECK(plain.batches_before(7) == 7);
}

TEST_CASE("accumulation: the update is that of one batch of all images") {
  Trainer whole(exact_recipe(), silent());
  Recipe recipe = exact_recipe();
  recipe.batch_size = 2;
  recipe.grad_accum_steps = 3;
  Trainer parts(recipe, silent());
  const TrainResult expected = whole.run();
  const TrainResult result = parts.run();
  REQUIRE(result.losses.size() == 2);
  for (size_t i = 0; i < 2; ++i) {
    CHECK(result.losses[i] == doctest::Approx(expected.losses[i]).epsilon(1e-12));
  }
  const auto a = whole.model()->named_parameters();
  const auto b = parts.model()->named_parameters();
  for (size_t i = 0; i < a.size(); ++i) {
    CHECK_MESSAGE(test::max_difference(a[i].second, b[i].second) <= 1e-13, a[i].first);
  }
  // One that did not add gradients up would be far off.
  Recipe other = recipe;
  other.grad_accum_steps = 1;
  other.images = 4;
  Trainer alone(other, silent());
  alone.run();
  CHECK(test::differ(a[0].second, alone.model()->named_parameters()[0].second, 1e-6));
}

TEST_CASE("accumulation: a killed and resumed run has the bits of an uninterrupted one") {
  Recipe recipe = exact_recipe();
  recipe.precision = "float32";
  recipe.drop_path = 0.2;
  recipe.flip = true;
  recipe.batch_size = 2;
  recipe.grad_accum_steps = 2;
  recipe.images = 14;  // 7 batches: 2 + 2 + 2 + 1
  const TemporaryFolder folder;
  TrainerOptions options = silent();
  options.log_interval = 1;
  options.output = folder / "whole";
  Trainer whole(recipe, options);
  const TrainResult expected = whole.run();
  CHECK(expected.losses.size() == 4);
  const std::string log = read_file(folder / "whole/metrics.csv");
  CHECK(log.find("\n3,") != std::string::npos);
  CHECK(log.find(",12,") != std::string::npos);  // images after step 3
  CHECK(log.find(",14,") != std::string::npos);  // and after step 4

  options.output = folder / "cut";
  Checkpoint middle;
  {
    Trainer begun(recipe, options);
    const auto passes = std::make_shared<int>(0);
    begun.model()->register_forward_hook([passes](const nn::Module&, const Tensor&, const Tensor&) {
      if (++*passes == 6) {  // in the second batch of step 3
        throw Killed();
      }
    });
    CHECK_THROWS_AS(begun.run(), Killed);
    middle = begun.checkpoint();
  }
  CHECK(middle.step == 2);
  options.output = folder / "rest";
  Trainer resumed(recipe, options, middle);
  const TrainResult rest = resumed.run();
  CHECK(rest.losses == std::vector<double>(expected.losses.begin() + 2, expected.losses.end()));
  CHECK(read_file(folder / "rest/last.safetensors") == read_file(folder / "whole/last.safetensors"));
}

TEST_CASE("accumulation: a run that ended within a step does not go on") {
  Recipe recipe = exact_recipe();
  recipe.grad_accum_steps = 2;
  recipe.images = 18;  // steps of two batches and of one
  Trainer trainer(recipe, silent());
  trainer.run();
  const Checkpoint end = trainer.checkpoint();
  recipe.images = 30;
  CHECK(
      test::error_of([&] { Trainer(recipe, silent(), end); }) ==
      "resume: images: the run ended with a step of fewer batches than --grad-accum-steps, and cannot go on behind its "
      "18 images");
  recipe.images = 18;
  CHECK(Trainer(recipe, silent(), end).run().finished);
}
