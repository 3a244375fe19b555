#include "lab/compare/comparison.h"

#include "base/error.h"
#include "core/random.h"
#include "core/tape.h"
#include "data/dataset.h"
#include "data/json.h"
#include "error_text.h"
#include "files.h"
#include "lab/report/report.h"
#include "lab/small_comparison.h"
#include "models/registry.h"
#include "nn/conv.h"
#include "nn/layers.h"
#include "nn/norm/factory.h"
#include "nn/sequential.h"
#include "ops/pointwise/pointwise.h"
#include "session/interrupt.h"
#include "session/progress.h"
#include "session/trainer.h"
#include "train/checkpoint.h"
#include "train/evaluate.h"

#include <doctest/doctest.h>

#include <cmath>
#include <csignal>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <vector>

using namespace norma;
using namespace norma::lab;
using test::small_comparison;
using test::TemporaryFolder;

namespace {

int64_t steps_made = 0;
std::function<void()> in_step = [] {};
/// Images of this step become NaN; 0: of none.
int64_t poisoned_step = 0;

std::function<void()> in_evaluation = [] {};

/// Counts training steps, and calls in_step() in each.
class Counting : public nn::Module {
 public:
  Tensor forward(const Tensor& x) override {
    if (grad_enabled()) {
      ++steps_made;
      in_step();
      return steps_made == poisoned_step ? mul(x, std::nan("")) : x;
    }
    in_evaluation();
    return x;
  }
  [[nodiscard]] std::string name() const override { return "Counting"; }
};

/// A small network with running statistics, and dropping, which draws from the default generator.
void register_counting() {
  models::register_model("counting", {.make = [](const models::ModelOptions& given) -> std::shared_ptr<nn::Module> {
                                        manual_seed(given.seed);
                                        auto network = std::make_shared<nn::Sequential>();
                                        network->push_back(std::make_shared<Counting>());
                                        network->push_back(std::make_shared<nn::Conv2d>(3, 8, 3));
                                        network->push_back(nn::make_norm(given.norm, 8));
                                        network->push_back(std::make_shared<nn::AdaptiveAvgPool2d>(1));
                                        network->push_back(std::make_shared<nn::Flatten>());
                                        network->push_back(std::make_shared<nn::Dropout>(0.3));
                                        network->push_back(std::make_shared<nn::Linear>(8, given.num_classes));
                                        return network;
                                      },
                                      .own_norm = "batch"});
}

/// Twenty steps of it.
ComparisonOptions twenty_steps(const std::filesystem::path& output) {
  static const bool known = [] {
    register_counting();
    return true;
  }();
  CHECK(known);
  ComparisonOptions options = small_comparison(output);
  options.models = {"counting"};
  options.norms = {"batch"};
  options.recipe.patch_size.reset();
  options.recipe.images = 80;
  options.recipe.mixup = 0.2;
  options.checkpoint_seconds = 0;
  std::filesystem::create_directories(output);
  return options;
}

/// Runs the only cell, and calls `cut` in that step of this start.
Comparison run(
    const ComparisonOptions& options, int64_t step = 0, const std::function<void()>& cut = [] {}) {
  Comparison comparison = plan_comparison(options);
  steps_made = 0;
  in_step = [=] {
    if (steps_made == step) {
      cut();
    }
  };
  try {
    run_cell(0, comparison, options, "cell");
  } catch (const Error& error) {
    comparison.cells[0].reason = error.what();
  }
  in_step = [] {};
  return comparison;
}

void stop() {
  fail("test", "stopped");
}

/// The record without what is measured.
std::string record_of(const Cell& cell) {
  nlohmann::ordered_json json = telemetry_to_json(cell.telemetry.value());
  json.erase("throughput");
  json["step_time"] = json["step_time"]["samples"];
  json["losses"].erase("seconds");
  json["tests"].erase("seconds");
  for (auto& sample : json["health"]) {
    if (sample.contains("dynamics") && sample["dynamics"].contains("sharpness")) {
      sample["dynamics"]["sharpness"].erase("seconds");
    }
  }
  return data::json_text(json);
}

void check_same(const Comparison& found, const Comparison& whole) {
  const Cell& a = found.cells[0];
  const Cell& b = whole.cells[0];
  CHECK(a.state == CellState::finished);
  CHECK(a.losses == b.losses);
  CHECK(a.accuracy == b.accuracy);
  CHECK(a.loss == b.loss);
  CHECK(a.images_per_second > 0);
  CHECK(a.peak_bytes > 0);
  REQUIRE(a.telemetry.has_value() == b.telemetry.has_value());
  if (a.telemetry) {
    CHECK(record_of(a) == record_of(b));
    CHECK(a.telemetry->throughput.steps > 0);
  }
}

}  // namespace

