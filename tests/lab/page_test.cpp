#include "lab/report/page.h"
#include "error_text.h"
#include "lab/page_check.h"
#include "lab/report/merged.h"
#include "lab/report/report.h"
#include "lab/report_cases.h"

#include <doctest/doctest.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include "core/random.h"

#include <cmath>
#include <string>
#include <vector>

using namespace norma;
using namespace norma::lab;
using namespace norma::test;

namespace {

size_t count(const std::string& text, const std::string& part) {
  size_t found = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + part.size())) {
    ++found;
  }
  return found;
}

void check_page(const std::string& page) {
  CHECK_MESSAGE(faults_of_page(page).empty(), fmt::format("{}", fmt::join(faults_of_page(page), "\n")));
}

/// The opening of a page: the paragraph under its title.
std::string opening(const std::string& page) {
  const std::string before = "<p class=\"answer\">";
  const size_t begin = page.find(before) + before.size();
  return page.substr(begin, page.find("</p>", begin) - begin);
}

}  // namespace

TEST_CASE("page: the check finds what is wrong") {
  const std::string page = to_html(example());
  REQUIRE(faults_of_page(page).empty());
  const auto faults = [&](const std::string& what, const std::string& with) {
    std::string wrong = page;
    REQUIRE(wrong.find(what) != std::string::npos);
    wrong.replace(wrong.find(what), what.size(), with);
    return faults_of_page(wrong);
  };
  CHECK_FALSE(faults("</table>", "").empty());
  CHECK_FALSE(faults("<h2 ", "<h4 ").empty());
  CHECK_FALSE(faults("scope=\"row\"", "").empty());
  CHECK_FALSE(faults("<caption>", "<p>").empty());
  CHECK_FALSE(faults("<title id=", "<desc id=").empty());
  CHECK_FALSE(faults("role=\"img\"", "").empty());
  CHECK_FALSE(faults("id=\"results\"", "id=\"accuracy\"").empty());
  CHECK_FALSE(faults("<main>", "<main><script>").empty());
  CHECK_FALSE(faults("<main>", "<main onclick=\"x\">").empty());
  CHECK_FALSE(faults("</style>", "@import 'x';</style>").empty());
  CHECK_FALSE(faults("href=\"#results\"", "href=\"https://example.org\"").empty());
}

TEST_CASE("page: it opens with the answer, stands alone, escapes its texts and closes its elements") {
  const std::string page = to_html(example());
  check_page(page);
  CHECK(opening(page) ==
        "group:32 costs 25.0 % of batch norm&#39;s throughput in resnet50, but these runs cannot show a difference of "
        "accuracy.");
  for (const char* outside : {"http:", "https:", "src=", "url(", "@import", "<script"}) {
    CHECK_MESSAGE(page.find(outside) == std::string::npos, outside);
  }
  CHECK(page.find("group&lt;7&gt;") != std::string::npos);
  CHECK(page.find("<channels>") == std::string::npos);
  CHECK(page.find("nan") == std::string::npos);
  CHECK(page.find("83.10 %") != std::string::npos);
  CHECK(page.find("25.0 %") != std::string::npos);
  CHECK(page.find("3 of 5 finished, 1 failed") != std::string::npos);
  // It finished nothing, and its reason stands where its figures would.
  CHECK(count(page, "failed: group_norm: 7 groups") == 2);  // in the table, and with its command
}

TEST_CASE("page: one cell, whatever has become of it") {
  for (const CellState state : {CellState::finished, CellState::failed, CellState::interrupted, CellState::pending}) {
    Comparison comparison = example();
    comparison.timings.clear();
    comparison.cells.resize(1);
    comparison.cells[0].state = state;
    if (state != CellState::finished) {
      comparison.cells[0] = unfinished("batch", state, "out of memory");
    }
    const std::string page = to_html(comparison);
    check_page(page);
    CHECK(opening(page) == (state == CellState::finished
                                ? "1 of 1 run is finished, and no two norms in the same network: there is nothing to "
                                  "compare yet."
                                : "Nothing is known yet: none of 1 run is finished."));
    CHECK((page.find("<h2 id=\"accuracy\">") != std::string::npos) == (state == CellState::finished));
    CHECK((page.find("<h2 id=\"time\">") != std::string::npos) == false);
  }
}

