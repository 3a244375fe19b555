
#include "base/error.h"
#include "error_text.h"
#include "lab/compare/comparison.h"

#include <doctest/doctest.h>

#include <string>
#include <vector>

using namespace norma;
using namespace norma::lab;

namespace {

Comparison planned(std::vector<int64_t> batch_sizes, int64_t timing_rounds) {
  ComparisonOptions options;
  options.recipe.dataset = "shapes";
  options.models = {"resnet18"};
  options.norms = {"batch", "group"};
  options.batch_sizes = std::move(batch_sizes);
  options.timing_rounds = timing_rounds;
  return plan_comparison(options);
}

}  // namespace

TEST_CASE("budget: the runs are as long as fits, in whole batches of every size") {
  const Comparison comparison = planned({4, 6}, 0);
  // Per image 2 / 4 + 2 / 6 + …: 1.6667 for the four cells; 4 · (1 + 2) beside it.
  const std::vector<RunCost> costs(4, {.step = 2, .start = 1, .evaluation = 2});
  const BudgetPlan plan = plan_budget(comparison, costs, {.budget = 750, .spent = 8});
  // 600 - 8 - 12 are left, which is 348 images: 29 times 12.
  CHECK(plan.images == 348);
  CHECK(plan.seconds == doctest::Approx(600));
  CHECK(plan.cells == std::vector<double>{177, 177, 119, 119});
  CHECK(describe_plan(comparison, plan) == "4 runs of 348 images each: about 10m");
  CHECK(plan_budget(comparison, costs, {.budget = 749, .spent = 8}).images == 336);
}

TEST_CASE("budget: one that is too short says what would do") {
  const Comparison comparison = planned({4, 6}, 0);
  const std::vector<RunCost> costs(4, {.step = 2, .start = 1, .evaluation = 2});
  // Ten batches of 6 are 60 images: 100 s, and 12 beside it: 112 of 4 / 5.
  CHECK(plan_budget(comparison, costs, {.budget = 140}).images == 60);
  CHECK(test::error_of([&] { plan_budget(comparison, costs, {.budget = 139}); }) ==
        "compare: budget: expected at least 140s for 4 runs of 60 images each, the shortest, got 139s; fewer runs, "
        "smaller networks or fewer --test-images take less");
}

TEST_CASE("budget: one that is not firm is for the shortest runs where they do not fit") {
  const Comparison comparison = planned({4, 6}, 0);
  const std::vector<RunCost> costs(4, {.step = 2, .start = 1, .evaluation = 2});
  const BudgetPlan plan = plan_budget(comparison, costs, {.budget = 10, .firm = false});
  CHECK(plan.images == 60);
  CHECK(plan.seconds == doctest::Approx(112));
  CHECK(plan_budget(comparison, costs, {.budget = 750, .spent = 8, .firm = false}).images == 348);
}

TEST_CASE("budget: rounds of timing take a quarter of it at most, and are enough to show a tax") {
  const Comparison comparison = planned({4}, 24);
  const std::vector<RunCost> costs(2, {.step = 1, .start = 2, .evaluation = 0});
  // Two norms, three moments: 2 · (24 + 3 · 3) = 66 s for all, 2 · (16 + 9) = 50 for 16 rounds.
  CHECK(plan_budget(comparison, costs, {.budget = 264}).timing_rounds == 24);
  const BudgetPlan plan = plan_budget(comparison, costs, {.budget = 200});
  CHECK(plan.timing_rounds == 16);
  CHECK(describe_plan(comparison, plan).ends_with("; 16 rounds of timing instead of 24"));
  CHECK(plan_budget(comparison, costs, {.budget = 80}).timing_rounds == 6);
  Comparison kept = comparison;
  apply_plan(kept, plan, 200);
  CHECK(kept.recipe.images == plan.images);
  CHECK(kept.timing_rounds == 16);
  CHECK(comparison_from_json(to_json(kept)).budget == 200);
}

TEST_CASE("budget: a run's fit is measured once") {
  const Comparison comparison = planned({4}, 0);
  const std::vector<RunCost> costs(2, {.step = 1, .start = 0, .evaluation = 0, .fit = 50, .epoch = 100});
  const BudgetPlan plan = plan_budget(comparison, costs, {.budget = 750});  // 600 s: 50 and 250 steps for each run
  CHECK(plan.images == 1000);
  CHECK(plan.cells == std::vector<double>{300, 300});
}

