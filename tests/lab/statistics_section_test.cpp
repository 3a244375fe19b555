#include "lab/page_check.h"
#include "lab/report/page.h"
#include "lab/report/report.h"
#include "lab/report_cases.h"

#include <doctest/doctest.h>

#include <cstddef>
#include <string>
#include <vector>

// What a report says of runs whose right answers are known image by image.

using namespace norma;
using namespace norma::lab;
using namespace norma::test;

namespace {

/// A run with wrong answers for the images from `first` on.
Cell answered(const std::string& norm, uint64_t seed, size_t images, size_t first, size_t wrong) {
  train::ImageBits right(images, true);
  for (size_t i = first; i < first + wrong; ++i) {
    right[i] = false;
  }
  Cell cell = finished("resnet18", norm, seed, static_cast<double>(images - wrong) / static_cast<double>(images), 400);
  cell.right = std::move(right);
  return cell;
}

Comparison with(std::vector<Cell> cells) {
  Comparison comparison = example();
  comparison.timings.clear();
  comparison.timing_rounds = 0;
  comparison.cells = std::move(cells);
  return comparison;
}

bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

std::string cell_of(const Table& table, size_t row, const std::string& head) {
  for (size_t i = 0; i < table.heads.size(); ++i) {
    if (table.heads[i] == head) {
      return table.rows.at(row).cells.at(i);
    }
  }
  return "no column " + head;
}

/// Three seeds of 10,000 images: group is right on 200 more, layer2d on none or few.
Comparison three_seeds() {
  std::vector<Cell> cells;
  for (const uint64_t seed : {0, 1, 2}) {
    cells.push_back(answered("batch", seed, 10'000, 0, 600 + 3 * seed));
    cells.push_back(answered("group", seed, 10'000, 0, 400 + seed));
    cells.push_back(answered("layer2d", seed, 10'000, 0, 600 + 2 * seed));
  }
  return with(std::move(cells));
}

/// 1000 images, 31 of which only group's network gets right, and 12 only batch norm's.
Comparison one_seed() {
  return with({answered("batch", 0, 1000, 0, 80), answered("group", 0, 1000, 31, 61)});
}

}  // namespace

TEST_CASE("statistics of a report: a difference, and equality beside none found") {
  const Comparison comparison = three_seeds();
  const std::vector<Row> rows = summarize(comparison);
  REQUIRE(rows.size() == 3);
  CHECK(rows[1].accuracy_difference->found());
  CHECK(rows[1].scatter->images == 10'000);
  CHECK(rows[1].reference == "batch");
  CHECK(rows[2].accuracy_difference->equal);
  CHECK_FALSE(rows[2].accuracy_difference->found());
  CHECK(has(answer_of(comparison), "group is 2.0 points ("));
  CHECK(accuracy_note(comparison) == "resnet18: layer2d is equal to batch norm within 0.3 points.");
  CHECK(format_difference(rows[2].accuracy_difference).starts_with("none found, equal within 0.3: +0.01 ("));
  CHECK(has(decision_note(comparison),
            "(Student's t for the seeds, the normal distribution for the test images; p is below 0.05"));
  const Table table = statistics_table(comparison);
  REQUIRE(table.rows.size() == 2);
  CHECK(cell_of(table, 0, "norm") == "group");
  CHECK(cell_of(table, 0, "pairs") == "3");
  CHECK(cell_of(table, 0, "networks that differ") == "3 of 3");
  CHECK(cell_of(table, 0, "within 0.3 points") == "differs");
  CHECK(cell_of(table, 0, "error by seeds") == "0.01");   // of 2.00, 2.02 and 2.04 points: 0.02 / sqrt(3)
  CHECK(cell_of(table, 0, "error by images") == "0.14");  // 100 sqrt(0.02 * 0.98 / 10000)
  CHECK(cell_of(table, 0, "correlation of pairs") == "1.00 (-1.00 to 1.00)");
  CHECK(cell_of(table, 0, "IQM %") == "–");  // from five seeds on
  CHECK(cell_of(table, 1, "networks that differ") == "0 of 3");
  CHECK(cell_of(table, 1, "within 0.3 points") == "equal");
  const std::string page = to_html(comparison);
  CHECK(has(page, "<h2 id=\"statistics\">Statistics</h2>"));
  CHECK(faults_of_page(page) == std::vector<std::string>());
  CHECK(has(to_markdown(comparison), "\n## Statistics\n\n| network | norm | pairs |"));
}

TEST_CASE("statistics of a report: too few images, and files without them") {
  std::vector<Cell> cells;
  for (const uint64_t seed : {0, 1, 2, 3}) {
    cells.push_back(answered("batch", seed, 50, 0, 10));
    cells.push_back(answered("group", seed, 50, 3, 8 + seed % 2));
  }
  Comparison comparison = with(cells);
  CHECK(accuracy_note(comparison) ==
        "resnet18: group is undecided (more seeds would not decide: 50 test images are too few).");
  CHECK(to_json(comparison_from_json(to_json(comparison))) == to_json(comparison));
  comparison.cells[3].right.clear();  // of an earlier version: the seeds alone are looked at
  const std::vector<Row> rows = summarize(comparison);
  CHECK(rows[1].scatter->images == 0);
  CHECK(rows[1].accuracy_difference->found());
  CHECK(has(decision_note(comparison), "(Student's t; p is below 0.05"));
  const Table table = statistics_table(comparison);
  REQUIRE(table.rows.size() == 1);
  CHECK(cell_of(table, 0, "bootstrap") == "–");
  CHECK(cell_of(table, 0, "networks that differ") == "–");
  comparison.cells[3].state = CellState::pending;
  CHECK(statistics_table(comparison).rows.empty());
}

TEST_CASE("statistics of a report: what one seed can say and cannot") {
  Comparison comparison = one_seed();
  CHECK(accuracy_note(comparison) ==
        "resnet18: the networks of group and batch norm differ on these images (31 right only with group, 12 only with "
        "batch norm, p 0.005). One seed cannot say that the norms differ: another would move each accuracy (--seeds "
        "0,1,2).");
  const std::vector<Row> rows = summarize(comparison);
  CHECK_FALSE(rows[1].accuracy_difference.has_value());
  REQUIRE(rows[1].images.has_value());
  const Table table = statistics_table(comparison);
  REQUIRE(table.rows.size() == 1);
  // 1.9 points; 1.96 * 100 sqrt((43 / 1000 - 0.019^2) / 1000) = 1.28 reaches to 3.18. Of 43 images that divide the two,
  // 31 are compatible with shares from 0.563 on (Clopper and Pearson): 4.3 (2 * 0.563 - 1) = 0.54.
  CHECK(cell_of(table, 0, "difference, points") == "+1.90 (0.54 to 3.18)");
  CHECK(cell_of(table, 0, "networks that differ") == "31 : 12, p 0.005");
  // Of many such tests, each p counts as often (Bonferroni).
  for (int i = 0; i < 19; ++i) {
    comparison.cells.push_back(answered("group:" + std::to_string(i + 1), 0, 1000, 0, 80));
  }
  CHECK(summarize(comparison)[1].images->chance == doctest::Approx(20 * 0.005401572654591291));
  CHECK(has(accuracy_note(comparison), "On these images, 0 of 20 networks differ from batch norm's. One seed cannot"));
  comparison.cells.resize(2);
  comparison.cells[1].right.clear();
  CHECK(accuracy_note(comparison).starts_with("Another seed would move each accuracy"));
  CHECK(statistics_table(comparison).rows.empty());
}

TEST_CASE("statistics of a report: five seeds have their robust figures") {
  std::vector<Cell> cells;
  for (const uint64_t seed : {0, 1, 2, 3, 4}) {
    cells.push_back(answered("batch", seed, 1000, 0, 100 + 5 * (seed % 3)));
    cells.push_back(answered("group", seed, 1000, 2, 95 + 4 * (seed % 2)));
  }
  const Table table = statistics_table(with(std::move(cells)));
  REQUIRE(table.rows.size() == 1);
  // Batch norm's: 90, 89.5, 89, 90, 89.5; group's 90.5, 90.1, 90.5, 90.1, 90.5.
  CHECK(cell_of(table, 0, "IQM %") == "90.37 beside 89.67");
  CHECK(cell_of(table, 0, "P(better)") == "1.00 (1.00 to 1.00)");
  CHECK(cell_of(table, 0, "bootstrap") != "–");
}