TEST_CASE("page: odd names and texts stay texts") {
  const std::string odd = "my\"norm's <b>&amp; ' onload='x";
  Comparison comparison = example();
  comparison.cells = {finished("resnet18", "batch", 0, 0.5, 1), finished("resnet18", odd, 0, 0.5, 1),
                      finished("<i>net", "none", 0, 0.5, 1)};
  comparison.timings.clear();
  comparison.recipe.norm_policy = "\"a\" = \"none\"";
  comparison.recipe.norm_policy_file = "</code><script>";
  comparison.environment.cpu = "<b>CPU</b>";
  const std::string page = to_html(comparison);
  check_page(page);
  CHECK(page.find(odd) == std::string::npos);
  CHECK(page.find("my&quot;norm&#39;s &lt;b&gt;&amp;amp;") != std::string::npos);
  CHECK(page.find("<b>CPU") == std::string::npos);
  CHECK(page.find("<i>net") == std::string::npos);
}

TEST_CASE("page: figures that are no numbers") {
  Comparison comparison = example();
  comparison.timings.clear();
  comparison.cells = {finished("resnet18", "batch", 0, NAN, 1), finished("resnet18", "batch", 1, 0.5, 1),
                      finished("resnet18", "group:8", 0, NAN, NAN), finished("resnet18", "group:8", 1, NAN, NAN)};
  comparison.cells[2].losses = {1, NAN, INFINITY, 2};
  comparison.cells[3].losses.clear();
  comparison.cells[3].loss = INFINITY;
  const std::string page = to_html(comparison);
  check_page(page);
  // Where a figure is written, it says so; no drawing has one.
  for (const char* wrong : {"d=\"Mnan", " nan", "nanh", "=\"nan", ":nan%", "inf%"}) {
    for (size_t at = page.find("<path"); at != std::string::npos; at = page.find("<path", at + 1)) {
      CHECK(page.substr(at, page.find('>', at) - at).find(wrong) == std::string::npos);
    }
  }
  CHECK(opening(page).find("points") == std::string::npos);  // nothing is found of what is no number
}

TEST_CASE("page: 500 cells are less than 3 MB, folded away where they are many") {
  Comparison comparison = example();
  comparison.cells.clear();
  comparison.timings.clear();
  std::vector<double> losses(20000);
  for (size_t i = 0; i < losses.size(); ++i) {
    losses[i] = 2 + std::sin(static_cast<double>(i * i));  // no two steps alike: the worst for the size
  }
  for (int model = 0; model < 5; ++model) {
    for (int norm = 0; norm < 20; ++norm) {
      for (uint64_t seed = 0; seed < 5; ++seed) {
        comparison.cells.push_back(finished(
            fmt::format("network_{}", model), norm == 0 ? "batch" : fmt::format("group:{}", norm), seed,
            0.5 + 0.001 * static_cast<double>(seed) + 0.01 * norm + 0.0001 * norm * static_cast<double>(seed * seed),
            100));
        comparison.cells.back().losses = losses;
      }
    }
  }
  const std::string page = to_html(comparison);
  check_page(page);
  CHECK(page.size() < 3'000'000);
  CHECK(count(page, "<details") == 500 + 5 + 1 + 1);  // runs, networks, curves, and answers
  CHECK(count(page, "<details open") == 0);
  CHECK(count(page, "norma train --model network_4 --norm group:19") == 5);
}

TEST_CASE("page: 250 norms of one model: their charts are folded away, none is missing") {
  Comparison comparison = example();
  comparison.cells.clear();
  comparison.timings.clear();
  for (int norm = 0; norm < 250; ++norm) {
    for (uint64_t seed = 0; seed < 2; ++seed) {
      comparison.cells.push_back(finished("resnet18", fmt::format("group:{}", norm + 1), seed, 0.5, 100));
    }
  }
  const std::string page = to_html(comparison);
  check_page(page);
  CHECK(page.size() < 3'000'000);
  CHECK(count(page, "<summary>1 chart</summary>") == 3);  // accuracy, time and memory
  for (const int norm : {1, 125, 250}) {
    CHECK(count(page, fmt::format(">group:{}</th>", norm)) == 1);
  }
}

