#include "lab/report/decisions.h"
#include "lab/report/page.h"
#include "lab/report/report.h"
#include "lab/report_cases.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

// No figure of a report contradicts another one.

using namespace norma;
using namespace norma::lab;
using namespace norma::test;

namespace {

bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

std::string opening(const Comparison& comparison) {
  return opening_of({{.name = "", .comparison = &comparison}});
}

Comparison with(std::vector<Cell> cells) {
  Comparison comparison = example();
  comparison.timings.clear();
  comparison.timing_rounds = 0;
  comparison.cells = std::move(cells);
  return comparison;
}

/// Two norms whose steps take the same time in most rounds. In the first five of twelve, batch norm's take two and a
/// half times as long; in two others both do.
Comparison disturbed() {
  Comparison comparison =
      with({finished("resnet18", "batch", 0, 0.8, 364.5), finished("resnet18", "layer2d", 0, 0.8, 475.8)});
  comparison.timing_rounds = 12;
  comparison.timings = {{.group = of_model("resnet18"), .norms = {"batch", "layer2d"}, .rounds = {}}};
  for (int round = 0; round < 12; ++round) {
    comparison.timings[0].rounds.push_back({round < 7 ? 2.5 : 1.0, round == 5 || round == 6 ? 2.5 : 1.0});
  }
  return comparison;
}

/// A run of 300 images that is right on those from `first` on, `right` of them.
Cell answered(const std::string& norm, uint64_t seed, size_t first, size_t right) {
  Cell cell = finished("resnet18", norm, seed, static_cast<double>(right) / 300, 400);
  cell.right.assign(300, false);
  std::fill_n(cell.right.begin() + static_cast<std::ptrdiff_t>(first), right, true);
  return cell;
}

std::string cell_of(const Table& table, size_t row, const std::string& head) {
  const auto found = std::ranges::find(table.heads, head);
  REQUIRE(found != table.heads.end());
  return table.rows.at(row).cells.at(static_cast<size_t>(found - table.heads.begin()));
}

}  // namespace

TEST_CASE("report agreement: rates are batch norm's less the tax, whatever disturbed the rounds") {
  Comparison comparison = disturbed();
  std::vector<Row> rows = summarize(comparison);
  // The medians of the steps, 2.5 and 1 seconds, would make layer2d two and a half times as fast.
  REQUIRE(rows[1].tax->state == Decision::State::none_found);
  CHECK(rows[1].tax->difference == 0);
  CHECK(rows[0].images_per_second.mean == doctest::Approx(51.2));
  CHECK(rows[1].images_per_second.mean == doctest::Approx(51.2));
  CHECK(has(to_csv(comparison), ",51.200,0.000000,"));
  const std::string page = to_html(comparison);
  CHECK(has(page, "batch 80.00 % after 7.5 seconds; layer2d 80.00 % after 7.5 seconds."));  // three steps
  CHECK_FALSE(has(page, "364.5"));
  CHECK_FALSE(has(page, "475.8"));
  // A tax that is found: the rate and its interval are the tax's.
  for (std::vector<double>& round : comparison.timings[0].rounds) {
    round[1] = round[0] * 1.25;
  }
  comparison.timings[0].rounds[0][1] = 4;
  rows = summarize(comparison);
  CHECK(rows[1].tax->difference == doctest::Approx(0.2));
  CHECK(rows[1].images_per_second.mean == doctest::Approx(51.2 * 0.8));
  REQUIRE(rows[1].rate_within);
  CHECK(rows[1].rate_within->low == doctest::Approx(51.2 * (1 - rows[1].tax->high)));
  CHECK(rows[1].rate_within->high == doctest::Approx(51.2 * (1 - rows[1].tax->low)));
  CHECK(has(to_html(comparison), "41.0<span class=\"aside\">41.0 to 41.0</span>"));
}

TEST_CASE("report agreement: the step's parts add up to the time that the rate says") {
  Comparison comparison = disturbed();
  Telemetry telemetry;
  telemetry.step_time = {.samples = 3, .forward = 0.25, .backward = 0.65, .optimizer = 0.1};
  telemetry.throughput = {.steps = 9, .min = 9, .median = 27, .max = 30};
  comparison.cells[1].telemetry = telemetry;
  const std::string page = to_html(comparison);
  CHECK(has(page, "<td>2500.0</td><td>625.0 (25 %)</td><td>1625.0 (65 %)</td><td>250.0 (10 %)</td>"));
  CHECK(has(page, "scaled to the time that the images per second of the results say"));
  CHECK(has(page, "<td>33 to 111</td>"));  // of the run's median, not img/s beside other img/s
  comparison.recipe.grad_accum_steps = 2;
  CHECK(has(to_html(comparison), "<td>5000.0</td>"));
}

TEST_CASE("report agreement: rounds that lie far apart make a warning, everywhere") {
  Comparison comparison = disturbed();
  const std::string warning =
      "Warning: the machine had other work while steps were timed: resnet18 (1 to 2.5 s a step).";
  CHECK(has(to_table(comparison), "\n" + warning));
  CHECK(has(to_html(comparison), warning));
  CHECK(has(to_markdown(comparison), warning));
  for (std::vector<double>& round : comparison.timings[0].rounds) {
    round = {1, 1.1};
  }
  comparison.timings[0].rounds[3] = {9, 9};  // one slow moment moves no median
  CHECK(busy_note(comparison).empty());
}

