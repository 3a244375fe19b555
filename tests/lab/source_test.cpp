#include "lab/compare/timing.h"

#include "data/json.h"
#include "error_text.h"
#include "files.h"
#include "lab/compare/comparison.h"
#include "lab/report/merged.h"
#include "lab/small_comparison.h"
#include "session/environment.h"
#include "session/interrupt.h"
#include "session/trainer.h"
#include "train/checkpoint.h"
#include "train/weights.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <csignal>
#include <filesystem>
#include <functional>
#include <set>
#include <string>
#include <vector>

using namespace norma;
using namespace norma::lab;
using test::error_of;
using test::small_comparison;
using test::TemporaryFolder;

namespace {

/// Two norms of a small ConvNeXt on eight of the ten shapes, from every start.
ComparisonOptions all_starts(const std::filesystem::path& output) {
  ComparisonOptions options = small_comparison(output);
  options.recipe = test::small_recipe("convnext_atto", {.images = 8, .test_images = 8});
  options.recipe.classes = {2, 0, 4, 5, 6, 7, 8, 9};
  options.recipe.convert_batches = 2;
  options.models = {"convnext_atto"};
  options.norms = {"batch", "group:8"};
  options.options[kStart] = {kScratch, "keep", "frozen", "fold", "calibrate"};
  options.telemetry = false;
  return options;
}

std::vector<std::string> starts_of(const Comparison& comparison) {
  std::vector<std::string> all;
  all.reserve(comparison.cells.size());
  for (const Cell& cell : comparison.cells) {
    all.push_back(cell.norm + " " + cell.option(kStart));
  }
  return all;
}

std::string error_with(const std::function<void(ComparisonOptions&)>& change) {
  ComparisonOptions options = all_starts("unused");
  change(options);
  return error_of([&] { plan_comparison(options); });
}

Comparison ran(const ComparisonOptions& options) {
  Comparison comparison = plan_comparison(options);
  rehearse_comparison(comparison);
  run_comparison(comparison, options);
  return comparison;
}

/// A run of convnext_atto on shapes with this norm; its last checkpoint.
std::filesystem::path trained(const std::string& norm, const std::filesystem::path& folder) {
  train::Recipe recipe = test::small_recipe("convnext_atto", {.images = 8, .test_images = 8});
  recipe.norm = norm;
  train::Trainer(recipe, {.output = folder, .quiet = true}).run();
  return folder / "last.safetensors";
}

}  // namespace

TEST_CASE("start: a grid has the starts that mean something for a norm, and their settings are those of train") {
  const Comparison comparison = plan_comparison(all_starts("unused"));
  CHECK(starts_of(comparison) == std::vector<std::string>{"batch scratch", "group:8 scratch", "batch keep",
                                                          "group:8 keep", "batch frozen", "group:8 fold",
                                                          "group:8 calibrate"});
  CHECK(comparison.source_classes == std::vector<int64_t>{1, 3});
  CHECK(comparison.initial_sha256.empty());
  const auto recipe = [&](size_t i) { return recipe_of(comparison, comparison.cells[i]); };
  CHECK(recipe(0).initial_checkpoint.empty());
  CHECK(recipe(2).initial_checkpoint == "source/convnext_atto/last.safetensors");
  CHECK(recipe(2).convert_norm == "keep");
  CHECK(recipe(2).freeze.empty());
  CHECK(recipe(4).freeze == std::vector<std::string>{"*.running_*"});
  CHECK(recipe(5).convert_norm == "fold");
  CHECK(recipe(6).convert_norm == "calibrate");

  const train::Recipe source = source_recipe(comparison, "convnext_atto");
  CHECK(source.norm == "batch");
  CHECK(source.classes == std::vector<int64_t>{1, 3});
  CHECK(source.images == kSourceRuns * 8);
  Comparison by_epochs = comparison;
  by_epochs.recipe.images = 0;
  by_epochs.recipe.epochs = 3;
  CHECK(source_recipe(by_epochs, "convnext_atto").images == 0);
  CHECK(source_recipe(by_epochs, "convnext_atto").epochs == kSourceRuns * 3);
  CHECK(source.lr == train::Recipe{}.lr);
  CHECK(source.dataset == "shapes");
}

