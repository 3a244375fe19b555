#include "lab/compare/request.h"

#include "error_text.h"
#include "train/recipe_option.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <set>
#include <string>
#include <vector>

using namespace norma;
using namespace norma::lab;
using norma::test::error_of;

namespace {

/// Gives words to an option. Returns whether it took all of them.
bool give(ComparisonRequest& request, const std::string& name, const std::vector<std::string>& words) {
  const std::vector<train::OptionRow> rows = option_rows(request);
  const auto row = std::ranges::find_if(
      rows, [&](const train::OptionRow& one) { return std::ranges::find(one.names, name) != one.names.end(); });
  row->begin();
  return std::ranges::all_of(words, row->take);
}

void check_together(ComparisonRequest& request) {
  check_given_together(option_rows(request), request);
}

}  // namespace

TEST_CASE("comparison request: every option of a recipe that grids can have is there once") {
  ComparisonRequest request;
  const std::vector<train::OptionRow> options = option_rows(request);
  std::set<std::string> names;
  for (const train::OptionRow& option : options) {
    for (const std::string& name : option.names) {
      CHECK_MESSAGE(names.insert(name).second, name);
    }
    CHECK_MESSAGE(!option.help.empty(), option.names.back());
    CHECK_MESSAGE((option.is_switch() || !option.expected.empty()), option.names.back());
  }
  for (const train::OptionRow& option : options) {
    for (const std::string& other : option.excludes) {
      CHECK_MESSAGE(names.contains(other), other);
    }
  }
  using Part = train::RecipePart;
  for (const train::RecipeOption& option : train::recipe_options()) {
    const bool of_one_run = option.part == Part::run || option.part == Part::conversion;
    CHECK_MESSAGE(names.contains(option.name) == !of_one_run, option.name);
  }
}

TEST_CASE("comparison request: words become the grid, and what all runs share") {
  ComparisonRequest request;
  CHECK(request.options.recipe.images == 25600);
  CHECK(give(request, "model", {"resnet18"}));
  CHECK(give(request, "batch-size", {"4", "8"}));
  CHECK(give(request, "b", {"16", "32"}));
  CHECK(give(request, "opt", {"sgd", "lamb"}));
  CHECK(give(request, "formats", {"contiguous"}));
  CHECK(give(request, "flip", {"true"}));
  CHECK(give(request, "epochs", {"2"}));
  CHECK(give(request, "budget", {"15m"}));
  CHECK(give(request, "seeds", {"3", "18446744073709551615"}));
  CHECK(request.options.models == std::vector<std::string>{"resnet18"});
  CHECK(request.options.batch_sizes == std::vector<int64_t>{16, 32});
  CHECK(request.options.options.at("opt") == std::vector<std::string>{"sgd", "lamb"});
  CHECK(request.options.formats == std::vector<MemoryFormat>{MemoryFormat::contiguous});
  CHECK(request.options.seeds == std::vector<uint64_t>{3, 18446744073709551615U});
  CHECK(request.options.recipe.flip);
  CHECK(request.options.recipe.epochs == 2);
  CHECK(request.options.recipe.images == 0);  // epochs replace them
  CHECK(request.budget == 900);
  CHECK(request.has({"models"}));
  CHECK_FALSE(request.has({"norms", "images"}));
  CHECK(request.given_recipe_options() == std::vector<std::string>{"epochs"});
}

TEST_CASE("comparison request: words that are no value, and options that exclude each other") {
  ComparisonRequest request;
  CHECK_FALSE(give(request, "lrs", {"0.1", "fast"}));
  CHECK_FALSE(give(request, "batch-sizes", {"0"}));
  CHECK_FALSE(give(request, "norms", {""}));
  CHECK_FALSE(give(request, "formats", {"nchw"}));
  CHECK_FALSE(give(request, "weights", {"best"}));
  CHECK_FALSE(give(request, "checkpoint-interval", {"0s"}));
  CHECK_FALSE(give(request, "drop-path", {"1"}));
  CHECK(error_of([&] { give(request, "study", {"quick"}); }).starts_with("study: unknown study 'quick'"));
  give(request, "quick", {"true"});
  CHECK(error_of([&] { check_together(request); }) == "compare: --study excludes --quick");
  ComparisonRequest other;
  give(other, "images", {"8"});
  give(other, "budget", {"1m"});
  CHECK(error_of([&] { check_together(other); }) == "compare: --images excludes --budget");
}
