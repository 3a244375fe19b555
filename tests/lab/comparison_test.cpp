#include "lab/compare/comparison.h"

#include "base/error.h"
#include "core/allocator.h"
#include "core/factory.h"
#include "core/random.h"
#include "core/tape.h"
#include "files.h"
#include "lab/compare/timing.h"
#include "lab/small_comparison.h"
#include "models/registry.h"
#include "nn/conv.h"
#include "nn/layers.h"
#include "nn/module.h"
#include "nn/norm/factory.h"
#include "nn/sequential.h"
#include "session/interrupt.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <csignal>
#include <memory>
#include <string>

using namespace norma;
using namespace norma::lab;
using test::small_comparison;
using test::TemporaryFolder;

namespace {

/// Two images for the steps that are timed.
TimingOptions black_images(Device device = kCpu) {
  return {.images =
              [device](const train::Recipe&) {
                return TimingImages{.batch = {.images = ones({2, 3, 32, 32}, {.device = device}),
                                              .labels = zeros({2}, {.dtype = DType::int64, .device = device})},
                                    .num_classes = 10};
              },
          .quiet = true};
}

/// Throws its error where a gradient is asked for: not before the first step.
template <class E>
class Breaking : public nn::Module {
 public:
  Tensor forward(const Tensor& x) override {
    if (grad_enabled()) {
      throw E("breaking: a gradient, at last");
    }
    return x.detach();
  }
  [[nodiscard]] std::string name() const override { return "Breaking"; }
};

}  // namespace

TEST_CASE("comparison: every model with every norm with every seed, in this order") {
  ComparisonOptions options = small_comparison("unused");
  options.models = {"resnet18", "convnext_atto"};
  options.seeds = {0, 7};
  const Comparison comparison = plan_comparison(options);
  REQUIRE(comparison.cells.size() == 8);
  CHECK(comparison.cells[0].model == "resnet18");
  CHECK(comparison.cells[1].seed == 7);
  CHECK(comparison.cells[2].norm == "layer2d");
  CHECK(comparison.cells[4].model == "convnext_atto");
  for (const Cell& cell : comparison.cells) {
    CHECK(cell.state == CellState::pending);
  }
}

TEST_CASE("comparison: lists are checked before anything runs") {
  ComparisonOptions options = small_comparison("unused");
  options.norms = {"batch", "bath"};
  CHECK_THROWS_WITH_AS(plan_comparison(options), "norm: unknown norm 'bath'; did you mean 'batch'?", Error);
  options.norms = {"batch", "batch"};
  CHECK_THROWS_WITH_AS(plan_comparison(options), "compare: norms: expected each once, got batch twice", Error);
  options.norms = {};
  CHECK_THROWS_WITH_AS(plan_comparison(options), "compare: norms: expected at least one, got none", Error);
  options.norms = {"batch", ""};
  CHECK_THROWS_WITH_AS(plan_comparison(options), "compare: norms: expected a name, got an empty one", Error);
  options.norms = {"batch"};
  options.models = {"resnet"};
  CHECK_THROWS_WITH_AS(plan_comparison(options), "train: unknown model 'resnet'; did you mean 'resnet18'?", Error);
  options.models = {"resnet18"};
  options.seeds = {1, 2, 1};
  CHECK_THROWS_WITH_AS(plan_comparison(options), "compare: seeds: expected each once, got 1 twice", Error);
  options.seeds = {1};
  options.recipe.lr = -1;
  CHECK_THROWS_WITH_AS(plan_comparison(options), "train: lr: expected a number in (0, 1000], got -1", Error);
}