TEST_CASE("cell run: averaged weights are tested, with averaged statistics or with new ones") {
  const TemporaryFolder folder;
  ComparisonOptions options = twenty_steps(folder / "o");
  options.options["weights"] = {"last", "ema", "ema-recalibrated"};
  options.telemetry = false;
  Comparison comparison = plan_comparison(options);
  REQUIRE(comparison.cells.size() == 3);
  for (size_t i = 0; i < comparison.cells.size(); ++i) {
    run_cell(i, comparison, options, "cell");
    REQUIRE(comparison.cells[i].state == CellState::finished);
    CHECK(comparison.cells[i].losses == comparison.cells[0].losses);  // the training is the same
  }
  const Cell& last = comparison.cells[0];
  const Cell& ema = comparison.cells[1];
  const Cell& anew = comparison.cells[2];

  const train::Recipe recipe = recipe_of(comparison, anew);
  CHECK(recipe.model_ema);
  CHECK_FALSE(recipe_of(comparison, last).model_ema);
  train::Trainer trainer(recipe, {.output = {}, .quiet = true});
  const train::TrainResult result = trainer.run();
  CHECK(last.loss == result.test.loss);
  CHECK(ema.loss == result.ema_test.loss);
  CHECK(ema.loss != last.loss);
  const auto network = train::make_model(recipe, train::make_dataset(recipe, data::Split::train)->info().num_classes());
  network->load_state_dict(trainer.checkpoint().ema);
  data::Loader batches = train::make_train_loader(recipe, train::make_dataset(recipe, data::Split::train), 0);
  train::recalibrate(*network, batches, 50);
  data::Loader tests = train::make_test_loader(recipe, train::make_dataset(recipe, data::Split::test), 0);
  CHECK(anew.loss == train::evaluate(*network, tests).loss);
  CHECK(anew.loss != ema.loss);
  CHECK(ema.fit.value().loss != last.fit.value().loss);
  CHECK(anew.fit.value().loss != ema.fit.value().loss);
  options.options["weights"] = {"best"};
  CHECK(test::error_of([&] { plan_comparison(options); }) ==
        "compare: weights: expected last, ema or ema-recalibrated, got 'best'");
}

TEST_CASE("cell run: without batch norm no statistics can be made anew, which is known before the training") {
  const TemporaryFolder folder;
  ComparisonOptions options = twenty_steps(folder / "o");
  options.norms = {"layer2d"};
  options.options["weights"] = {"ema", "ema-recalibrated"};
  Comparison comparison = plan_comparison(options);
  const std::string reason = "recalibrate: model: expected batch norms with running statistics, got none";
  CHECK(test::error_of([&] { rehearse_comparison(comparison); }) == "compare: weights ema-recalibrated: " + reason);
  int64_t steps = 0;
  in_step = [&] { ++steps; };
  CHECK(test::error_of([&] { run_cell(1, comparison, options, "cell"); }) == reason);
  in_step = [] {};
  CHECK(steps == 0);
}

TEST_CASE("cell run: the network's fit is measured on a fixed part of its training images, as test images are seen") {
  const TemporaryFolder folder;
  ComparisonOptions options = twenty_steps(folder / "o");
  options.recipe.train_images = 40;
  const Comparison comparison = run(options);
  const Cell& cell = comparison.cells[0];
  REQUIRE(cell.state == CellState::finished);
  REQUIRE(cell.fit.has_value());
  CHECK(cell.fit->images == 8);  // as many as test images
  CHECK(cell.fit->classes == 10);

  const train::Recipe recipe = recipe_of(comparison, cell);
  train::Trainer trainer(recipe, {.output = {}, .quiet = true});
  trainer.run();
  const auto part = data::random_subset(train::make_dataset(recipe, data::Split::train), 8);
  data::Loader batches = train::make_test_loader(recipe, part, /* workers= */ 0);
  const train::Evaluation expected = train::evaluate(*trainer.model(), batches);
  CHECK(expected.images == 8);
  CHECK(cell.fit->loss == expected.loss);
  CHECK(cell.fit->accuracy == expected.accuracy);
  CHECK(cell.fit->loss != cell.loss);
  CHECK(trainer.evaluate_fit(1000).images == 40);  // no more than there are
}