TEST_CASE("report agreement: one p and one interval of a pair of networks, each on the corrected level") {
  // 40 images right only with layer2d, 66 only with batch norm: p 0.0148, and times four tests 0.059.
  Comparison comparison = with({answered("batch", 0, 40, 166), answered("layer2d", 0, 0, 140)});
  for (const char* norm : {"group", "frn", "grn"}) {
    comparison.cells.push_back(answered(norm, 0, 40, 166));
  }
  const std::string p = format_chance(summarize(comparison)[1].images->chance);
  CHECK(p == "p 0.059");
  CHECK(has(accuracy_note(comparison),
            "were not found to differ on these images (40 right only with layer2d, 66 only with batch norm, p 0.059)"));
  const Table table = statistics_table(comparison);
  CHECK(cell_of(table, 0, "networks that differ") == "40 : 66, p 0.059");
  CHECK(cell_of(table, 0, "difference, points") == "-8.67 (-17.16 to 0.21)");
  CHECK_FALSE(has(to_html(comparison), "p 0.015"));
  // Also of several seeds: a pair that differs alone differs no more among many.
  const auto seeds = [](int64_t count) {
    std::vector<Cell> cells;
    for (int64_t seed = 0; seed < count; ++seed) {
      cells.push_back(answered("batch", static_cast<uint64_t>(seed), 40, 166));
      cells.push_back(answered("layer2d", static_cast<uint64_t>(seed), 0, 140 + static_cast<size_t>(seed % 2)));
    }
    return with(std::move(cells));
  };
  CHECK(cell_of(statistics_table(seeds(2)), 0, "networks that differ") == "2 of 2");
  CHECK(cell_of(statistics_table(seeds(8)), 0, "networks that differ") == "0 of 8");
}

TEST_CASE("report agreement: what is undecided is so in the headline, the answer, the table and the notes") {
  // 45 % beside 22 to 33 %, with three seeds.
  const auto cell = [](const char* norm, uint64_t seed, double accuracy) {
    return finished("resnet18", norm, seed, accuracy, 400);
  };
  const Comparison comparison = with({cell("batch", 0, 0.50), cell("batch", 1, 0.31), cell("batch", 2, 0.54),
                                      cell("layer2d", 0, 0.21), cell("layer2d", 1, 0.33), cell("layer2d", 2, 0.22),
                                      cell("group", 0, 0.33), cell("group", 1, 0.31), cell("group", 2, 0.34)});
  const std::vector<Row> rows = summarize(comparison);
  REQUIRE(rows[1].outlook);
  const std::string outlook = format_outlook(*rows[1].outlook);
  REQUIRE(has(outlook, "more seeds would decide"));
  const bool first = is_harder(*rows[1].outlook, *rows[2].outlook);
  const std::string hardest = format_outlook(*rows[first ? 1 : 2].outlook);
  CHECK(opening(comparison) == "Accuracy is undecided (" + hardest + ").");
  CHECK(has(answer_of(comparison), "resnet18: accuracy is undecided (" + hardest + ")."));
  CHECK(has(accuracy_note(comparison), "is undecided (" + outlook + ")"));
  CHECK(has(to_table(comparison), "undecided: -19.67 ("));
  CHECK(cell_of(statistics_table(comparison), 0, "within 0.3 points") == outlook);
  CHECK(cell_of(statistics_table(comparison), 0, "bootstrap") == "–");  // three seeds: too narrow
  for (const std::string& text : {to_html(comparison), to_markdown(comparison), to_table(comparison)}) {
    CHECK_FALSE(has(text, "o difference of accuracy was found"));
  }
  // Intervals end where accuracies do, and words say that three seeds are few.
  for (size_t i = 1; i < rows.size(); ++i) {
    CHECK(rows[i].accuracy_difference->low >= -45.01);
    CHECK(rows[i].accuracy_difference->high <= 55.01);
  }
  CHECK(rows[1].accuracy_difference->cut);
  CHECK(has(accuracy_note(comparison), "Three seeds say little: 2 of 2 intervals go as far as accuracies can."));
}

TEST_CASE("report agreement: an interval that is cut decides the same") {
  Scatter scatter = scatter_of(std::vector<double>{-20, -60, -40, 10});
  const Decision free = decide_by_mean(scatter, 1);
  scatter.possible = {.low = -45, .high = 55};
  const Decision cut = decide_by_mean(scatter, 1);
  CHECK(cut.low == -45);
  CHECK(cut.high == free.high);
  CHECK(cut.state == free.state);
  CHECK(cut.chance == free.chance);
  CHECK(cut.cut);
  CHECK_FALSE(free.cut);
}

TEST_CASE("report agreement: seeds that are right on equally many images are no precision") {
  Comparison comparison =
      with({answered("batch", 0, 0, 240), answered("batch", 1, 0, 250), answered("batch", 2, 0, 230),
            answered("frn", 0, 0, 100), answered("frn", 1, 100, 100), answered("frn", 2, 0, 100)});
  CHECK(format_spread(summarize(comparison)[1].accuracy, 2, 100) == "33.33 ± 0.00");
  CHECK(alike_note(comparison)
            .starts_with("Seeds that are all right on equally many images: resnet18 frn: 33.33 % at "
                         "each of 3 seeds. Networks that answer only a few of the classes"));
  CHECK(has(to_table(comparison), alike_note(comparison)));
  comparison.cells[5] = answered("frn", 2, 0, 101);
  CHECK(alike_note(comparison).empty());
}
