#include "lab/report/decisions.h"

#include "lab/page_check.h"
#include "lab/report/report.h"
#include "lab/report_cases.h"

#include <doctest/doctest.h>

#include <cmath>
#include <cstddef>
#include <string>
#include <utility>
#include <vector>

using namespace norma;
using namespace norma::lab;
using namespace norma::test;

namespace {

/// Batch norm and group norm in batches of 2 and 32, with three seeds: group gains `gains[i]` points on batch norm in
/// the i-th batch size, and a little more with each seed.
Comparison two_batch_sizes(const std::vector<double>& gains) {
  Comparison comparison = example();
  comparison.timings.clear();
  comparison.timing_rounds = 0;
  comparison.cells.clear();
  for (size_t i = 0; i < gains.size(); ++i) {
    for (const uint64_t seed : {0, 1, 2}) {
      const double of_seed = 0.7 + 0.01 * static_cast<double>(seed);
      const double gain = gains[i] / 100 + 0.0001 * static_cast<double>(seed * (i + 1));
      comparison.cells.push_back(finished("resnet18", "batch", seed, of_seed, 100));
      comparison.cells.push_back(finished("resnet18", "group", seed, of_seed + gain, 100));
      for (size_t back = 1; back <= 2; ++back) {
        Cell& cell = comparison.cells[comparison.cells.size() - back];
        cell.batch_size = i == 0 ? 2 : i == 1 ? 32 : 64;
        cell.lr = 0.001 * static_cast<double>(cell.batch_size);  // follows the batch size, and is no axis of its own
      }
    }
  }
  return comparison;
}

}  // namespace

TEST_CASE("interaction: the difference of differences over seeds, for each value but the first") {
  const Comparison comparison = two_batch_sizes({5, 1, 5});
  const std::vector<Interaction> found = interactions_of(comparison);
  REQUIRE(found.size() == 2);
  CHECK(found[0].axis == "batch size");
  CHECK(found[0].from == "2");
  CHECK(found[0].to == "32");
  CHECK(found[0].norm == "group");
  CHECK(found[0].place == "resnet18");
  // -4, -3.99 and -3.98 points: the mean, and t of two degrees and 0.05 / 2, which is 6.205, times 0.01 / sqrt(3).
  CHECK(found[0].decision.found());
  CHECK(found[0].decision.difference == doctest::Approx(-3.99));
  CHECK(found[0].decision.high - found[0].decision.low == doctest::Approx(2 * 6.2053 * 0.0057735).epsilon(1e-3));
  CHECK(found[1].to == "64");
  CHECK(found[1].decision.difference == doctest::Approx(0.02));
  CHECK(found[1].decision.equal);
  CHECK(interaction_note(comparison) ==
        "Interactions: from batch size 2 to 32, group loses 4.0 points (4.0 to 4.0) to batch norm in resnet18. 1 of 2 "
        "tests found one; the section Statistics of the report has all.");
  CHECK(interaction_note(two_batch_sizes({5, 5})) ==
        "No difference between a norm and batch norm was found to change along an axis (1 test of interactions).");
  const Table table = interaction_table(comparison);
  REQUIRE(table.rows.size() == 2);
  CHECK(faults_of_page(to_html(comparison)) == std::vector<std::string>());
  CHECK(to_html(comparison).find("How differences from batch norm change along an axis.") != std::string::npos);
  CHECK(to_markdown(comparison).find("| axis | from | to | norm | in |") != std::string::npos);
}

TEST_CASE("interaction: each of two axes is tested where the other is the same") {
  Comparison comparison = two_batch_sizes({5, 1});
  const std::vector<Cell> cells = comparison.cells;
  for (Cell cell : cells) {
    cell.model = "resnet34";
    cell.accuracy += 0.001;
    comparison.cells.push_back(std::move(cell));
  }
  const std::vector<Interaction> found = interactions_of(comparison);
  REQUIRE(found.size() == 4);
  CHECK(found[0].axis == "model");
  CHECK(found[0].from == "resnet18");
  CHECK(found[0].to == "resnet34");
  CHECK(found[0].place == "batch size 2, lr 0.002");
  CHECK(found[1].place == "batch size 32, lr 0.032");
  CHECK(found[2].axis == "batch size");
  CHECK(found[2].place == "resnet18");
  CHECK(found[3].place == "resnet34");
  CHECK(found[0].decision.state == Decision::State::unknown);  // the same gains, seed by seed
}

