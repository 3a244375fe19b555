#include "lab/compare/comparison.h"

#include "base/error.h"
#include "core/tape.h"
#include "error_text.h"
#include "files.h"
#include "lab/small_comparison.h"
#include "nn/module.h"
#include "nn/norm/factory.h"
#include "ops/pointwise/pointwise.h"

#include <doctest/doctest.h>

#include <limits>
#include <memory>
#include <string>
#include <vector>

using namespace norma;
using namespace norma::lab;
using test::TemporaryFolder;

namespace {

ComparisonOptions tuned(const std::filesystem::path& output, std::vector<std::string> norms) {
  ComparisonOptions options = test::small_comparison(output);
  options.recipe.batch_size = 2;
  options.recipe.images = options.recipe.test_images = 4;
  options.norms = std::move(norms);
  options.tune_lr = true;
  return options;
}

class Refusing : public nn::Module {
 public:
  Tensor forward(const Tensor& x) override {
    check(!grad_enabled(), "refusing", "no gradient for {}", "\xff");
    return x.detach();
  }
  [[nodiscard]] std::string name() const override { return "Refusing"; }
};

class NanInTraining : public nn::Module {
 public:
  Tensor forward(const Tensor& x) override { return grad_enabled() ? x * std::numeric_limits<double>::quiet_NaN() : x; }
  [[nodiscard]] std::string name() const override { return "NanInTraining"; }
};

}  // namespace

TEST_CASE("tune: trials are a fifth of a run, and judged by their last quarter") {
  CHECK(tuning_steps(1000) == 200);
  CHECK(tuning_steps(60) == 20);
  CHECK(tuning_steps(8) == 8);
  CHECK(tuning_batches(1000, 1) == 200);
  CHECK(tuning_batches(1000, 4) == 200);  // 250 steps, a fifth of which is 50
  CHECK(tuning_batches(100, 4) == 80);
  CHECK(tuning_batches(30, 4) == 30);
  CHECK(final_loss({9, 9, 9, 9, 9, 9, 1, 2}) == 1.5);
  CHECK(final_loss({3, 2}) == 2);
}

TEST_CASE("tune: a trial has the run's schedule in fewer steps") {
  train::Recipe recipe;
  recipe.sched = "cosine";
  recipe.epochs = 10;
  recipe.warmup_epochs = 3;
  recipe.warmup_lr = 0;
  recipe.cooldown_epochs = 5;
  recipe.decay_epochs = 2;
  const nn::Schedule whole = train::make_schedules(recipe, /* steps= */ 1000, /* steps_per_epoch= */ 100).lr;
  shorten_schedule(recipe, 0.2);
  CHECK(recipe.decay_epochs == 0.4);
  const nn::Schedule trial = train::make_schedules(recipe, 200, 100).lr;  // two epochs, fewer than either part had
  for (const int64_t step : {0, 100, 400, 995}) {
    CHECK(trial(step / 5) == doctest::Approx(whole(step)));
  }
}

TEST_CASE("tune: a norm gets the rate of its best trial, for all seeds, and what is done is not done again") {
  const TemporaryFolder folder;
  ComparisonOptions options = tuned(folder / "report", {"layer2d"});
  options.seeds = {0, 1};
  Comparison comparison = plan_comparison(options);
  CHECK(!tuning_is_complete(comparison));
  run_comparison(comparison, options);
  CHECK(tuning_is_complete(comparison));
  REQUIRE(comparison.tunings.size() == 1);
  for (const Tuning& tuning : comparison.tunings) {
    REQUIRE(tuning.trials.size() == 5);
    CHECK(tuning.trials[0].lr == 0.25 * options.recipe.lr);
    CHECK(tuning.trials[4].lr == 4 * options.recipe.lr);
    for (const Trial& trial : tuning.trials) {
      CHECK_MESSAGE(trial.loss, trial.reason);
    }
  }
  // As one that has this rate from the beginning.
  ComparisonOptions plain = options;
  plain.tune_lr = false;
  plain.seeds = {1};
  plain.recipe.lr = best_trial(comparison.tunings[0])->lr;
  plain.output = folder / "plain";
  Comparison expected = plan_comparison(plain);
  run_comparison(expected, plain);
  CHECK(comparison.cells[1].losses == expected.cells[0].losses);
  CHECK(comparison.cells[1].accuracy == expected.cells[0].accuracy);

  Comparison found = comparison_from_json(test::read_file(folder / "report/results.json"));
  found.tunings[0].trials.resize(4);  // as if it had been killed there
  found.tunings[0].trials[0].loss = 123;
  CHECK(!tuning_is_complete(found));
  tune_rates(found, options);
  CHECK(found.tunings[0].trials[0].loss == 123);
  CHECK(found.tunings[0].trials[4].loss == comparison.tunings[0].trials[4].loss);
}

TEST_CASE("tune: a trial that fails is a result") {
  nn::register_norm("refuses_gradients", [](int64_t) { return std::make_shared<Refusing>(); });
  const TemporaryFolder folder;
  const ComparisonOptions options = tuned(folder / "report", {"refuses_gradients"});
  Comparison comparison = plan_comparison(options);
  run_comparison(comparison, options);
  REQUIRE(comparison.tunings.size() == 1);
  CHECK(comparison.tunings[0].trials.size() == 5);
  CHECK(comparison.tunings[0].trials[2].reason == "refusing: no gradient for ?");
  CHECK(comparison.cells[0].reason == "refusing: no gradient for ?");
  CHECK(comparison.cells[0].state == CellState::failed);
}

TEST_CASE("tune: a trial whose last steps were left out has no loss, and its results can be read") {
  nn::register_norm("nan_in_training", [](int64_t) { return std::make_shared<NanInTraining>(); });
  const TemporaryFolder folder;
  ComparisonOptions options = tuned(folder / "report", {"nan_in_training"});
  options.recipe.skip_nonfinite = true;
  Comparison comparison = plan_comparison(options);
  run_comparison(comparison, options);
  const Comparison read = comparison_from_json(test::read_file(folder / "report/results.json"));
  REQUIRE(read.tunings.size() == 1);
  CHECK(read.tunings[0].trials.size() == 5);
  for (const Trial& trial : read.tunings[0].trials) {
    CHECK(!trial.loss);
    CHECK(trial.reason == "a step near its end was left out, as its loss is not finite");
  }
  CHECK(best_trial(comparison.tunings[0]) == nullptr);
}

TEST_CASE("tune: it has one learning rate to start from") {
  ComparisonOptions options = tuned("unused", {"batch"});
  options.lrs = {0.1, 0.2};
  CHECK(test::error_of([&] { plan_comparison(options); }) ==
        "compare: lrs: expected one, for tune-lr to try others around it, got 2");
}
