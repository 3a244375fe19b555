#include "base/error.h"
#include "error_text.h"
#include "files.h"
#include "lab/compare/comparison.h"
#include "lab/compare/timing.h"
#include "lab/small_comparison.h"
#include "nn/module.h"

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <string>
#include <vector>

using namespace norma;
using namespace norma::lab;
using test::small_comparison;
using test::TemporaryFolder;

TEST_CASE("grid: every axis may have several values, and the cells are their product") {
  ComparisonOptions options = small_comparison("unused");
  options.models = {"resnet18", "convnext_atto"};
  options.batch_sizes = {2, 4};
  options.lrs = {0.1, 0.2};
  options.precisions = {"float32", "bfloat16"};
  options.formats = {MemoryFormat::contiguous, MemoryFormat::channels_last};
  options.datasets = {"shapes", "fashion_mnist"};
  options.seeds = {0, 1};
  const Comparison comparison = plan_comparison(options);
  REQUIRE(comparison.cells.size() == 2 * 2 * 2 * 2 * 2 * 2 * 2 * 2);
  for (size_t i = 0; i < comparison.cells.size(); ++i) {
    CHECK(std::find(comparison.cells.begin() + static_cast<std::ptrdiff_t>(i) + 1, comparison.cells.end(),
                    comparison.cells[i]) == comparison.cells.end());
  }
  const Cell& last = comparison.cells.back();
  const train::Recipe recipe = recipe_of(comparison.recipe, last);
  CHECK(recipe.model == "convnext_atto");
  CHECK(recipe.norm == "layer2d");
  CHECK(recipe.batch_size == 4);
  CHECK(recipe.lr == 0.2);
  CHECK(recipe.precision == "bfloat16");
  CHECK(recipe.channels_last);
  CHECK(recipe.dataset == "fashion_mnist");
  CHECK(recipe.seed == 1);
  CHECK(recipe.images == options.recipe.images);  // however many are in a batch
  CHECK(label_of(comparison, last) ==
        "convnext_atto layer2d, dataset fashion_mnist, batch size 4, lr 0.2, precision bfloat16, format channels_last, "
        "seed 1");
}

TEST_CASE("grid: what is wrong with a further axis is said before anything runs") {
  const auto error_with = [](auto&& change) {
    ComparisonOptions options = small_comparison("unused");
    change(options);
    return test::error_of([&] { plan_comparison(options); });
  };
  CHECK(error_with([](ComparisonOptions& o) {
          o.batch_sizes = {4, 8, 4};
        }) == "compare: batch-sizes: expected each once, got 4 twice");
  CHECK(error_with([](ComparisonOptions& o) {
          o.formats = {MemoryFormat::contiguous, MemoryFormat::contiguous};
        }) == "compare: formats: expected each once, got contiguous twice");
  CHECK(error_with([](ComparisonOptions& o) { o.precisions = {"float32", "float33"}; }).starts_with("precision: "));
  CHECK(error_with([](ComparisonOptions& o) {
          o.datasets = {"shapes", "shape"};
        }).starts_with("train: unknown dataset 'shape'"));
  CHECK(error_with([](ComparisonOptions& o) {
          o.lrs = {0.1, -0.1};
        }) == "train: lr: expected a number in (0, 1000], got -0.1");
  CHECK(error_with([](ComparisonOptions& o) {
          o.datasets = {"idx", "fashion_mnist"};
          o.recipe.data_dir = "images";
        }) == "compare: data-dir: expected one dataset that is read from files, got 2");
  CHECK(error_with([](ComparisonOptions& o) {
          o.precisions = {"float32", "bfloat16"};
          o.recipe.cast_policy = "\"batch_norm\" = \"float32\"\n";
        }) != "no error");
}

TEST_CASE("grid: a cast policy is for the cells whose precision has one, data's folder for those that read it") {
  ComparisonOptions options = small_comparison("unused");
  options.precisions = {"float32", "amp_bfloat16"};
  options.recipe.cast_policy = "\"batch_norm\" = \"float32\"\n";
  options.datasets = {"shapes", "idx"};
  options.recipe.data_dir = "images";
  const Comparison comparison = plan_comparison(options);
  for (const Cell& cell : comparison.cells) {
    const train::Recipe recipe = recipe_of(comparison.recipe, cell);
    CHECK(recipe.cast_policy.empty() == (cell.precision == "float32"));
    CHECK(recipe.data_dir.empty() == (cell.dataset == "shapes"));
  }
}