TEST_CASE("start: what has no run at all is said before anything runs") {
  CHECK(error_with([](ComparisonOptions& o) { o.recipe.classes.clear(); }) ==
        "compare: start: expected --initial-checkpoint with the weights, or --classes, beside which a network is "
        "trained on the other classes, got neither");
  CHECK(error_with([](ComparisonOptions& o) { o.recipe.classes = {0, 1, 2, 3, 4, 5, 6, 7, 8}; }) ==
        "compare: start: expected --classes that leave two or more of the 10 of shapes, got 0,1,2,3,4,5,6,7,8");
  CHECK(error_with([](ComparisonOptions& o) {
          o.datasets = {"shapes", "fashion_mnist"};
        }) == "compare: start: expected one dataset, got 2");
  CHECK(error_with([](ComparisonOptions& o) { o.norms = {"group:8"}; }) ==
        "compare: start: frozen: expected a norm with running statistics, got group:8");
  CHECK(error_with([](ComparisonOptions& o) { o.norms = {"batch"}; }) ==
        "compare: start: fold: expected another norm than batch, which the weights have, got batch");
  CHECK(error_with([](ComparisonOptions& o) {
          o.options[kStart] = {kScratch, "thaw"};
        }) == "compare: start: expected scratch, keep, frozen, fold or calibrate, got 'thaw'");
  CHECK(error_with([](ComparisonOptions& o) {
          o.recipe.initial_checkpoint = "missing.safetensors";
        }).starts_with("initial-checkpoint: cannot open missing.safetensors"));
}

TEST_CASE("start: runs begin with a network that the comparison trains on the other classes") {
  const TemporaryFolder folder;
  ComparisonOptions options = all_starts(folder / "o");
  options.norms = {"batch"};
  options.options[kStart] = {kScratch, "keep", "frozen"};
  const Comparison comparison = ran(options);
  REQUIRE(comparison.cells.size() == 3);
  for (const Cell& cell : comparison.cells) {
    CHECK_MESSAGE(cell.state == CellState::finished, cell.reason);
  }
  REQUIRE(comparison.sources.size() == 1);
  CHECK(comparison.sources[0].model == "convnext_atto");
  CHECK(comparison.sources[0].sha256.size() == 64);
  CHECK(start_note(comparison)
            .starts_with("Runs whose start is not scratch begin with a network that was trained "
                         "with batch norm on the classes 1, 3: convnext_atto with "));
  CHECK(to_json(comparison_from_json(to_json(comparison))) == to_json(comparison));
  CHECK(to_html(comparison).find(start_note(comparison)) != std::string::npos);

  // The network is that of `norma train` with source_recipe(), and so is the run that begins with it.
  const std::filesystem::path file = folder / "o" / source_file("convnext_atto");
  train::Trainer source(source_recipe(comparison, "convnext_atto"), {.output = folder / "s", .quiet = true});
  CHECK(source.run().test.accuracy == comparison.sources[0].accuracy);
  const auto ours = train::load_checkpoint(file).model;
  const auto expected = train::load_checkpoint(folder / "s/last.safetensors").model;
  REQUIRE(ours.size() == expected.size());
  for (size_t i = 0; i < ours.size(); ++i) {
    CHECK(ours[i].first == expected[i].first);
    CHECK(train::sha256_of(ours[i].second) == train::sha256_of(expected[i].second));
  }
  for (size_t i = 0; i < comparison.cells.size(); ++i) {
    train::Recipe recipe = recipe_of(comparison, comparison.cells[i]);
    recipe.initial_checkpoint = recipe.initial_checkpoint.empty() ? "" : file.string();
    train::Trainer again(recipe, {.output = {}, .quiet = true});
    CHECK(again.run().test.loss == comparison.cells[i].loss);
  }
  CHECK(repeat_command(comparison, comparison.cells[1]).find("--classes 1,3 ") != std::string::npos);
  CHECK(repeat_command(comparison, comparison.cells[1]).find(" --output source/convnext_atto && norma train ") !=
        std::string::npos);
  CHECK(repeat_command(comparison, comparison.cells[0]).find("&&") == std::string::npos);
}

TEST_CASE("start: an interrupted comparison goes on with its network, and refuses that of another") {
  const TemporaryFolder folder;
  ComparisonOptions options = all_starts(folder / "o");
  options.norms = {"group:8"};
  options.options[kStart] = {"fold", "calibrate"};
  const Comparison whole = ran(options);

  options.output = folder / "cut";
  Comparison cut = plan_comparison(options);
  {
    const train::InterruptGuard guard;
    std::raise(SIGINT);
    run_comparison(cut, options);
  }
  CHECK(cut.sources.empty());
  CHECK(std::filesystem::exists(options.output / source_file("convnext_atto")));
  CHECK(std::ranges::all_of(cut.cells, [](const Cell& cell) { return cell.state == CellState::pending; }));
  Comparison rest = comparison_from_json(to_json(cut));
  run_comparison(rest, options);
  REQUIRE(rest.sources.size() == 1);
  CHECK(rest.sources[0].sha256 == whole.sources[0].sha256);
  for (size_t i = 0; i < rest.cells.size(); ++i) {
    CHECK(rest.cells[i].state == CellState::finished);
    CHECK(rest.cells[i].loss == whole.cells[i].loss);
  }

  // A network that is not the one which runs have begun with.
  Comparison replaced = rest;
  replaced.cells.back().state = CellState::pending;
  replaced.sources[0].sha256 = "1234567890abcdef";
  CHECK(error_of([&] {
          run_comparison(replaced, options);
        }).starts_with("compare: 'source/convnext_atto/last.safetensors' has other weights (SHA-256 "));

  Comparison other = plan_comparison(options);
  other.source_classes = {3, 1};
  CHECK(error_of([&] { run_comparison(other, options); }) ==
        "compare: '" + (options.output / source_file("convnext_atto")).string() +
            "' is of another run (classes [1, 3] → [3, 1]): choose another output folder");
}

