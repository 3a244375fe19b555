#include "error_text.h"
#include "lab/compare/comparison.h"
#include "lab/compare/timing.h"
#include "lab/small_comparison.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <numeric>
#include <set>
#include <vector>

using namespace norma;
using namespace norma::lab;
using test::error_of;
using test::small_comparison;

namespace {

/// Two models, three batch sizes, three norms, two seeds: 36 cells.
Comparison large() {
  ComparisonOptions options = small_comparison("unused");
  options.models = {"resnet18", "convnext_atto"};
  options.norms = {"batch", "layer2d", "group:4"};
  options.batch_sizes = {2, 4, 8};
  options.seeds = {0, 1};
  options.recipe.images = 64;
  options.timing_rounds = 8;
  return plan_comparison(options);
}

std::map<int64_t, int64_t> loads(const std::vector<int64_t>& parts, const std::vector<int64_t>& costs) {
  std::map<int64_t, int64_t> sums;
  for (size_t i = 0; i < parts.size(); ++i) {
    sums[parts[i]] += costs[i];
  }
  return sums;
}

}  // namespace

TEST_CASE("deal: every cell comes to one part, and parts cost about the same") {
  const Comparison comparison = large();
  const std::vector<int64_t> costs = estimate_costs(comparison);
  REQUIRE(costs.size() == 36);
  const int64_t sum = std::accumulate(costs.begin(), costs.end(), int64_t{0});
  const int64_t largest = *std::ranges::max_element(costs);
  for (const int64_t count : {1, 2, 3, 4, 5, 8, 36}) {
    CAPTURE(count);
    const std::vector<int64_t> parts = deal(comparison, costs, count);
    const std::map<int64_t, int64_t> sums = loads(parts, costs);
    CHECK(sums.size() == static_cast<size_t>(count));
    CHECK(sums.begin()->first == 1);
    CHECK(sums.rbegin()->first == count);
    for (const auto& [part, load] : sums) {
      CHECK(load <= sum / count + largest);  // whoever gets the last cell had the least
      CHECK(load <= std::max(largest, sum / count + sum / count / 3));
    }
    std::vector<Comparison> taken;
    for (int64_t number = 1; number <= count; ++number) {
      take_part(taken.emplace_back(comparison), {.number = number, .count = count}, parts);
    }
    for (size_t i = 0; i < parts.size(); ++i) {
      CHECK(std::ranges::count_if(taken, [&](const Comparison& part) { return is_here(part.cells[i]); }) == 1);
    }
  }
}

TEST_CASE("deal: costs follow the work, by shapes alone") {
  ComparisonOptions grid = small_comparison("unused");
  grid.models = {"resnet18", "convnext_atto"};
  grid.batch_sizes = {2, 4, 8};
  grid.seeds = {0, 1};
  grid.timing_rounds = 8;
  const Comparison comparison = plan_comparison(grid);
  const std::vector<int64_t> costs = estimate_costs(comparison);
  const auto cost = [&](const char* model, int64_t batch, const char* norm, uint64_t seed) {
    const auto found = std::ranges::find_if(comparison.cells, [&](const Cell& cell) {
      return cell.model == model && cell.batch_size == batch && cell.norm == norm && cell.seed == seed;
    });
    return costs[static_cast<size_t>(found - comparison.cells.begin())];
  };
  CHECK(cost("resnet18", 4, "layer2d", 0) > 2 * cost("convnext_atto", 4, "layer2d", 0));
  CHECK(cost("resnet18", 2, "layer2d", 0) > cost("resnet18", 8, "layer2d", 0));  // more steps for as many images
  CHECK(cost("resnet18", 4, "layer2d", 1) == cost("resnet18", 4, "layer2d", 0));
  CHECK(cost("resnet18", 4, "batch", 0) > cost("resnet18", 4, "batch", 1));  // with the rounds of its group
  ComparisonOptions options = small_comparison("unused");
  const std::vector<int64_t> short_runs = estimate_costs(plan_comparison(options));
  CHECK(estimate_costs(plan_comparison(options)) == short_runs);
  options.recipe.images *= 2;
  CHECK(estimate_costs(plan_comparison(options))[0] > short_runs[0] * 3 / 2);
  Comparison broken = plan_comparison(options);
  broken.cells[0].norm = "group:7";  // seven groups do not divide its channels
  CHECK(estimate_costs(broken)[0] == 0);
  CHECK(deal(broken, 2) == std::vector<int64_t>{2, 1});
}

TEST_CASE("deal: a ViT's attention counts, whose products grow with the square of the tokens") {
  const auto cost = [](int64_t patch_size) {
    ComparisonOptions options = small_comparison("unused");
    options.models = {"vit_tiny"};
    options.norms = {"layer2d"};
    options.recipe.image_size = 32;
    options.recipe.patch_size = patch_size;
    options.recipe.batch_size = 64;
    options.recipe.images = 640;
    return static_cast<double>(estimate_costs(plan_comparison(options))[0]);
  };
  // 257 and 65 tokens: all else grows in proportion.
  CHECK(cost(2) / cost(4) > 1.05 * 257 / 65);
}

TEST_CASE("deal: the most expensive go first, each to the part with the least") {
  const Comparison comparison = [] {
    ComparisonOptions options = small_comparison("unused");
    options.seeds = {0, 1, 2};
    return plan_comparison(options);
  }();
  CHECK(deal(comparison, {1, 9, 2, 5, 5, 2}, 2) == std::vector<int64_t>{1, 1, 1, 2, 2, 2});
  CHECK(deal(comparison, {0, 0, 0, 0, 0, 0}, 3) == std::vector<int64_t>{1, 2, 3, 1, 2, 3});
}

TEST_CASE("deal: seeds that share their trials stay together, and a group is timed by one part") {
  ComparisonOptions options = small_comparison("unused");
  options.norms = {"batch", "layer2d", "group:4"};
  options.seeds = {0, 1};
  options.tune_lr = true;
  options.timing_rounds = 2;
  Comparison comparison = plan_comparison(options);
  const std::vector<int64_t> parts = deal(comparison, 3);
  for (size_t i = 0; i < parts.size(); i += 2) {
    CHECK(parts[i] == parts[i + 1]);
  }
  CHECK(std::set<int64_t>(parts.begin(), parts.end()).size() == 3);
  CHECK(error_of([&] { deal(comparison, 4); }) ==
        "compare: part: expected at most 3 parts for 6 runs, as seeds share their trials of learning rates, got 4");
  int timed = 0;
  for (int64_t number = 1; number <= 3; ++number) {
    Comparison part = comparison;
    take_part(part, {.number = number, .count = 3}, parts);
    CHECK(groups_to_time(part).empty() == (parts[0] != number));
    CHECK(!tuning_is_complete(part));
    timed += groups_to_time(part).empty() ? 0 : 1;
  }
  CHECK(timed == 1);
}

TEST_CASE("deal: parts that cannot be") {
  CHECK(parse_part("2/4").number == 2);
  CHECK(parse_part("4/4").count == 4);
  for (const char* wrong : {"", "x", "/", "2", "2/", "/4", "0/4", "5/4", "-1/4", "2/4/6", "2 / 4", "1/9e3"}) {
    CHECK_MESSAGE(error_of([&] { parse_part(wrong); }) ==
                      fmt::format("compare: part: expected K/N with K from 1 to N, as 2/4, got '{}'", wrong),
                  wrong);
  }
  const Comparison comparison = plan_comparison(small_comparison("unused"));
  CHECK(error_of([&] { deal(comparison, 3); }) == "compare: part: expected at most 2 parts for 2 runs, got 3");
}