TEST_CASE("comparison: a network of one's own beside Norma's, whose options are not for it") {
  models::register_model("two_layers", {.make = [](const models::ModelOptions& given) -> std::shared_ptr<nn::Module> {
                                          manual_seed(given.seed);
                                          auto network = std::make_shared<nn::Sequential>();
                                          network->push_back(std::make_shared<nn::Conv2d>(3, 8, 3));
                                          network->push_back(nn::make_norm(given.norm, 8));
                                          network->push_back(std::make_shared<nn::AdaptiveAvgPool2d>(1));
                                          network->push_back(std::make_shared<nn::Flatten>());
                                          network->push_back(std::make_shared<nn::Linear>(8, given.num_classes));
                                          return network;
                                        },
                                        .own_norm = "batch"});
  const TemporaryFolder folder;
  ComparisonOptions options = small_comparison(folder / "report");
  options.models = {"two_layers", "convnext_atto"};
  options.norms = {"batch", "layer2d"};
  options.recipe.patch_size = 4;
  Comparison comparison = plan_comparison(options);
  rehearse_comparison(comparison);
  run_comparison(comparison, options);
  REQUIRE(comparison.cells.size() == 4);
  for (const Cell& cell : comparison.cells) {
    CHECK_MESSAGE(cell.state == CellState::finished, cell.reason);
  }
  CHECK(comparison.cells[0].parameters == 3 * 8 * 9 + 8 + 16 + 8 * 10 + 10);
}

TEST_CASE("comparison: a cell that fails says why, and the others finish") {
  nn::register_norm("takes_all_memory", [](int64_t) { return std::make_shared<Breaking<OutOfMemory>>(); });
  nn::register_norm("breaks_in_training", [](int64_t) { return std::make_shared<Breaking<Error>>(); });
  const TemporaryFolder folder;
  ComparisonOptions options = small_comparison(folder / "report");
  options.norms = {"breaks_in_training", "batch", "takes_all_memory"};
  Comparison comparison = plan_comparison(options);
  run_comparison(comparison, options);
  CHECK(comparison.cells[0].state == CellState::failed);
  CHECK(comparison.cells[0].reason == "breaking: a gradient, at last");
  CHECK_FALSE(comparison.cells[0].from_outside);
  CHECK(comparison.cells[2].state == CellState::failed);
  CHECK(comparison_from_json(to_json(comparison)).cells[2].from_outside);
  const Cell& cell = comparison.cells[1];
  CHECK(cell.state == CellState::finished);
  CHECK(cell.losses.size() == 2);
  CHECK(cell.images_per_second > 0);
  CHECK(cell.peak_bytes > 0);
  CHECK(cell.parameters > 1'000'000);
  CHECK_FALSE(comparison.cells[0].telemetry);
  REQUIRE(cell.telemetry);
  CHECK(cell.telemetry->losses.size() == 2);
  CHECK(cell.telemetry->tests.back().accuracy == cell.accuracy);
  CHECK(cell.telemetry->step_time.samples == 1);
  CHECK(comparison_from_json(to_json(comparison)).cells[1].telemetry->saved_bytes() == cell.telemetry->saved_bytes());
  // A record is one line of the file, and no text of a cell is taken for its place.
  Comparison odd = comparison;
  odd.cells[0].reason = "\"telemetry\": \"@\"";
  odd.environment.libraries["telemetry"] = "@";
  const Comparison found = comparison_from_json(to_json(odd));
  CHECK(found.cells[0].reason == odd.cells[0].reason);
  CHECK(found.environment.libraries.at("telemetry") == "@");
  CHECK_FALSE(found.cells[0].telemetry);
  CHECK(found.cells[1].telemetry->losses[1].loss == doctest::Approx(cell.telemetry->losses[1].loss).epsilon(1e-5));
  const std::string text = to_json(comparison);
  const size_t record = text.find("\"telemetry\": {");
  CHECK(text.find("\"gap_deviation\"") < text.find('\n', record));
  CHECK(test::read_file(folder / "report/results.json") == to_json(comparison));
  CHECK(test::read_file(folder / "report/results.csv") == to_csv(comparison));
  CHECK(test::read_file(folder / "report/report.html") == to_html(comparison));
}