TEST_CASE("start: runs begin with the weights of a file, whatever norm it has") {
  const TemporaryFolder folder;
  ComparisonOptions options = all_starts(folder / "o");
  options.recipe.classes.clear();
  options.recipe.initial_checkpoint = trained("group:8", folder / "t");
  options.norms = {"batch", "group:8"};
  options.options[kStart] = {kScratch, "keep", "frozen", "calibrate"};
  const Comparison comparison = ran(options);
  CHECK(starts_of(comparison) == std::vector<std::string>{"batch scratch", "group:8 scratch", "batch keep",
                                                          "group:8 keep", "batch frozen", "batch calibrate"});
  for (const Cell& cell : comparison.cells) {
    CHECK_MESSAGE(cell.state == CellState::finished, cell.reason);
  }
  CHECK(comparison.sources.empty());
  CHECK(comparison.initial_sha256 == initial_sha256(options.recipe.initial_checkpoint));
  CHECK(start_note(comparison) == "Runs whose start is not scratch begin from the weights in " +
                                      options.recipe.initial_checkpoint + " (SHA-256 " +
                                      comparison.initial_sha256.substr(0, 16) + ").");
  CHECK(recipe_of(comparison, comparison.cells[0]).initial_checkpoint.empty());
  options.options[kStart] = {"fold"};
  CHECK(error_of([&] { plan_comparison(options); }) ==
        "compare: start: fold: expected weights whose norm has running statistics, got group:8");
  options.options.erase(kStart);
  options.norms = {"group:8"};
  const Comparison plain = ran(options);  // no axis: all runs begin with the file
  CHECK(start_note(plain).starts_with("All runs begin from the weights in "));
  CHECK(plain.cells[0].loss == comparison.cells[3].loss);
  options.options[kStart] = {kScratch};
  CHECK(start_note(plan_comparison(options)).empty());
  options.options[kStart] = {"keep"};
  CHECK(start_note(plan_comparison(options)).starts_with("All runs begin from the weights in "));
}

TEST_CASE("start: parts of a comparison keep their networks apart where these are not the same") {
  ComparisonOptions options = all_starts("unused");
  Comparison whole = plan_comparison(options);
  const auto part = [&](int64_t number, const std::string& sha256) {
    Comparison one = whole;
    one.part_count = 2;
    one.parts = {{.number = number, .environment = one.environment, .command = one.command, .date = one.date}};
    for (size_t i = 0; i < one.cells.size(); ++i) {
      if (static_cast<int64_t>(i % 2) != number - 1) {
        one.cells[i].state = CellState::elsewhere;
      }
    }
    one.sources = {{.model = "convnext_atto", .accuracy = 0.5, .sha256 = sha256}};
    return one;
  };
  const std::string said = "Each part has trained its own, and they are not the same.";
  CHECK(start_note(joined({"a", "b"}, {part(1, "12"), part(2, "12")})).find(said) == std::string::npos);
  const Comparison mixed = joined({"a", "b"}, {part(1, "12"), part(2, "34")});
  CHECK(mixed.sources.size() == 1);
  CHECK(start_note(mixed).ends_with(said));
  const auto refusal = [&](const std::function<void(Comparison&)>& change) {
    Comparison other = part(2, "12");
    change(other);
    return error_of([&] { joined({"a", "b"}, {part(1, "12"), other}); });
  };
  const std::string different = "report: 'a' and 'b' are parts of different plans: ";
  CHECK(refusal([](Comparison& c) {
          c.source_classes = {1, 2};
        }) == different + "classes of the networks that runs start from 1,3 → 1,2");
  CHECK(refusal([](Comparison& c) { c.initial_sha256 = "5"; }) ==
        different + "contents of the file of initial-checkpoint");
}