TEST_CASE("budget: a run is evaluated after every epoch") {
  const Comparison comparison = planned({4}, 0);
  const std::vector<RunCost> costs(2, {.step = 1, .start = 0, .evaluation = 100, .epoch = 400});
  // 600 s for each run: three evaluations leave 300 steps, which are three epochs.
  CHECK(plan_budget(comparison, costs, {.budget = 1500}).images == 1200);
  CHECK(plan_budget(comparison, costs, {.budget = 1499}).images == 1196);
}

TEST_CASE("budget: averaged weights are evaluated, too, and new statistics take passes") {
  ComparisonOptions options;
  options.recipe.dataset = "shapes";
  options.models = {"resnet18"};
  options.norms = {"batch"};
  options.batch_sizes = {4};
  options.timing_rounds = 0;
  options.options[kWeights] = {"last", "ema", kRecalibrated};
  const std::vector<RunCost> costs(3, {.step = 4, .start = 1, .evaluation = 2, .batch = 0.1});
  const BudgetPlan plan = plan_budget(plan_comparison(options), costs, {.budget = 3000});
  const auto images = static_cast<double>(plan.images);
  CHECK(plan.cells[0] == doctest::Approx(1 + 2 + images));
  CHECK(plan.cells[1] == doctest::Approx(1 + 2 * 2 + images));
  CHECK(plan.cells[2] == doctest::Approx(1 + 3 * 2 + 50 * 0.1 + images));
}

TEST_CASE("budget: learning rates are tried within it") {
  Comparison comparison = planned({4}, 0);
  const std::vector<RunCost> costs(2, {.step = 1, .start = 0, .evaluation = 0});
  CHECK(plan_budget(comparison, costs, {.budget = 1500}).images == 2400);  // 1200 s for two runs of 600 steps
  comparison.tune_lr = true;
  CHECK(plan_budget(comparison, costs, {.budget = 1500}).images == 1200);  // and five trials of a fifth beside each
}

TEST_CASE("budget: times that it is told in") {
  CHECK(parse_duration("90s") == 90);
  CHECK(parse_duration("10m") == 600);
  CHECK(parse_duration("1.5h") == 5400);
  for (const char* wrong : {"", "s", "10", "-1s", "1e2s", " 1s", "infs", "0m", "1m30s"}) {
    CHECK_MESSAGE(parse_duration(wrong) == 0, wrong);
  }
  CHECK(duration_text(0.5) == "1s");
  CHECK(duration_text(299.5) == "300s");
  CHECK(duration_text(301) == "6m");
  CHECK(duration_text(10'000) == "2.8h");
}

TEST_CASE("budget: cells with more training images share the measurement, and have longer epochs") {
  ComparisonOptions options;
  options.recipe.dataset = "shapes";
  options.recipe.patch_size = 4;
  options.recipe.test_images = 8;
  options.models = {"convnext_atto"};
  options.norms = {"batch"};
  options.batch_sizes = {2};
  options.options["train-images"] = {"100", "400"};
  const std::vector<RunCost> costs = measure_runs(plan_comparison(options));
  REQUIRE(costs.size() == 2);
  CHECK(costs[0].step > 0);
  CHECK(costs[1].step == costs[0].step);
  CHECK(costs[0].epoch == 100);
  CHECK(costs[1].epoch == 400);
}

TEST_CASE("budget: what a run takes is measured, and one that cannot run costs nothing") {
  ComparisonOptions options;
  options.recipe.dataset = "shapes";
  options.recipe.patch_size = 4;
  options.recipe.test_images = 8;
  options.models = {"convnext_atto"};
  options.norms = {"batch", "group:7"};
  options.seeds = {0, 1};
  options.batch_sizes = {2};
  const std::vector<RunCost> costs = measure_runs(plan_comparison(options));
  REQUIRE(costs.size() == 4);
  CHECK(costs[0].step > 0);
  CHECK(costs[0].start >= 0);
  CHECK(costs[1].start == costs[0].start);
  CHECK(costs[0].evaluation > 0);
  CHECK(costs[0].epoch == 60'000);
  CHECK(costs[1].step == costs[0].step);  // measured once
  CHECK(costs[2].step == 0);              // seven groups do not divide its channels
}