TEST_CASE("cell run: one that was cut goes on from its checkpoint, to the bits of one that was not") {
  const TemporaryFolder folder;
  for (const bool telemetry : {true, false}) {
    ComparisonOptions options = twenty_steps(folder / fmt::format("whole-{}", telemetry));
    options.telemetry = telemetry;
    const Comparison whole = run(options);
    CHECK(steps_made == 20);
    for (const int64_t at : {1, 2, 10, 11, 20}) {
      CAPTURE(at);
      options.output = folder / fmt::format("cut-{}-{}", telemetry, at);
      std::filesystem::create_directories(options.output);
      const Comparison cut = run(options, at, stop);
      CHECK(cut.cells[0].reason == "test: stopped");
      CHECK(std::filesystem::exists(cell_checkpoint(options.output, 0)));
      const Comparison found = run(options);
      CHECK(steps_made == 21 - at);  // the step that was cut, and those behind it
      check_same(found, whole);
      remove_cell_checkpoint(options.output, 0);
      CHECK(std::filesystem::is_empty(options.output));
    }
  }
}

TEST_CASE("cell run: one that was cut keeps the losses of the steps that it left out") {
  const TemporaryFolder folder;
  ComparisonOptions options = twenty_steps(folder / "whole");
  options.recipe.skip_nonfinite = true;
  poisoned_step = 5;
  const Comparison whole = run(options);
  options.output = folder / "cut";
  std::filesystem::create_directories(options.output);
  run(options, 11, stop);
  poisoned_step = 0;  // it lies behind
  const Comparison found = run(options);
  REQUIRE(found.cells[0].losses.size() == 20);
  for (size_t i = 0; i < 20; ++i) {
    CHECK(std::isnan(found.cells[0].losses[i]) == (i == 4));
    CHECK((i == 4 || found.cells[0].losses[i] == whole.cells[0].losses[i]));
  }
  CHECK(found.cells[0].accuracy == whole.cells[0].accuracy);
  // JSON, which has no NaN, is read again.
  const Comparison read = comparison_from_json(to_json(found));
  CHECK(std::isnan(read.cells[0].losses[4]));
  CHECK(read.cells[0].losses[5] == found.cells[0].losses[5]);
  CHECK(to_html(found).find(" nan") == std::string::npos);
}

TEST_CASE("cell run: one that was cut after its last step keeps its images per second") {
  const TemporaryFolder folder;
  for (const bool telemetry : {true, false}) {
    CAPTURE(telemetry);
    ComparisonOptions options = twenty_steps(folder / fmt::format("whole-{}", telemetry));
    options.telemetry = telemetry;
    const Comparison whole = run(options);
    options.output = folder / fmt::format("cut-{}", telemetry);
    std::filesystem::create_directories(options.output);
    in_evaluation = stop;
    CHECK(run(options).cells[0].reason == "test: stopped");
    CHECK(steps_made == 20);
    in_evaluation = [] {};
    const Comparison found = run(options);
    CHECK(steps_made == 0);
    check_same(found, whole);
    if (telemetry) {
      CHECK(found.cells[0].telemetry->throughput.median > 0);
    }
  }
}

TEST_CASE("cell run: images per second of one that was cut are by the images of each step") {
  const TemporaryFolder folder;
  ComparisonOptions options = twenty_steps(folder / "o");
  options.telemetry = false;
  options.recipe.train_images = 8;
  options.recipe.grad_accum_steps = 64;  // an epoch's last step has the batches that are left: its only two
  in_evaluation = stop;
  CHECK(run(options).cells[0].reason == "test: stopped");
  in_evaluation = [] {};
  const train::Checkpoint checkpoint = train::load_checkpoint(cell_checkpoint(options.output, 0));
  const nlohmann::json before = data::parse_json("test", "progress", checkpoint.options.at("comparison"));
  train::StepTimes times(/* workers= */ 0);
  for (const double seconds : before["step_seconds"].get<std::vector<double>>()) {
    times.add(8, seconds, /* waited= */ 0);
  }
  const Comparison found = run(options);
  CHECK(steps_made == 0);
  CHECK(found.cells[0].losses.size() == 10);
  CHECK(found.cells[0].images_per_second == times.images_per_second());
}