TEST_CASE("page: axes that vary part the table and the charts, and numbers are an axis of a chart") {
  Comparison comparison = example();
  comparison.timings.clear();
  comparison.cells.clear();
  for (const int64_t batch : {32, 2, 8}) {
    for (const char* norm : {"batch", "group:8"}) {
      comparison.cells.push_back(finished("resnet18", norm, 0, norm[0] == 'b' && batch == 2 ? 0.3 : 0.8, 100));
      comparison.cells.back().batch_size = batch;
    }
  }
  const std::string page = to_html(comparison);
  check_page(page);
  CHECK(count(page, "resnet18 with batch size 2</th>") == 1);
  CHECK(page.find("<h3>Against batch size</h3>") != std::string::npos);
  const std::string chart = page.substr(page.find("id=\"against-batch-1-t\""));
  CHECK(chart.find(">2</span>") < chart.find(">8</span>"));  // by size, whatever order they ran in
  CHECK(chart.find(">8</span>") < chart.find(">32</span>"));
  CHECK(page.find("--batch-size 32") != std::string::npos);
}

TEST_CASE("page: a learning rate that follows the batch size parts no chart, precisions and models are axes, too") {
  Comparison comparison = example();
  comparison.timings.clear();
  comparison.cells.clear();
  const auto add = [&](const char* model, int64_t batch, double lr, const char* precision) {
    comparison.cells.push_back(finished(model, "batch", 0, 0.8, 100));
    comparison.cells.back().batch_size = batch;
    comparison.cells.back().lr = lr;
    comparison.cells.back().precision = precision;
  };
  add("resnet18", 2, 2.5e-4, "float32");
  add("resnet18", 128, 2e-3, "float32");
  std::string page = to_html(comparison);
  check_page(page);
  CHECK(count(page, "<h3>Against ") == 1);
  CHECK(page.find("<h3>Against batch size</h3>") != std::string::npos);
  CHECK(page.find("Test accuracy of resnet18 against batch size<") != std::string::npos);
  // Where it follows nothing, each has charts.
  add("resnet18", 2, 2e-3, "float32");
  page = to_html(comparison);
  CHECK(page.find("Test accuracy of resnet18, lr 0.002 against batch size<") != std::string::npos);
  CHECK(page.find("Test accuracy of resnet18, batch size 2 against lr<") != std::string::npos);

  comparison.cells.clear();
  for (const char* model : {"resnet18", "resnet34", "resnet50"}) {
    add(model, 128, 2e-3, "float32");
    add(model, 128, 2e-3, "amp_bfloat16");
  }
  page = to_html(comparison);
  check_page(page);
  CHECK(page.find("Test accuracy of resnet34 against precision<") != std::string::npos);
  CHECK(page.find("Test accuracy, precision amp_bfloat16 against model<") != std::string::npos);
}

TEST_CASE(
    "page: where nothing differs, the opening names a difference in few comparisons, however many norms they have") {
  Generator generator(1);
  int taxes = 0;
  int accuracies = 0;
  for (int trial = 0; trial < 100; ++trial) {
    Comparison comparison = example();
    comparison.cells.clear();
    comparison.timings.clear();
    const auto noise = [&] { return generator.uniform() + generator.uniform() + generator.uniform() - 1.5; };
    for (const int64_t batch : {2, 4, 8, 16, 32, 64, 128}) {
      Settings group = of_model("resnet18");
      group.batch_size = batch;
      comparison.timings.push_back({.group = group, .norms = {"batch", "group", "layer2d"}, .rounds = {}});
      for (int round = 0; round < 24; ++round) {
        comparison.timings.back().rounds.push_back({1 + 0.1 * noise(), 1 + 0.1 * noise(), 1 + 0.1 * noise()});
      }
      for (const char* norm : {"batch", "group", "layer2d"}) {
        for (const uint64_t seed : {0, 1, 2}) {
          comparison.cells.push_back(finished("resnet18", norm, seed, 0.8 + 0.01 * noise(), 100));
          comparison.cells.back().batch_size = batch;
        }
      }
    }
    const std::string opening = opening_of({{.name = "", .comparison = &comparison}});
    taxes += opening.find("o norm was found to cost more") == std::string::npos ? 1 : 0;
    accuracies += opening.find(" accurate than batch norm") != std::string::npos ? 1 : 0;
  }
  CHECK(taxes <= 8);  // 5 are expected at most
  CHECK(accuracies <= 8);
}