TEST_CASE("interaction: depth is an axis, and each deeper network is tested beside the shallowest") {
  // Group norm gains 2 points on batch norm in ResNet-18, 2 in ResNet-34 and loses 3 in ResNet-50.
  Comparison comparison = example();
  comparison.timings.clear();
  comparison.timing_rounds = 0;
  comparison.cells.clear();
  const std::vector<std::pair<std::string, double>> gains = {{"resnet18", 2}, {"resnet34", 2}, {"resnet50", -3}};
  for (size_t i = 0; i < gains.size(); ++i) {
    for (const uint64_t seed : {0, 1, 2}) {
      const double own = static_cast<double>((seed + i) % 3);  // other ones in each network
      const double of_seed = 0.7 + 0.02 * static_cast<double>(i) + 0.01 * static_cast<double>(seed);
      comparison.cells.push_back(finished(gains[i].first, "batch", seed, of_seed, 100));
      comparison.cells.push_back(
          finished(gains[i].first, "group", seed, of_seed + (gains[i].second + 0.1 * own) / 100, 100));
    }
  }
  const std::vector<Interaction> found = interactions_of(comparison);
  REQUIRE(found.size() == 2);
  for (const Interaction& one : found) {
    CHECK(one.axis == "model");
    CHECK(one.from == "resnet18");
    CHECK(one.norm == "group");
    CHECK(one.place.empty());
  }
  CHECK(found[0].to == "resnet34");
  CHECK(found[0].decision.state == Decision::State::none_found);
  CHECK(found[0].decision.difference == doctest::Approx(0).scale(1));
  CHECK(found[1].to == "resnet50");
  CHECK(found[1].decision.found());
  CHECK(found[1].decision.difference == doctest::Approx(-5));
  CHECK(interaction_note(comparison)
            .starts_with("Interactions: from model resnet18 to resnet50, group loses 5.0 "
                         "points ("));
  for (Cell& cell : comparison.cells) {
    if (cell.model == "resnet50" && cell.norm == "group") {
      cell.accuracy = cell.accuracy + 0.05;  // as in the others
    }
  }
  CHECK(interaction_note(comparison) ==
        "No difference between a norm and batch norm was found to change along an axis (2 tests of interactions).");
}

TEST_CASE("interaction: images count, and nothing is said before all runs are made") {
  Comparison comparison = two_batch_sizes({5, 1});
  for (Cell& cell : comparison.cells) {
    // 1000 images, of which the last ones are wrong.
    const uint64_t more = cell.norm == "group" && cell.batch_size == 32 ? cell.seed : 0;  // the seeds differ
    const auto right = static_cast<size_t>(std::lround(1000 * cell.accuracy)) + more;
    cell.right.assign(1000, false);
    for (size_t i = 0; i < right; ++i) {
      cell.right[i] = true;
    }
    cell.accuracy = static_cast<double>(right) / 1000;
  }
  const std::vector<Interaction> with_images = interactions_of(comparison);
  REQUIRE(with_images.size() == 1);
  const double width = with_images[0].decision.high - with_images[0].decision.low;
  CHECK(width > 1.5);  // 40 images, most of them the same with each seed: below 2 * 1.96 * 100 sqrt(0.04 / 1000)
  CHECK(width < 2.48);
  comparison.cells[1].state = CellState::pending;
  CHECK(interactions_of(comparison)[0].decision.state == Decision::State::waiting);
  CHECK(interaction_table(comparison).rows.empty());
  CHECK(interaction_note(comparison).empty());
  for (Cell& cell : comparison.cells) {
    cell.seed += 7 * static_cast<uint64_t>(cell.batch_size == 32);  // no seed in both
    cell.state = CellState::finished;
  }
  CHECK(interactions_of(comparison)[0].decision.state == Decision::State::unknown);
  CHECK(interactions_of(example()).empty());
}