TEST_CASE("grid: a combination that cannot run is a failed cell, and what never can is an error") {
  const TemporaryFolder folder;
  ComparisonOptions options = small_comparison(folder / "report");
  options.recipe.images = 2;
  options.batch_sizes = {1, 2};  // batch norm has one value per channel in the last stage
  Comparison comparison = plan_comparison(options);
  rehearse_comparison(comparison);
  run_comparison(comparison, options);
  CHECK(comparison.cells[0].norm == "batch");
  CHECK(comparison.cells[0].state == CellState::failed);
  CHECK(comparison.cells[0].reason.starts_with("batch_norm: "));
  for (size_t i = 1; i < 4; ++i) {
    CHECK_MESSAGE(comparison.cells[i].state == CellState::finished, comparison.cells[i].reason);
  }
  CHECK(comparison.cells[1].losses.size() == 2);
  CHECK(comparison.cells[3].losses.size() == 1);
  options.batch_sizes = {2, 4};  // two images are no batch of four
  CHECK(test::error_of([&] {
          rehearse_comparison(plan_comparison(options));
        }).starts_with("compare: batch size 4: train: images: expected at least a batch of 4 (option -b), got 2"));
}

TEST_CASE("grid: each group of settings has rounds of its own, at some of the moments") {
  ComparisonOptions options = small_comparison("unused");
  options.batch_sizes = {2, 4, 8};
  options.precisions = {"float32", "bfloat16"};
  options.lrs = {0.1, 0.2};
  options.timing_rounds = 5;
  Comparison comparison = plan_comparison(options);
  std::vector<int64_t> asked;
  TimingOptions timing{.images = [&](const train::Recipe& recipe) -> TimingImages {
                         asked.push_back(recipe.batch_size);
                         fail("images", "none of {}", recipe.batch_size);
                       },
                       .quiet = true};
  for (size_t cell = 0; cell <= comparison.cells.size(); ++cell) {
    time_norms(comparison, cell, timing);
    CHECK(timing_is_complete(comparison) == (cell == comparison.cells.size()));
  }
  REQUIRE(comparison.timings.size() == 6);  // learning rates share theirs
  CHECK(asked.size() == 6 * 4);             // each group four times, not at all 25 moments
  for (const Timing& one : comparison.timings) {
    CHECK(one.rounds.size() == 5);
    CHECK(one.problem == fmt::format("images: none of {}", one.group.batch_size));
  }
  CHECK(!summarize(comparison)[1].tax);
}

TEST_CASE("grid: networks with different norms start from the same weights") {
  const auto weights = [](const std::string& model, const std::string& norm) {
    Settings settings;
    settings.model = model;
    settings.norm = norm;
    settings.seed = 7;
    return train::make_model(recipe_of(train::Recipe{}, settings), /* num_classes= */ 10)->state_dict();
  };
  const auto bits = [](const Tensor& x) { return x.to_vector<float>(); };
  const auto check_same = [&](const std::string& model, const std::vector<std::string>& norms) {
    const nn::NamedTensors reference = weights(model, "batch");
    for (const std::string& norm : norms) {
      CAPTURE(model);
      CAPTURE(norm);
      const nn::NamedTensors tensors = weights(model, norm);
      const std::map<std::string, Tensor> by_name(tensors.begin(), tensors.end());
      int64_t compared = 0;
      for (const auto& [name, x] : reference) {
        if (x.rank() >= 2) {  // convolutions and the last layer
          REQUIRE_MESSAGE(by_name.contains(name), name);
          CHECK_MESSAGE(bits(by_name.at(name)) == bits(x), name);
          ++compared;
        }
      }
      CHECK(compared > 20);
    }
  };
  check_same("resnet18", {"group:8"});
  check_same("convnext_atto", {"evonorm_s0", "none"});
}

TEST_CASE("grid: batches of any size hold the same images in the same order") {
  const auto labels = [](int64_t batch_size) {
    train::Recipe recipe = small_comparison("unused").recipe;
    recipe.batch_size = batch_size;
    data::Loader loader =
        train::make_train_loader(recipe, train::make_dataset(recipe, data::Split::train), /* workers= */ 0);
    std::vector<int64_t> all;
    while (const auto batch = loader.next()) {
      const std::vector<int64_t> some = batch->labels.to_vector<int64_t>();
      all.insert(all.end(), some.begin(), some.end());
    }
    return all;
  };
  CHECK(labels(2).size() == 8);
  CHECK(labels(2) == labels(8));
}