TEST_CASE("page: opening, answer, p, interval and threshold tell the same of every norm") {
  Generator generator(5);
  const auto noise = [&] { return generator.uniform() + generator.uniform() + generator.uniform() - 1.5; };
  int found = 0;
  for (int trial = 0; trial < 60; ++trial) {
    Comparison comparison = example();
    comparison.cells.clear();
    comparison.timing_rounds = 12;
    comparison.timings = {{.group = of_model("resnet18"), .norms = {"batch", "group:8"}, .rounds = {}}};
    const double cost = 0.1 * generator.uniform();
    for (int round = 0; round < 12; ++round) {
      comparison.timings[0].rounds.push_back({1 + 0.1 * noise(), 1 + cost + 0.1 * noise()});
    }
    const double gain = 0.03 * generator.uniform();
    for (const uint64_t seed : {0, 1, 2, 3}) {
      const double of_seed = 0.7 + 0.03 * noise();
      comparison.cells.push_back(finished("resnet18", "batch", seed, of_seed, 100));
      comparison.cells.push_back(finished("resnet18", "group:8", seed, of_seed + gain + 0.01 * noise(), 100));
    }
    const Row row = summarize(comparison)[1];
    REQUIRE(row.accuracy_difference->known());
    REQUIRE(row.tax->known());
    const Decision& more = *row.accuracy_difference;
    const std::string page = to_html(comparison);
    const std::string sentence =
        fmt::format("{:.1f} points {}", std::abs(more.difference), more.difference > 0 ? "more" : "less");
    CHECK(more.found() == (opening(page).find(sentence) != std::string::npos));
    CHECK(more.found() == (answer_of(comparison).find(" accurate than batch norm") != std::string::npos));
    CHECK(more.found() == (more.chance < 0.05));
    CHECK((more.found() || more.equal) == (page.find("to reference undecided") == std::string::npos));
    CHECK((more.found() || more.equal) == (opening(page).find("ccuracy is undecided (") == std::string::npos));
    CHECK((more.found() || more.equal) == (answer_of(comparison).find("ccuracy is undecided (") == std::string::npos));
    CHECK((more.found() || more.equal) == (accuracy_note(comparison).find("undecided") == std::string::npos));
    CHECK(more.found() == (std::abs(more.difference) > (more.high - more.low) / 2));
    CHECK(row.tax->found() == (opening(page).find("o norm was found to cost") == std::string::npos));
    CHECK(row.tax->found() == (answer_of(comparison).find("o norm was found to cost") == std::string::npos));
    CHECK(row.tax->found() == (format_tax(row.tax).find("none found") == std::string::npos));
    found += (more.found() ? 1 : 0) + (row.tax->found() ? 1 : 0);
  }
  CHECK(found > 20);
  CHECK(found < 100);
}

TEST_CASE("page: a difference that every seed shows is found, also where seeds lie far apart") {
  Comparison comparison = example();
  comparison.timings.clear();
  comparison.timing_rounds = 0;
  comparison.cells.clear();
  const double of_seeds[] = {0.70, 0.74, 0.78, 0.72, 0.76};
  for (const uint64_t seed : {0, 1, 2, 3, 4}) {
    comparison.cells.push_back(finished("resnet18", "batch", seed, of_seeds[seed], 100));
    comparison.cells.push_back(
        finished("resnet18", "layer2d", seed, of_seeds[seed] + (seed % 2 == 0 ? 0.012 : 0.013), 100));
  }
  CHECK(opening_of({{.name = "", .comparison = &comparison}}) ==
        "layer2d is 1.2 points more accurate than batch norm.");
  CHECK(to_table(comparison).find("p < 0.001") != std::string::npos);
}