TEST_CASE("start: a file of results that contradicts itself is an error") {
  Comparison comparison = plan_comparison(all_starts("unused"));
  comparison.sources = {{.model = "convnext_atto", .accuracy = 1.5, .sha256 = "12"}};
  CHECK(error_of([&] { comparison_from_json(to_json(comparison)); }) ==
        "comparison: source: network 1: accuracy: expected a number from 0 to 1, got 1.5");
  comparison.sources.clear();
  comparison.source_classes = {1};
  CHECK(error_of([&] { comparison_from_json(to_json(comparison)); }) ==
        "comparison: source: classes: expected two or more, got 1");
  auto json = nlohmann::json::parse(to_json(plan_comparison(all_starts("unused"))));
  json["source"]["networks"] = 3;
  CHECK(error_of([&] { comparison_from_json(json.dump()); }) == "comparison: source: networks: expected a list");
}

TEST_CASE("start: a budget knows the networks that runs start from, and what conversions take") {
  const Comparison comparison = plan_comparison(all_starts("unused"));
  REQUIRE(comparison.cells.size() == 7);
  // Batches of 4, of which conversions look at two. Each cell takes 1 + 2, and 1 for an image; the network four times
  // the images at 2 each, and 5 + 6 beside them.
  std::vector<RunCost> costs(7, {.step = 4, .start = 1, .evaluation = 2, .batch = 1.5, .half_passes_to_calibrate = 22});
  costs.push_back({.step = 8, .start = 5, .evaluation = 6});
  const BudgetPlan plan = plan_budget(comparison, costs, {.budget = 3000});
  // Folding: 2 passes and an evaluation, 8; calibration: 13 passes and an evaluation, 41.
  const double beside = 7 * 3 + 11 + 8 + 41;
  const auto images = static_cast<double>(plan.images);
  CHECK(plan.seconds == doctest::Approx(beside + (7 + 4 * 2) * images));
  REQUIRE(plan.cells.size() == 7);
  CHECK(plan.cells[5] == doctest::Approx(3 + 8 + images));
  CHECK(plan.cells[6] == doctest::Approx(3 + 41 + images));
  CHECK(describe_plan(comparison, plan).find(", with what they start from, which has ") != std::string::npos);

  // Each of five trials converts, too, and makes at least ten steps.
  Comparison tuned = comparison;
  tuned.tune_lr = true;
  const BudgetPlan shortest = plan_budget(tuned, costs, {.budget = 1, .firm = false});
  const auto few = static_cast<double>(shortest.images);
  const auto steps = static_cast<double>(tuning_batches(shortest.images / 4, 1));
  const double trials = 5 * (7 * (1 + 4 * steps) + 2 * 2 * 1.5 + 2 * 13 * 1.5);
  CHECK(shortest.seconds == doctest::Approx(beside + (7 + 4 * 2) * few + trials));
}

TEST_CASE("start: the network that runs start from is measured as it is trained") {
  ComparisonOptions options = all_starts("unused");
  options.norms = {"group:8", "batch"};
  options.options[kStart] = {"keep", "calibrate"};
  options.batch_sizes = {8, 4};
  const Comparison comparison = plan_comparison(options);
  CHECK(source_models(comparison) == std::vector<std::string>{"convnext_atto"});
  const std::vector<RunCost> costs = measure_runs(comparison);
  REQUIRE(costs.size() == comparison.cells.size() + 1);
  const train::Recipe source = source_recipe(comparison, "convnext_atto");
  CHECK(costs.back().step > 0);
  CHECK(costs.back().epoch == train::make_dataset(source, data::Split::train)->info().size);
  CHECK(costs.back().epoch != costs.front().epoch);
  // 17 norms: of a norm with running statistics two passes are made.
  CHECK(comparison.cells.front().norm == "group:8");
  CHECK(costs.front().half_passes_to_calibrate == 19);
  CHECK(costs.back().half_passes_to_calibrate == 36);

  options.options[kStart] = {kScratch};
  CHECK(source_models(plan_comparison(options)).empty());
}

TEST_CASE("start: the parts of a comparison are dealt with what conversions take") {
  ComparisonOptions options = all_starts("unused");
  options.recipe.test_images = 1;
  const std::vector<int64_t> few = estimate_costs(plan_comparison(options));
  options.recipe.convert_batches = 20;
  const std::vector<int64_t> many = estimate_costs(plan_comparison(options));
  REQUIRE(few.size() == 7);
  for (size_t i = 0; i < 5; ++i) {
    CHECK(many[i] == few[i]);
  }
  CHECK(few[5] > few[3]);                            // fold and keep, of group norm
  CHECK(many[5] > few[5]);                           // 18 batches by 2 passes
  CHECK(many[6] - few[6] > 5 * (many[5] - few[5]));  // and by 11.5 passes
}