TEST_CASE("comparison: a run that diverges keeps its record until then") {
  const TemporaryFolder folder;
  ComparisonOptions options = small_comparison(folder / "report");
  options.norms = {"none"};
  options.recipe.images = 40;
  options.recipe.opt = "sgd";
  options.recipe.sched = "constant";
  options.recipe.lr = 1000;
  options.recipe.momentum = 0;
  Comparison comparison = plan_comparison(options);
  run_comparison(comparison, options);
  const Cell& cell = comparison.cells[0];
  CHECK_MESSAGE(cell.reason.find("the loss became") != std::string::npos, cell.reason);
  REQUIRE(cell.telemetry);
  CHECK(cell.telemetry->losses.size() < 10);
  const Comparison found = comparison_from_json(test::read_file(folder / "report/results.json"));
  CHECK(found.cells[0].telemetry->losses.size() == cell.telemetry->losses.size());
}

TEST_CASE("comparison: one in which a combination cannot run can be resumed when the others are finished") {
  const TemporaryFolder folder;
  ComparisonOptions options = small_comparison(folder / "report");
  options.batch_sizes = {1, 2};  // batch norm needs two images where the last ones have one pixel
  options.recipe.images = 2;
  Comparison comparison = plan_comparison(options);
  rehearse_comparison(comparison);
  run_comparison(comparison, options);
  CHECK(comparison.cells[0].state == CellState::failed);
  CHECK(comparison.cells[2].state == CellState::finished);
  CHECK_NOTHROW(rehearse_comparison(comparison));
}

TEST_CASE("comparison: telemetry changes no result, and can be left out") {
  const TemporaryFolder folder;
  ComparisonOptions options = small_comparison(folder / "with");
  options.norms = {"batch"};
  const auto run = [&] {
    Comparison comparison = plan_comparison(options);
    run_comparison(comparison, options);
    return comparison;
  };
  const Comparison with = run();
  options.telemetry = false;
  options.output = folder / "without";
  const Comparison without = run();
  REQUIRE(with.cells[0].telemetry);
  CHECK_FALSE(without.cells[0].telemetry);
  CHECK(with.cells[0].losses == without.cells[0].losses);
  CHECK(with.cells[0].accuracy == without.cells[0].accuracy);
  CHECK(to_json(without).find("\"telemetry\": {") == std::string::npos);
  CHECK_FALSE(comparison_from_json(to_json(without)).telemetry);  // those that are resumed have none either
  CHECK(comparison_from_json(to_json(with)).telemetry);
}

TEST_CASE("comparison: the norms of a model take turns, in rounds spread over the whole comparison") {
  const TemporaryFolder folder;
  ComparisonOptions options = small_comparison(folder / "report");
  options.timing_rounds = 6;
  options.recipe.images = 4;
  Comparison comparison = plan_comparison(options);
  CHECK(!timing_is_complete(comparison));
  run_comparison(comparison, options);
  CHECK(timing_is_complete(comparison));
  REQUIRE(comparison.timings.size() == 1);
  for (const Timing& timing : comparison.timings) {
    CHECK(timing.norms == options.norms);
    CHECK(timing.problem.empty());
    REQUIRE(timing.rounds.size() == 6);
    for (const std::vector<double>& round : timing.rounds) {
      REQUIRE(round.size() == 2);
      CHECK(round[0] > 0);
      CHECK(round[1] > 0);
    }
  }
  const std::vector<Row> rows = summarize(comparison);
  CHECK(!rows[0].tax);  // batch itself
  REQUIRE(rows[1].tax);
  CHECK(rows[1].tax->pairs == 6);
  CHECK(rows[1].tax->known());
  CHECK(rows[1].tax->difference < 1);

  Comparison found = comparison_from_json(test::read_file(folder / "report/results.json"));
  CHECK(found.timings[0].rounds == comparison.timings[0].rounds);
  found.timings[0].rounds.resize(2);  // as if it had been killed early
  CHECK(!timing_is_complete(found));
  run_comparison(found, options);
  CHECK(timing_is_complete(found));
  CHECK(found.timings[0].rounds.size() == 6);
  CHECK(found.timings[0].rounds[1] == comparison.timings[0].rounds[1]);  // these were kept
}