TEST_CASE("cell run: one that was cut has the dynamics of one that was not") {
  const TemporaryFolder folder;
  ComparisonOptions options = twenty_steps(folder / "whole");
  options.dynamics = parse_dynamics("test", "all");
  options.recipe.image_size = 8;  // for time
  const Comparison whole = run(options);
  REQUIRE(whole.cells[0].telemetry);
  REQUIRE(whole.cells[0].telemetry->health.size() == 2);
  for (const HealthSample& sample : whole.cells[0].telemetry->health) {
    REQUIRE(sample.dynamics);
    REQUIRE(sample.dynamics->sharpness);
    CHECK(sample.dynamics->sharpness->problem.empty());
    CHECK(sample.dynamics->sharpness->value > 0);
  }
  options.output = folder / "cut";
  std::filesystem::create_directories(options.output);
  run(options, 10, stop);
  const Comparison found = run(options);
  check_same(found, whole);
  CHECK(found.cells[0].seconds > 0);
}

TEST_CASE("cell run: a signal keeps the step that it came in, and several cuts add up") {
  const TemporaryFolder folder;
  ComparisonOptions options = twenty_steps(folder / "whole");
  options.checkpoint_seconds = 1000;  // none but the signal's
  const Comparison whole = run(options);
  options.output = folder / "cut";
  std::filesystem::create_directories(options.output);
  double seconds = 0;
  for (int start = 0; start < 3; ++start) {
    const train::InterruptGuard guard;
    const Comparison cut = run(options, 6, [] { std::raise(SIGINT); });
    CHECK(cut.cells[0].state == CellState::interrupted);
    CHECK(steps_made == 6);
  }
  const train::Checkpoint kept = train::load_checkpoint(cell_checkpoint(options.output, 0));
  CHECK(kept.step == 18);
  seconds = data::parse_json("test", "progress", kept.options.at("comparison"))["seconds"].get<double>();
  const Comparison found = run(options);
  CHECK(steps_made == 2);
  CHECK(found.cells[0].seconds > seconds);
  check_same(found, whole);
}

TEST_CASE("cell run: a checkpoint of another recipe, or one that is broken, is not gone on from") {
  const TemporaryFolder folder;
  ComparisonOptions options = twenty_steps(folder / "o");
  const std::filesystem::path file = cell_checkpoint(options.output, 0);
  const Comparison whole = run(options);
  CHECK(steps_made == 20);
  const auto cut_and_change = [&](auto&& change) {
    remove_cell_checkpoint(options.output, 0);
    run(options, 15, stop);
    change();
    const Comparison found = run(options);
    CHECK(steps_made == 20);
    check_same(found, whole);
  };
  cut_and_change([&] {
    ComparisonOptions other = options;
    other.recipe.lr *= 2;
    remove_cell_checkpoint(options.output, 0);
    run(other, 15, stop);
  });
  cut_and_change([&] { std::filesystem::resize_file(file, 1000); });
  cut_and_change([&] {
    train::Checkpoint checkpoint = train::load_checkpoint(file);
    checkpoint.options["versions"] = "{}";
    train::save_checkpoint(file, checkpoint);
  });
  cut_and_change([&] {
    train::Checkpoint checkpoint = train::load_checkpoint(file);
    checkpoint.options.erase("comparison");
    train::save_checkpoint(file, checkpoint);
  });
  cut_and_change([&] {  // without the record that this run will have
    ComparisonOptions other = options;
    other.telemetry = false;
    remove_cell_checkpoint(options.output, 0);
    run(other, 15, stop);
  });
}

TEST_CASE("cell run: a run whose checkpoints cannot be written goes on") {
  const TemporaryFolder folder;
  ComparisonOptions options = twenty_steps(folder / "o");
  std::filesystem::create_directory(cell_checkpoint(options.output, 0).string());  // a folder takes its name
  const Comparison found = run(options);
  CHECK(found.cells[0].state == CellState::finished);
  CHECK(steps_made == 20);
}

TEST_CASE("cell run: a comparison removes the checkpoints of its finished and failed cells") {
  const TemporaryFolder folder;
  ComparisonOptions options = twenty_steps(folder / "o");
  options.seeds = {0, 1};
  Comparison comparison = plan_comparison(options);
  steps_made = 0;
  in_step = [] {
    if (steps_made == 25) {  // in the second
      stop();
    }
  };
  run_comparison(comparison, options);
  in_step = [] {};
  CHECK(comparison.cells[0].state == CellState::finished);
  CHECK(comparison.cells[1].state == CellState::failed);
  CHECK(!std::filesystem::exists(cell_checkpoint(options.output, 0)));
  CHECK(!std::filesystem::exists(cell_checkpoint(options.output, 1)));
  test::write_file(cell_checkpoint(options.output, 0).string() + ".1-0.tmp", "left by a kill");
  run_comparison(comparison, options);
  CHECK(comparison.cells[1].state == CellState::finished);
  CHECK(std::distance(std::filesystem::directory_iterator(options.output), {}) == 4);
}