TEST_CASE("page: the opening says which norm depends most on what varies, where one seed shows it") {
  Comparison comparison;
  const auto add = [&](const char* norm, int64_t batch_size, double lr, double accuracy) {
    Cell cell = finished("resnet18", norm, 0, accuracy, 100);
    cell.batch_size = batch_size;
    cell.lr = lr;
    comparison.cells.push_back(cell);
  };
  add("batch", 2, 0.1, 0.445);
  add("group", 2, 0.1, 0.787);
  add("batch", 8, 0.2, 0.808);
  add("group", 8, 0.2, 0.776);
  add("layer2d", 8, 0.2, 0.2);  // in one place only
  const auto says = [&] { return opening_of({{.name = "", .comparison = &comparison}}); };
  CHECK(
      says() ==
      "The accuracy of batch norm depends most on batch size (44.5 % at 2, 80.8 % at 8), that of group least (77.6 to "
      "78.7 %).");
  comparison.cells.push_back(finished("resnet18", "group", 0, 0.5, 100));  // where batch norm is not finished
  comparison.cells.back().batch_size = 64;
  CHECK(says() == "These runs cannot show a difference of accuracy.");
  comparison.cells.pop_back();
  add("batch", 2, 0.2, 0.5);  // now neither follows the other
  add("group", 2, 0.2, 0.78);
  CHECK(says() ==
        "The accuracy of batch norm moves most (44.5 % in resnet18 with batch size 2, lr 0.1, 80.8 % in resnet18 with "
        "batch size 8, lr 0.2), that of group least (77.6 to 78.7 %).");
  comparison.cells.resize(5);
  comparison.cells[0].accuracy = 0.72;  // which chance may do
  CHECK(says() == "These runs cannot show a difference of accuracy.");
  for (Cell& cell : comparison.cells) {
    cell.model = cell.batch_size == 2 ? "resnet18" : "resnet50";
    cell.batch_size = 4;
    cell.lr = 0.1;
  }
  comparison.cells[3].accuracy = 0.5;
  CHECK(
      says() ==
      "The accuracy of group depends most on the network (50.0 % in resnet50, 78.7 % in resnet18), that of batch norm "
      "least (72.0 to 80.8 %).");
}

TEST_CASE("page: the opening, in one sentence") {
  Comparison comparison = example();
  const auto says = [&] { return opening_of({{.name = "", .comparison = &comparison}}); };
  comparison.timings[0].rounds.resize(5);
  comparison.timing_rounds = 5;
  CHECK(says() == "These runs cannot show a difference of accuracy.");  // and too few rounds to know
  comparison = example();
  for (std::vector<double>& round : comparison.timings[0].rounds) {
    round = {1, 1, NAN, 1};
  }
  CHECK(
      says() ==
      "No norm was found to cost more than batch norm, or less, but these runs cannot show a difference of accuracy.");
  comparison.timings.clear();
  comparison.timing_rounds = 0;
  comparison.cells = {finished("resnet18", "batch", 0, 0.80, 400),   finished("resnet18", "batch", 1, 0.80, 400),
                      finished("resnet18", "layer2d", 0, 0.90, 400), finished("resnet18", "layer2d", 1, 0.901, 400),
                      finished("resnet18", "group:8", 0, 0.81, 400), finished("resnet18", "group:8", 1, 0.79, 400)};
  CHECK(says() == "layer2d is 10.0 points more accurate than batch norm.");
  comparison.cells[2].accuracy = 0.5;
  comparison.cells[3].accuracy = 0.501;
  comparison.cells[4].accuracy = 0.6;
  comparison.cells[5].accuracy = 0.601;
  CHECK(says() == "layer2d is 30.0 points less accurate than batch norm (group:8 differs by less).");
  comparison.cells[2].accuracy = 0.80;
  comparison.cells[3].accuracy = 0.81;
  comparison.cells.resize(4);
  CHECK(says() == "Accuracy is undecided (about 16 more seeds would decide).");
  comparison.timing_rounds = 6;
  comparison.timings = {{.group = of_model("resnet18"),
                         .norms = {"batch", "layer2d"},
                         .rounds = std::vector<std::vector<double>>(6, {1, 0.5})}};
  CHECK(says() ==
        "layer2d is 100.0 % faster than batch norm, but accuracy is undecided (about 16 more seeds would decide).");
}