TEST_CASE("comparison: rounds are due in the proportion of what is done") {
  ComparisonOptions options = small_comparison("unused");
  options.timing_rounds = 3;
  Comparison comparison = plan_comparison(options);
  time_norms(comparison, 1, black_images());  // the second of three moments
  CHECK(comparison.timings[0].rounds.size() == 2);
  CHECK(!timing_is_complete(comparison));
  time_norms(comparison, 0, black_images());
  CHECK(comparison.timings[0].rounds.size() == 2);
  {
    const train::InterruptGuard guard;
    std::raise(SIGINT);
    time_norms(comparison, 2, black_images());
  }
  CHECK(comparison.timings[0].rounds.size() == 2);
  time_norms(comparison, 2, black_images());
  CHECK(timing_is_complete(comparison));
}

TEST_CASE("comparison: batches are on the CPU, the networks that are timed on the default device") {
  ComparisonOptions options = small_comparison("unused");
  options.timing_rounds = 1;
  Comparison comparison = plan_comparison(options);
  const DefaultDeviceGuard device(kCudaEmulated);
  time_norms(comparison, comparison.cells.size(), black_images());
  CHECK(comparison.timings[0].problem.empty());
  CHECK(comparison.timings[0].rounds[0][1] > 0);
}

TEST_CASE("comparison: a signal while norms are timed begins no run") {
  const TemporaryFolder folder;
  ComparisonOptions options = small_comparison(folder / "report");
  options.timing_rounds = 4;
  Comparison comparison = plan_comparison(options);
  comparison.cells[0].state = CellState::failed;
  comparison.cells[0].reason = "kept";
  const train::InterruptGuard guard;
  std::raise(SIGINT);
  run_comparison(comparison, options);
  CHECK(comparison.cells[0].state == CellState::failed);
  CHECK(comparison.cells[0].reason == "kept");
}

TEST_CASE("comparison: nothing is timed where there is nothing to compare with") {
  const auto can = [](std::vector<std::string> norms) {
    ComparisonOptions options = small_comparison("unused");
    options.norms = std::move(norms);
    const Comparison comparison = plan_comparison(options);
    return can_be_timed(comparison, timing_group(comparison.cells.front()));
  };
  CHECK(can({"batch", "layer2d"}));
  CHECK(can({"layer2d", "batch[eps=0.001]"}));
  CHECK(!can({"batch"}));
  CHECK(!can({"layer2d", "group:4"}));
}

TEST_CASE("comparison: a norm that fails while it is timed leaves the others their tax") {
  nn::register_norm("breaks_while_timed", [](int64_t) { return std::make_shared<Breaking<Error>>(); });
  ComparisonOptions options = small_comparison("unused");
  options.norms = {"breaks_while_timed", "batch", "layer2d"};
  options.timing_rounds = 1;
  Comparison comparison = plan_comparison(options);
  time_norms(comparison, comparison.cells.size(), black_images());
  CHECK(comparison.timings[0].problem == "breaks_while_timed: breaking: a gradient, at last");
  const std::vector<Row> rows = summarize(comparison);
  CHECK(!rows[0].tax);
  CHECK(rows[2].tax);
  CHECK(tax_note(comparison).find("Not all steps of convnext_atto were timed: breaks_while_timed: breaking") !=
        std::string::npos);
  const Comparison found = comparison_from_json(to_json(comparison));
  CHECK(std::isnan(found.timings[0].rounds[0][0]));
  CHECK(found.timings[0].rounds[0][1] == comparison.timings[0].rounds[0][1]);
}

TEST_CASE("comparison: both families take the options that are theirs") {
  const TemporaryFolder folder;
  ComparisonOptions options = small_comparison(folder / "report");
  options.models = {"resnet18", "convnext_atto"};
  options.norms = {"layer2d"};
  Comparison comparison = plan_comparison(options);
  run_comparison(comparison, options);
  for (const Cell& cell : comparison.cells) {
    CHECK_MESSAGE(cell.state == CellState::finished, cell.reason);
  }
}

