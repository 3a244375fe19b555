#include "lab/report/report.h"

#include "lab/report_cases.h"
#include "train/other_values.h"

#include <doctest/doctest.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <set>
#include <string>
#include <utility>
#include <vector>

using namespace norma;
using namespace norma::lab;
using namespace norma::test;

namespace {

/// A comparison with the default recipe on all cores, and a run of resnet18 in it.
std::pair<Comparison, Cell> with_defaults() {
  Comparison comparison = example();
  comparison.recipe = {};
  comparison.environment.threads = comparison.environment.cores;
  Cell cell;
  static_cast<Settings&>(cell) = settings_of(comparison.recipe);
  cell.model = "resnet18";
  return {std::move(comparison), std::move(cell)};
}

}  // namespace

TEST_CASE("repeat command: what is as by default is left out") {
  auto [comparison, cell] = with_defaults();
  cell.norm = "batch[eps=1e-3]";
  CHECK(repeat_command(comparison, cell) == "norma train --model resnet18 --norm 'batch[eps=1e-3]'");
  cell.batch_size = 4;
  cell.lr = 0.01;
  cell.format = MemoryFormat::contiguous;
  cell.seed = 7;
  comparison.environment.device = "cuda:0, NVIDIA H200";
  comparison.environment.threads = comparison.environment.cores + 1;
  comparison.environment.plugins = {{.file = "/p/a b.so", .sha256 = "0"}, {.file = "/p/c.so", .sha256 = "1"}};
  CHECK(repeat_command(comparison, cell) ==
        "norma train --model resnet18 --norm 'batch[eps=1e-3]' --batch-size 4 --no-channels-last --lr 0.01 --seed 7 "
        "--plugin '/p/a b.so' --plugin /p/c.so --device cuda --threads " +
            std::to_string(comparison.environment.threads));
}

TEST_CASE("repeat command: averaged weights with statistics of their own are tested by another command") {
  auto [comparison, cell] = with_defaults();
  cell.norm = "batch";
  const std::string averages =
      "norma train --model resnet18 --norm batch --model-ema --model-ema-decay 0.99 "
      "--model-ema-warmup";
  cell.options[kWeights] = "ema";
  CHECK(repeat_command(comparison, cell) == averages);
  cell.options[kWeights] = kRecalibrated;
  const std::string test = "norma eval --checkpoint run --use-ema --recalibrate 50";
  CHECK(repeat_command(comparison, cell) == averages + " --output run && " + test);
  comparison.environment.exact_convolutions = true;
  comparison.environment.threads = comparison.environment.cores + 1;
  comparison.environment.plugins = {{.file = "c.so", .sha256 = "1"}};
  const std::string machine = " --plugin c.so --conv exact --threads " + std::to_string(comparison.environment.threads);
  CHECK(repeat_command(comparison, cell) == averages + machine + " --output run && " + test + machine);
}

TEST_CASE("repeat command: a norm that a program has registered is repeated in Python") {
  auto [comparison, cell] = with_defaults();
  cell.norm = "mine[alpha=0.5]";
  cell.options[kWeights] = kRecalibrated;
  CHECK(repeat_command(comparison, cell) ==
        "norma.run(\"train\",\"--model\",\"resnet18\",\"--norm\",\"mine[alpha=0.5]\",\"--model-ema\","
        "\"--model-ema-decay\",\"0.99\",\"--model-ema-warmup\",\"--output\",\"run\"); "
        "norma.run(\"eval\",\"--checkpoint\",\"run\",\"--use-ema\",\"--recalibrate\",\"50\")"
        "  # in the Python program that registers 'mine'");
  comparison.environment.plugins = {{.file = "/p/c.so", .sha256 = "1", .norms = {"mine"}}};
  CHECK(repeat_command(comparison, cell).starts_with("norma train --model resnet18 --norm 'mine[alpha=0.5]' "));
  cell.model = "vit_tiny";
  cell.norm = "rms2d";
  comparison.recipe.qk_norm = "yours";
  CHECK(repeat_command(comparison, cell).ends_with("  # in the Python program that registers 'yours'"));
}

TEST_CASE("repeat command: another value of each option is in it") {
  Comparison comparison = example();
  for (const train::RecipeOption& option : train::recipe_options()) {
    CAPTURE(option.name);
    comparison.recipe = test::with_other_value(option);
    if (option.name == "norm" || option.name == "qk-norm") {  // not one that another test has registered
      REQUIRE(option.take(comparison.recipe, "rms2d"));
    }
    // Casts are of these precisions, and patches and scales of these networks.
    comparison.recipe.precision = option.name.starts_with("cast") ? "amp_float16" : comparison.recipe.precision;
    if (option.name == "patch-size" || option.name == "layer-scale") {
      comparison.recipe.model = "convnext_atto";
    }
    const std::set<std::string> of_vit = {"global-pool", "qk-norm", "qkv-bias", "pos-drop", "norm-placement"};
    if (of_vit.contains(option.name)) {
      comparison.recipe.model = "vit_tiny";
    }
    Cell cell;
    static_cast<Settings&>(cell) = settings_of(comparison.recipe);
    std::string words = " --";
    if (option.is_switch()) {
      words += (option.items(comparison.recipe) == std::vector<std::string>{"true"} ? "" : "no-") + option.name;
    } else {
      words += fmt::format("{} {}", option.name, fmt::join(option.items(comparison.recipe), ","));
    }
    const std::string command = repeat_command(comparison, cell) + " ";
    CHECK_MESSAGE(command.find(words + " ") != std::string::npos, command);
  }
}