TEST_CASE("page: the opening says of a norm what it does in each network") {
  Comparison comparison = example();
  comparison.cells.clear();
  comparison.timings.clear();
  comparison.timing_rounds = 12;
  const auto add = [&](const char* model, double of_layer, double of_group, double seconds_of_layer) {
    for (const uint64_t seed : {0, 1, 2}) {
      const double more = 0.0001 * static_cast<double>(seed);
      comparison.cells.push_back(finished(model, "batch", seed, 0.8, 400));
      comparison.cells.push_back(finished(model, "layer2d", seed, of_layer + more, 400));
      comparison.cells.push_back(finished(model, "group:8", seed, of_group + more, 400));
    }
    comparison.timings.push_back({.group = of_model(model),
                                  .norms = {"batch", "layer2d", "group:8"},
                                  .rounds = std::vector<std::vector<double>>(12, {1, seconds_of_layer, 1})});
  };
  const auto says = [&] { return opening_of({{.name = "", .comparison = &comparison}}); };
  add("resnet18", 0.7, 0.79, 2);
  add("convnext_atto", 0.75, 0.8, 1.25);
  CHECK(says() ==
        "layer2d costs 50.0 % of batch norm's throughput in resnet18 and 20.0 % in convnext_atto, and layer2d is 10.0 "
        "points less accurate than batch norm in resnet18 and 5.0 points in convnext_atto (group:8 differs by less).");
  comparison.cells.resize(9);
  comparison.timings.resize(1);
  add("convnext_atto", 0.85, 0.8, 0.8);
  CHECK(
      says() ==
      "layer2d costs 50.0 % of batch norm's throughput in resnet18 and is 25.0 % faster in convnext_atto, and layer2d "
      "is 10.0 points less accurate than batch norm in resnet18 and 5.0 points more in convnext_atto (group:8 differs "
      "by less).");
  for (const char* model : {"resnet34", "resnet50", "resnet101"}) {
    add(model, 0.75, 0.8, 1.25);
  }
  CHECK(says().starts_with(
      "layer2d costs 50.0 % of batch norm's throughput in resnet18 and differs by less in 4 others, and "));
  // Of two comparisons of the same network, each is named.
  comparison.cells.resize(9);
  comparison.timings.resize(1);
  Comparison other = comparison;
  CHECK(opening_of({{.name = "laptop", .comparison = &comparison}, {.name = "server", .comparison = &other}})
            .starts_with("layer2d costs 50.0 % of batch norm's throughput in resnet18 (laptop) and 50.0 % in resnet18 "
                         "(server), and "));
}

TEST_CASE("page: an unfinished report says that nothing can be said yet, and has no times from a few rounds") {
  Comparison comparison = example();
  comparison.cells.clear();
  comparison.timings.clear();
  for (const uint64_t seed : {0, 1, 2}) {
    comparison.cells.push_back(finished("resnet18", "batch", seed, 0.8, 400));
    comparison.cells.push_back(finished("resnet18", "layer2d", seed, 0.7 + 0.001 * static_cast<double>(seed), 400));
    comparison.cells[comparison.cells.size() - 1].seconds = 75;
  }
  comparison.timing_rounds = 24;
  comparison.timings = {{.group = of_model("resnet18"), .norms = {"batch", "layer2d"}, .rounds = {{20, 57}, {21, 56}}}};
  comparison.cells[5].state = CellState::pending;
  const auto says = [&] { return opening_of({{.name = "", .comparison = &comparison}}); };
  CHECK(says() == "Nothing can be said yet: 5 of 6 runs are finished.");
  std::string page = to_html(comparison);
  check_page(page);
  CHECK(page.find("batch 80.00 % after 60.0 seconds; layer2d 70.05 % after 75.0 seconds.") != std::string::npos);
  CHECK(page.find("not known yet<span class=\"aside\">2 of 24 rounds</span>") != std::string::npos);
  CHECK(page.find(">to reference not known yet: 2 of 3 seeds<") != std::string::npos);
  comparison.timings[0].rounds.assign(24, {20, 40});
  CHECK(says() ==
        "layer2d costs 50.0 % of batch norm's throughput, but nothing can be said of accuracy yet. 5 of 6 runs are "
        "finished.");
  page = to_html(comparison);
  CHECK(page.find("after 60.0 seconds; layer2d 70.05 % after 120.0 seconds.") != std::string::npos);  // of three steps
  comparison.cells[5].state = CellState::finished;
  comparison.timings[0].rounds.resize(23);
  CHECK(says() ==
        "Nothing can be said of the tax yet, but layer2d is 9.9 points less accurate than batch norm. Rounds of timing "
        "are missing.");
}
