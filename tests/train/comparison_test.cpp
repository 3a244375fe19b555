#include "train/comparison.h"

#include "core/error.h"
#include "files.h"
#include "train/interrupt.h"

#include <doctest/doctest.h>

#include <csignal>
#include <string>

using namespace norma;
using namespace norma::train;
using test::TemporaryFolder;

namespace {

ComparisonOptions small(const std::filesystem::path& output) {
  ComparisonOptions options;
  options.recipe.dataset = "shapes";
  options.recipe.patch_size = 4;
  options.recipe.small_stem = true;
  options.recipe.batch_size = 4;
  options.recipe.images = 8;
  options.recipe.test_images = 8;
  options.models = {"convnext_atto"};
  options.norms = {"batch", "layer2d"};
  options.output = output;
  options.quiet = true;
  return options;
}

}  // namespace

TEST_CASE("comparison: every model with every norm with every seed, in this order") {
  ComparisonOptions options = small("unused");
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
  ComparisonOptions options = small("unused");
  options.norms = {"batch", "bath"};
  CHECK_THROWS_AS(plan_comparison(options), Error);
  options.norms = {"batch", "batch"};
  CHECK_THROWS_WITH_AS(plan_comparison(options), "compare: norms: expected each once, got batch twice", Error);
  options.norms = {};
  CHECK_THROWS_WITH_AS(plan_comparison(options), "compare: norms: expected at least one, got none", Error);
  options.norms = {"batch", ""};
  CHECK_THROWS_WITH_AS(plan_comparison(options), "compare: norms: expected a name, got an empty one", Error);
  options.norms = {"batch"};
  options.models = {"resnet"};
  CHECK_THROWS_AS(plan_comparison(options), Error);
  options.models = {"resnet18"};
  options.seeds = {1, 2, 1};
  CHECK_THROWS_WITH_AS(plan_comparison(options), "compare: seeds: expected each once, got 1 twice", Error);
  options.seeds = {1};
  options.recipe.lr = -1;
  CHECK_THROWS_WITH_AS(plan_comparison(options), "train: lr: expected a positive number, got -1", Error);
}

TEST_CASE("comparison: a cell that fails says why, and the others finish") {
  const TemporaryFolder folder;
  ComparisonOptions options = small(folder / "report");
  options.norms = {"group:7", "batch"};
  Comparison comparison = plan_comparison(options);
  run_comparison(comparison, options);
  CHECK(comparison.cells[0].state == CellState::failed);
  CHECK_MESSAGE(comparison.cells[0].reason.find("7") != std::string::npos, comparison.cells[0].reason);
  const Cell& cell = comparison.cells[1];
  CHECK(cell.state == CellState::finished);
  CHECK(cell.losses.size() == 2);
  CHECK(cell.images_per_second > 0);
  CHECK(cell.peak_bytes > 0);
  CHECK(cell.parameters > 1'000'000);
  CHECK(test::read_file(folder / "report/results.json") == to_json(comparison));
  CHECK(test::read_file(folder / "report/results.csv") == to_csv(comparison));
  CHECK(test::read_file(folder / "report/report.html") == to_html(comparison));
}

TEST_CASE("comparison: both families take the options that are theirs") {
  const TemporaryFolder folder;
  ComparisonOptions options = small(folder / "report");
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
  const ComparisonOptions options = small(folder / "report");
  Comparison whole = plan_comparison(options);
  run_comparison(whole, options);

  Comparison comparison = plan_comparison(options);
  comparison.cells[0] = whole.cells[0];
  {
    const InterruptGuard guard;
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

TEST_CASE("comparison: data and output are looked at before the first cell") {
  const TemporaryFolder folder;
  ComparisonOptions options = small(folder / "report");
  options.recipe.dataset = "idx";
  options.recipe.data_dir = (folder / "nowhere").string();
  Comparison comparison = plan_comparison(options);
  CHECK_THROWS_AS(run_comparison(comparison, options), Error);
  test::write_file(folder / "file", "");
  options = small(folder / "file");
  comparison = plan_comparison(options);
  CHECK_THROWS_WITH_AS(run_comparison(comparison, options),
                       ("compare: cannot write " + (folder / "file").string() + ": Not a directory").c_str(), Error);
}