TEST_CASE("comparison: an interrupted one reports what is done, and a later one does the rest") {
  const TemporaryFolder folder;
  const ComparisonOptions options = small_comparison(folder / "report");
  Comparison whole = plan_comparison(options);
  run_comparison(whole, options);

  Comparison comparison = plan_comparison(options);
  comparison.cells[0] = whole.cells[0];
  {
    const train::InterruptGuard guard;
    std::raise(SIGINT);
    run_comparison(comparison, options);
  }
  Comparison found = comparison_from_json(test::read_file(folder / "report/results.json"));
  CHECK(found.cells[0].state == CellState::finished);
  CHECK(found.cells[1].state == CellState::pending);
  run_comparison(found, options);
  CHECK(found.cells[1].state == CellState::finished);
  CHECK(found.cells[1].losses == whole.cells[1].losses);
  CHECK(found.cells[0].images_per_second == whole.cells[0].images_per_second);  // it did not run again
}

TEST_CASE("comparison: every cell is tried before the first step") {
  const TemporaryFolder folder;
  const auto error_with = [&](auto&& change) {
    ComparisonOptions options = small_comparison(folder / "report");
    change(options);
    return test::error_of([&] {
      Comparison comparison = plan_comparison(options);
      rehearse_comparison(comparison);
    });
  };
  CHECK(error_with([](ComparisonOptions& o) {
          o.norms = {"layer2d", "group:7"};
        }).starts_with("compare: convnext_atto with norm group:7: "));
  CHECK(error_with([](ComparisonOptions& o) {
          o.models = {"resnet18"};
          o.norms = {"batch"};
          o.recipe.batch_size = 1;
          o.recipe.small_stem = false;
        }).starts_with("compare: resnet18 with norm batch: batch_norm: "));
  CHECK(error_with([](ComparisonOptions& o) {
          o.recipe.image_size = 20;
          o.recipe.patch_size = 8;
        }) == "train: img-size: expected at least 64 for convnext_atto with a patch-size of 8, got 20");
  CHECK(error_with([](ComparisonOptions& o) { o.recipe.images = 3; }) ==
        "compare: convnext_atto with norm batch: train: images: expected at least a batch of 4 (option -b), got 3");
  CHECK(error_with([](ComparisonOptions& o) {
          o.recipe.precision = "float12";
        }).starts_with("precision: unknown precision 'float12'"));
  CHECK(folder.names().empty());
}

TEST_CASE("comparison: the time left is that of all cells") {
  Comparison comparison;
  const auto add = [&](const char* model, CellState state, double seconds) {
    Cell cell;
    cell.model = model;
    cell.state = state;
    cell.seconds = seconds;
    comparison.cells.push_back(cell);
  };
  add("a", CellState::finished, 10);
  add("a", CellState::finished, 20);
  add("b", CellState::pending, 0);
  add("a", CellState::pending, 0);
  add("b", CellState::pending, 0);
  add("c", CellState::failed, 0);
  add("a", CellState::finished, 60);
  // 30 for the a, 6 for the b as for the one that runs, and the mean of all four for c.
  CHECK(seconds_after(comparison, 2, 6) == doctest::Approx(30 + 6 + 24));
  CHECK(seconds_after(comparison, 5, 6) == 0);
  // 105 were taken where 70 were expected; 20, 10 and 2 are left.
  const std::vector<double> expected = {8, 8, 4, 20, 10, 2, 50};
  CHECK(seconds_after(comparison, 2, 15, expected) == doctest::Approx(1.5 * 32));
  CHECK(seconds_after(comparison, 2, 6, {0, 0, 0, 20, 10, 2, 0}) == doctest::Approx(30 + 6 + 24));
}

TEST_CASE("comparison: data and output are looked at before the first cell") {
  const TemporaryFolder folder;
  ComparisonOptions options = small_comparison(folder / "report");
  options.recipe.dataset = "idx";
  options.recipe.data_dir = (folder / "nowhere").string();
  Comparison comparison = plan_comparison(options);
  CHECK_THROWS_WITH_AS(rehearse_comparison(comparison),
                       ("idx: " + (folder / "nowhere").string() + ": no such folder").c_str(), Error);
  test::write_file(folder / "file", "");
  options = small_comparison(folder / "file");
  comparison = plan_comparison(options);
  CHECK_THROWS_WITH_AS(run_comparison(comparison, options),
                       ("compare: cannot write " + (folder / "file").string() + ": Not a directory").c_str(), Error);
}
