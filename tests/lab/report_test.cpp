#include "lab/report/report.h"

#include "base/error.h"
#include "error_text.h"
#include "files.h"
#include "lab/report/decisions.h"
#include "lab/report_cases.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <string>

using namespace norma;
using namespace norma::lab;
using namespace norma::test;

TEST_CASE("report: the tax is the share of batch's throughput that is lost in steps that took turns") {
  const std::vector<Row> rows = summarize(example());
  REQUIRE(rows.size() == 5);
  CHECK_FALSE(rows[0].tax.has_value());
  REQUIRE(rows[1].tax.has_value());
  CHECK(rows[1].tax->difference == doctest::Approx(0.25));
  CHECK(rows[1].tax->low == doctest::Approx(0.2));
  CHECK(rows[1].tax->high == doctest::Approx(0.3));
  CHECK(rows[1].tax->pairs == 8);
  CHECK_FALSE(rows[2].tax.has_value());  // it never made a step
  CHECK(rows[3].tax->state == Decision::State::none_found);
  CHECK(rows[2].problem == "failed: group_norm: 7 groups, \"64\" <channels>");
  CHECK(rows[3].problem == "interrupted");
  CHECK_FALSE(rows[4].tax.has_value());  // no batch for this model
}

TEST_CASE("report: batch with options is the reference too") {
  Comparison comparison = example();
  comparison.cells[0].norm = "batch[momentum=0.01]";
  comparison.timings[0].norms[0] = "batch[momentum=0.01]";
  CHECK(summarize(comparison)[1].tax->difference == doctest::Approx(0.25));
}

TEST_CASE("report: seeds of one model and norm become one row with mean and deviation") {
  Comparison comparison = example();
  comparison.cells = {finished("resnet50", "batch", 0, 0.80, 400), finished("resnet50", "batch", 1, 0.84, 500),
                      unfinished("batch", CellState::pending, "")};
  comparison.cells[2].seed = 2;
  comparison.timings.clear();
  const std::vector<Row> rows = summarize(comparison);
  REQUIRE(rows.size() == 1);
  CHECK(rows[0].finished == 2);
  CHECK(rows[0].seeds == 3);
  CHECK(rows[0].problem == "not started");
  CHECK(rows[0].accuracy.mean == doctest::Approx(0.82));
  CHECK(*rows[0].accuracy.deviation == doctest::Approx(0.0282843));  // sqrt(2 * 0.02^2)
  CHECK(rows[0].images_per_second.mean == doctest::Approx(450));
}

TEST_CASE("report: figures") {
  CHECK(format_spread({.mean = 0.8314}, 2, 100) == "83.14");
  CHECK(format_spread({.mean = 0.8314, .deviation = 0.002}, 1, 100) == "83.1 ± 0.2");
  CHECK(format_bytes(345'600'000) == "346 MB");
  CHECK(format_bytes(1'234'000'000) == "1.23 GB");
  CHECK(format_count(0) == "0");
  CHECK(format_count(999) == "999");
  CHECK(format_count(1000) == "1,000");
  CHECK(format_count(25557032) == "25,557,032");
  CHECK(format_tax({}) == "–");
  using State = Decision::State;
  const auto tax = [](State state, double share, double low, double high) {
    return format_tax(
        Decision{.state = state, .pairs = 9, .planned = 24, .difference = share, .low = low, .high = high});
  };
  CHECK(tax(State::found, 0.123456, 0.1, 0.15) == "12.3 % (10.0 to 15.0)");
  CHECK(tax(State::found, -0.02, -0.03, -0.01) == "-2.0 % (-3.0 to -1.0)");
  CHECK(tax(State::none_found, -0.0001, -0.01, 0.01) == "none found: 0.0 % (-1.0 to 1.0)");
  CHECK(tax(State::unknown, 0, 0, 0) == "not known after 9 rounds");
  CHECK(tax(State::waiting, 0, 0, 0) == "not known yet: 9 of 24 rounds");
  CHECK(format_difference({}) == "–");
  const auto difference = [](State state, double chance) {
    return format_difference(Decision{
        .state = state, .pairs = 1, .planned = 3, .difference = 0.421, .low = 0.1, .high = 0.742, .chance = chance});
  };
  CHECK(difference(State::found, 0.0312) == "+0.42 (0.10 to 0.74), p 0.031");
  CHECK(difference(State::found, 0.0004) == "+0.42 (0.10 to 0.74), p < 0.001");
  CHECK(difference(State::none_found, 1) == "undecided: +0.42 (0.10 to 0.74), p 1.000");
  CHECK(difference(State::unknown, 1) == "not known after 1 seed");
  CHECK(difference(State::waiting, 1) == "not known yet: 1 of 3 seeds");
}

TEST_CASE("report: the table lines up, and tells what went wrong") {
  CHECK(
      to_table(example()) ==
      "model          norm      accuracy %  test loss  img/s                    tax   memory  parameters\n"
      "resnet50       batch          83.10     0.5000  128.0                      –  1.23 GB  25,557,032\n"
      "resnet50       group:32       83.40     0.5000   96.0  25.0 % (20.0 to 30.0)  1.23 GB  25,557,032\n"
      "resnet50       group:7   failed: group_norm: 7 groups, \"64\" <channels>\n"
      "resnet50       instance  interrupted\n"
      "convnext_atto  layer2d        80.00     0.5000  500.0                      –  1.23 GB  25,557,032\n"
      "resnet50: group:32 costs 25.0 % (20.0 to 30.0) of batch norm's throughput.\n"
      "Tax: the share of batch norm's throughput that is lost, the median over 8 rounds of training steps in turns, as "
      "far as rounds do not depend on each other. Images per second are of the same steps, where they are made; else "
      "of "
      "whole runs.\n"
      "Another seed would move each accuracy, and these runs do not show by how much: small differences mean nothing "
      "before several seeds show their spread (--seeds 0,1,2).\n"
      "A norm differs from batch norm where the interval of the difference, in brackets, leaves out 0. Tax: the median "
      "over the rounds (sign test). Of 100 comparisons without any difference, at most 5 find one (Bonferroni's "
      "correction for 3 tests of the tax). Nothing is said before all runs or rounds are made.\n");
}

TEST_CASE("report: CSV has a line per cell and quotes what needs it") {
  Comparison comparison = example();
  comparison.cells[0].fit = {.images = 500, .accuracy = 0.9, .loss = 0.25};
  CHECK(
      to_csv(comparison) ==
      "model,norm,seed,batch_size,lr,precision,memory_format,dataset,state,test_accuracy,test_loss,train_accuracy,"
      "train_loss,images_per_second,tax,tax_low,tax_high,peak_tensor_bytes,"
      "peak_process_bytes,parameters,steps,seconds,reason\n"
      "resnet50,batch,0,128,0.002,float32,channels_last,fashion_mnist,finished,0.831,0.5,0.9,0.25,128.000,,,,"
      "1230000000,"
      "1500000000,25557032,3,60.000,\n"
      "resnet50,group:32,0,128,0.002,float32,channels_last,fashion_mnist,finished,0.834,0.5,,,96.000,0.250000,0."
      "200000,0.300000,1230000000,1500000000,25557032,3,"
      "60.000,\n"
      "resnet50,group:7,0,128,0.002,float32,channels_last,fashion_mnist,failed,,,,,,,,,,,,,,\"group_norm: 7 groups, "
      "\"\"64\"\" <channels>\"\n"
      "resnet50,instance,0,128,0.002,float32,channels_last,fashion_mnist,interrupted,,,,,,,,,,,,,,\n"
      "convnext_atto,layer2d,0,128,0.002,float32,channels_last,fashion_mnist,finished,0.8,0.5,,,500.000,,,,1230000000,"
      "1500000000,25557032,3,60.000,\n");
}

TEST_CASE("report: the training loss has a column where runs have it") {
  Comparison comparison = example();
  comparison.cells[0].fit = {.images = 500, .accuracy = 0.9, .loss = 0.25};
  Cell second = comparison.cells[0];
  second.seed = 1;
  second.fit->loss = 0.35;
  comparison.cells.push_back(second);
  const std::vector<Row> rows = summarize(comparison);
  REQUIRE(rows[0].fit_loss.has_value());
  CHECK(rows[0].fit_loss->mean == doctest::Approx(0.3));
  CHECK(rows[0].fit_loss->deviation.value_or(NAN) == doctest::Approx(0.0707107));
  CHECK_FALSE(rows[1].fit_loss.has_value());
  const std::string table = to_table(comparison);
  CHECK(table.find("train loss") < table.find("test loss"));
  CHECK(table.find("0.3000 ± 0.0707") != std::string::npos);
  CHECK(to_table(example()).find("train loss") == std::string::npos);
  CHECK(to_html(comparison).find("data-head=\"train loss\">0.3000 ± 0.0707<") != std::string::npos);
  CHECK(to_markdown(comparison).find("| train loss | test loss |") != std::string::npos);
}

TEST_CASE("report: what is said of the accuracies") {
  const auto note = [](const std::vector<Cell>& cells) {
    Comparison comparison;
    comparison.cells = cells;
    return accuracy_note(comparison);
  };
  const auto cell = [](const std::string& norm, uint64_t seed, double accuracy) {
    return finished("resnet18", norm, seed, accuracy, 400);
  };
  CHECK(note({}).empty());
  CHECK(note({cell("batch", 0, 0.8), unfinished("group", CellState::pending, "")}).empty());  // nothing to compare
  CHECK(note({cell("batch", 0, 0.8), cell("group", 0, 0.9)}).starts_with("Another seed would move each accuracy"));
  CHECK(note({cell("batch", 0, 0.8), cell("batch", 1, 0.8), cell("group", 0, 0.9), cell("group", 1, 0.9)})
            .starts_with("Another seed would move each accuracy"));
  // Differences of 10 and 12, and of 1 and 4 points.
  std::vector<Cell> cells = {cell("batch", 0, 0.79), cell("batch", 1, 0.81), cell("group", 0, 0.89),
                             cell("group", 1, 0.93), cell("frn", 0, 0.80),   cell("frn", 1, 0.85)};
  CHECK(note(cells) ==
        "resnet18: group is undecided (about 1 more seed would decide); frn is undecided (about 8 more seeds would "
        "decide). Two seeds say little: 2 of 2 intervals go as far as accuracies can.");
  cells.resize(4);
  CHECK(note(cells) ==
        "resnet18: group is undecided (about 1 more seed would decide). Two seeds say little: 1 of 1 interval goes as "
        "far as accuracies can.");
  cells[3].state = CellState::pending;
  CHECK(note(cells).empty());  // until the run is made
}

TEST_CASE("report: batch norm without options is the reference where there are two") {
  CHECK(reference_of({"group:8", "batch[eps=0.001]", "batch"}) == "batch");
  CHECK(reference_of({"group:8", "batch[eps=0.001]", "batch[momentum=0.01]"}) == "batch[eps=0.001]");
  CHECK(reference_of({"group:8"}).empty());
}

TEST_CASE("report: the answer, a sentence for each model") {
  Comparison comparison = example();
  CHECK(answer_of(comparison) == "resnet50: group:32 costs 25.0 % (20.0 to 30.0) of batch norm's throughput.");
  comparison.timings[0].rounds.resize(5);
  CHECK(answer_of(comparison).empty());  // too few to know
  for (int i = 0; i < 3; ++i) {
    comparison.timings[0].rounds.push_back({1, 1, 1, 1});
  }
  comparison.timings[0].rounds.erase(comparison.timings[0].rounds.begin(), comparison.timings[0].rounds.begin() + 5);
  for (int i = 0; i < 5; ++i) {  // eight: six could show no tax of three norms together
    comparison.timings[0].rounds.push_back({1, 1, 1, 1});
  }
  CHECK(answer_of(comparison) == "resnet50: no norm was found to cost more than batch norm, or less.");
  comparison.timings.clear();
  CHECK(answer_of(comparison).empty());

  // Differences of 10 and 10.1 points, of 1 and -1.
  comparison.cells = {finished("resnet18", "batch", 0, 0.80, 400),   finished("resnet18", "batch", 1, 0.80, 400),
                      finished("resnet18", "layer2d", 0, 0.90, 400), finished("resnet18", "layer2d", 1, 0.901, 400),
                      finished("resnet18", "group:8", 0, 0.81, 400), finished("resnet18", "group:8", 1, 0.79, 400)};
  CHECK(answer_of(comparison) == "resnet18: layer2d is 10.0 points (8.8 to 11.3) more accurate than batch norm.");
  comparison.cells.resize(2);
  comparison.cells.push_back(finished("resnet18", "group:8", 0, 0.81, 400));
  comparison.cells.push_back(finished("resnet18", "group:8", 1, 0.79, 400));
  CHECK(answer_of(comparison) == "resnet18: accuracy is undecided (about 190 more seeds would decide).");
  comparison.timing_rounds = 6;
  comparison.timings = {{.group = of_model("resnet18"),
                         .norms = {"batch", "group:8"},
                         .rounds = {{1, 0.5}, {1, 0.5}, {1, 0.5}, {1, 0.5}, {1, 0.5}, {1, 0.5}}}};
  CHECK(
      answer_of(comparison) ==
      "resnet18: group:8 is faster than batch norm by 100.0 % (100.0 to 100.0). Accuracy is undecided (about 190 more "
      "seeds would decide).");
}

TEST_CASE("report: what is said of the tax") {
  Comparison comparison = example();
  CHECK(
      tax_note(comparison) ==
      "Tax: the share of batch norm's throughput that is lost, the median over 8 rounds of training steps in turns, as "
      "far as rounds do not depend on each other. Images per second are of the same steps, where they are made; else "
      "of whole runs.");
  comparison.timings.push_back({.group = of_model("convnext_atto"), .norms = {"batch", "layer2d"}, .rounds = {{1, 1}}});
  CHECK(tax_note(comparison).find("over 1 to 8 rounds") != std::string::npos);
  comparison.timings.resize(1);
  comparison.timings[0].rounds.resize(5);
  comparison.timing_rounds = 5;
  comparison.timings[0].problem = "group:7: out of memory";
  CHECK(tax_note(comparison)
            .ends_with("7 rounds are the fewest that can show a difference. Not all steps of resnet50 "
                       "were timed: group:7: out of memory."));
  comparison.timings.clear();
  CHECK(tax_note(comparison).empty());
}

TEST_CASE("report: images per second are of the steps that the tax is from") {
  Comparison comparison = example();
  std::vector<Row> rows = summarize(comparison);
  CHECK(rows[0].images_per_second.mean == 128);
  CHECK(rows[1].images_per_second.mean == doctest::Approx((1 - rows[1].tax->difference) * 128));
  CHECK(!rows[1].images_per_second.deviation);
  CHECK(rows[4].images_per_second.mean == 500);  // no batch norm to take turns with: of its run
  comparison.timings[0].rounds.pop_back();       // not all rounds are made
  rows = summarize(comparison);
  CHECK(rows[0].images_per_second.mean == 400);
  CHECK(rows[1].images_per_second.mean == 300);
  CHECK(format_tax(rows[1].tax) == "not known yet: 7 of 8 rounds");
}

TEST_CASE("report: nothing is decided before all runs and rounds are made") {
  Comparison comparison = example();
  comparison.cells.clear();
  for (const uint64_t seed : {0, 1, 2}) {
    comparison.cells.push_back(finished("resnet18", "batch", seed, 0.8, 100));
    comparison.cells.push_back(finished("resnet18", "group:8", seed, 0.9 + 0.001 * static_cast<double>(seed), 100));
    comparison.cells.push_back(finished("resnet18", "frn", seed, 0.7 + 0.001 * static_cast<double>(seed), 100));
  }
  comparison.timing_rounds = 24;
  comparison.timings = {{.group = of_model("resnet18"), .norms = {"batch", "group:8", "frn"}, .rounds = {}}};
  comparison.timings[0].rounds.assign(10, {1, 2, 1.5});
  comparison.cells[5].state = CellState::pending;  // a seed of frn
  std::vector<Row> rows = summarize(comparison);
  CHECK(rows[1].accuracy_difference->found());
  CHECK(format_difference(rows[2].accuracy_difference) == "not known yet: 2 of 3 seeds");
  CHECK(format_tax(rows[2].tax) == "not known yet: 10 of 24 rounds");
  CHECK(answer_of(comparison) == "resnet18: group:8 is 10.1 points (9.7 to 10.5) more accurate than batch norm.");
  comparison.cells[0].state = CellState::interrupted;  // and one of batch norm, which all others need
  CHECK(answer_of(comparison).empty());
  CHECK(accuracy_note(comparison).empty());
  // What failed has ended: the pairs that are left decide.
  comparison.cells[0].state = CellState::failed;
  comparison.cells[5].state = CellState::failed;
  rows = summarize(comparison);
  CHECK(rows[1].accuracy_difference->pairs == 2);
  CHECK(rows[1].accuracy_difference->known());
  CHECK(format_difference(rows[2].accuracy_difference) == "not known after 1 seed");
  // As many tests from the start as in the end.
  for (Cell& cell : comparison.cells) {
    cell.state = CellState::pending;
  }
  CHECK(accuracy_tests(comparison) == 2);
  CHECK(tax_tests(comparison) == 2);
}

TEST_CASE("report: norms are tested against the reference seed by seed") {
  Comparison comparison = example();
  const auto cell = [](const std::string& norm, uint64_t seed, double accuracy) {
    return finished("resnet18", norm, seed, accuracy, 400);
  };
  comparison.timings.clear();
  comparison.timing_rounds = 0;
  // Seeds move all norms alike: the spread of each is wide, that of the differences narrow.
  comparison.cells = {cell("group:8", 0, 0.711), cell("group:8", 1, 0.812), cell("group:8", 2, 0.913),
                      cell("batch", 2, 0.900),   cell("batch", 0, 0.700),   cell("batch", 1, 0.800),
                      cell("frn", 0, 0.70),      cell("frn", 1, 0.81),      cell("grn", 0, 0.70)};
  const std::vector<Row> rows = summarize(comparison);
  REQUIRE(rows.size() == 4);
  REQUIRE(rows[0].accuracy_difference);
  CHECK(rows[0].accuracy_difference->difference == doctest::Approx(1.2));
  CHECK(rows[0].accuracy_difference->pairs == 3);
  // t is 20.78 with two degrees of freedom: 0.002308; frn's is 1 with one: 0.5. Each times two tests.
  CHECK(rows[0].accuracy_difference->chance == doctest::Approx(2 * 0.002308).epsilon(0.001));
  CHECK(!rows[1].accuracy_difference);
  CHECK(rows[2].accuracy_difference->chance == doctest::Approx(1));
  CHECK(!rows[3].accuracy_difference);  // one seed
  const std::string table = to_table(comparison);
  CHECK(table.find("  to reference  ") != std::string::npos);
  CHECK(table.find("  +1.20 (0.84 to 1.56), p 0.005  ") != std::string::npos);
  CHECK(table.find(
            "A norm differs from batch norm where the interval of the difference, in brackets, leaves out 0. "
            "Accuracy: the mean difference of runs with the same seed, in points (Student's t; p is below 0.05 in "
            "the same cases). Of 100 comparisons without any difference, at most 5 find one (Bonferroni's correction "
            "for 2 tests of accuracy). Nothing is said before all runs or rounds are made.\n") != std::string::npos);
  CHECK(to_html(comparison).find(">to reference +1.20 (0.84 to 1.56), p 0.005<") != std::string::npos);
  comparison.cells.resize(1);
  CHECK(to_table(comparison).find("to reference") == std::string::npos);
}

TEST_CASE("report: five hundred cells") {
  Comparison comparison = example();
  comparison.cells.clear();
  comparison.timings.clear();
  for (int64_t batch_size = 1; batch_size <= 50; ++batch_size) {
    for (const char* norm : {"batch", "layer2d", "group", "frn", "grn"}) {
      for (const uint64_t seed : {0, 1}) {
        Cell& cell = comparison.cells.emplace_back(finished("resnet18", norm, seed, 0.5, 100));
        cell.batch_size = batch_size;
      }
    }
  }
  comparison.cells[0].accuracy = 0.6;
  comparison.cells[11].accuracy = 0.7;
  CHECK(summarize(comparison).size() == 250);
  // Of two batch sizes something is known, and the other 48 are not listed one by one.
  CHECK(answer_of(comparison) ==
        "resnet18 with batch size 1 and resnet18 with batch size 2: accuracy is undecided (about 45 more seeds would "
        "decide).");
  for (size_t i = 20; i < 60; i += 10) {
    comparison.cells[i].accuracy = 0.6;
  }
  CHECK(accuracy_note(comparison) ==
        "Counted in each setting, 0 norms are equal to batch norm within 0.3 points, and 24 are undecided: the report "
        "has each in its section Statistics. Two seeds say little: 24 of 24 intervals go as far as accuracies can.");
  const std::string table = to_table(comparison);
  CHECK(std::count(table.begin(), table.end(), '\n') > 250);
  CHECK(to_json(comparison_from_json(to_json(comparison))) == to_json(comparison));
  CHECK(to_html(comparison).size() < 3'000'000);
}

TEST_CASE("report: learning rates that were tried") {
  Comparison comparison = example();
  Cell& batch = comparison.cells[0];
  comparison.tune_lr = true;
  comparison.tunings = {
      {.settings = batch,
       .trials = {{.lr = 0.001, .loss = 2},
                  {.lr = 0.002, .loss = 1.5},
                  {.lr = 0.004, .loss = {}, .reason = "the loss became nan"}}},
      {.settings = comparison.cells[1], .trials = {{.lr = 0.001, .loss = 2}, {.lr = 0.002, .loss = 3}}},
      {.settings = comparison.cells[2], .trials = {{.lr = 0.001, .loss = {}, .reason = "no"}}}};
  batch.seed = 5;  // all seeds are trained with it
  CHECK(lr_of(comparison, batch) == 0.002);
  CHECK(recipe_of(comparison, comparison.cells[1]).lr == 0.001);
  CHECK(lr_of(comparison, comparison.cells[2]) == 0.002);  // the recipe's
  CHECK(tuning_note(comparison) ==
        "Learning rates, those with the smallest training loss in short runs: resnet50 batch 0.002; resnet50 group:32 "
        "0.001 (at the edge of what was tried: a better one may lie beyond); resnet50 group:7 0.002, as every one that "
        "was tried failed.");
  CHECK(to_csv(comparison).find("\nresnet50,group:32,0,128,0.001,") != std::string::npos);
  const Comparison read = comparison_from_json(to_json(comparison));
  CHECK(to_json(read) == to_json(comparison));
  CHECK(read.tunings[0].trials[2].reason == "the loss became nan");
  std::string older = to_json(comparison);
  older.replace(older.find("\"loss\": 3.0"), 11, "\"loss\": null");  // one that was not finite
  CHECK(!comparison_from_json(older).tunings[1].trials[1].loss);
  CHECK(tuning_note(example()).empty());
}

TEST_CASE("report: what varies has columns, and each of its values groups of its own") {
  Comparison comparison = example();
  comparison.cells = {finished("resnet18", "batch", 0, 0.8, 400), finished("resnet18", "group:8", 0, 0.7, 400),
                      finished("resnet18", "batch", 0, 0.6, 200), finished("resnet18", "group:8", 0, 0.5, 100)};
  comparison.cells[2].batch_size = comparison.cells[3].batch_size = 4;
  comparison.cells[2].format = comparison.cells[3].format = MemoryFormat::contiguous;
  Settings small = timing_group(comparison.cells[2]);
  comparison.timings = {{.group = of_model("resnet18"), .norms = {"batch", "group:8"}, .rounds = {}},
                        {.group = small, .norms = {"batch", "group:8"}, .rounds = {}}};
  for (int i = 0; i < 8; ++i) {
    comparison.timings[0].rounds.push_back({1, 1});
    comparison.timings[1].rounds.push_back({1, 2});
  }
  const std::vector<Row> rows = summarize(comparison);
  REQUIRE(rows.size() == 4);
  CHECK(rows[1].tax->difference == 0);
  CHECK(rows[3].tax->difference == 0.5);
  CHECK(rows[3].batch_size == 4);
  CHECK(values_of(comparison, "batch size") == "128, 4");
  CHECK(values_of(comparison, "precision") == "float32");
  CHECK(label_of(comparison, comparison.cells[3]) == "resnet18 group:8, batch size 4, format contiguous");
  const std::string table = to_table(comparison);
  CHECK(table.starts_with("model     batch size  format         norm     accuracy %  test loss  img/s "));
  CHECK(table.find("\nresnet18  4           contiguous     group:8       50.00 ") != std::string::npos);
  CHECK(answer_of(comparison) ==
        "resnet18 with batch size 128, format channels_last: no norm was found to cost more than batch norm, or less. "
        "resnet18 with batch size 4, format contiguous: group:8 costs 50.0 % (50.0 to 50.0) of batch norm's "
        "throughput.");
  const Comparison read = comparison_from_json(to_json(comparison));
  CHECK(to_json(read) == to_json(comparison));
  CHECK(read.cells[3].batch_size == 4);
  CHECK(read.cells[3].format == MemoryFormat::contiguous);
  CHECK(to_html(read).find("resnet18 with batch size 4, format contiguous</th>") != std::string::npos);

  comparison.cells[2].lr = comparison.cells[3].lr = 0.5;  // a learning rate changes no time
  comparison.cells[2].batch_size = comparison.cells[3].batch_size = 128;
  comparison.cells[2].format = comparison.cells[3].format = MemoryFormat::channels_last;
  CHECK(summarize(comparison)[3].tax->difference == 0);
}

TEST_CASE("report: four files are written, and an error names the one that cannot be") {
  const test::TemporaryFolder folder;
  write_report(example(), folder.path());
  CHECK(test::read_file(folder / "results.csv") == to_csv(example()));
  CHECK(test::read_file(folder / "results.json") == to_json(example()));
  CHECK(test::read_file(folder / "report.html") == to_html(example()));
  CHECK(test::read_file(folder / "report.md") == to_markdown(example()));
  const std::string missing = (folder / "missing").string();
  CHECK_THROWS_WITH_AS(write_report(example(), missing),
                       ("compare: cannot write " + missing + "/results.json: No such file or directory").c_str(),
                       Error);
}

TEST_CASE("report.md: the head of a column ends at no bar of its own") {
  CHECK(to_markdown(Table{.heads = {"norm", "largest |output|"}, .rows = {{.cells = {"batch", "3"}}}}) ==
        "| norm | largest \\|output\\| |\n| :-- | --: |\n| batch | 3 |\n");
}

TEST_CASE("report.md: the answer, the table, the notes, and nothing that is taken for markup") {
  Comparison comparison = example();
  comparison.cells[1].norm = "group|32*";
  comparison.timings[0].norms[1] = "group|32*";
  comparison.command = "norma compare --norms '```'";
  const std::string text = to_markdown(comparison);
  CHECK(
      text.starts_with("# What the norm costs, and what it buys\n\n**group\\|32\\* costs 25.0 % of batch norm's "
                       "throughput in resnet50, but"));
  CHECK(
      text.find("| model | norm | accuracy % | test loss | img/s | tax | memory | parameters |\n"
                "| :-- | :-- | --: | --: | --: | --: | --: | --: |\n"
                "| resnet50 | batch | 83.10 | 0.5000 | 128.0 | – | 1.23 GB | 25,557,032 |\n"
                "| resnet50 | group\\|32\\* | 83.40 | 0.5000 | 96.0 | 25.0 % (20.0 to 30.0) | 1.23 GB | 25,557,032 |\n"
                "| resnet50 | group:7 | failed: group\\_norm: 7 groups, \"64\" &lt;channels&gt; |  |  |  |  |  |\n") !=
      std::string::npos);
  CHECK(text.find("\nTax: the share of batch norm's throughput") != std::string::npos);
  CHECK(text.find("````sh\nnorma compare --norms '```'\n````\n") != std::string::npos);
  CHECK(text.find("\nnorma.run(\"train\",\"--model\",\"resnet50\",\"--norm\",\"group|32*\",") != std::string::npos);
  // Every line of the table has as many cells.
  for (size_t at = text.find("\n| "); at != std::string::npos; at = text.find("\n| ", at + 1)) {
    const std::string line = text.substr(at + 1, text.find('\n', at + 1) - at - 1);
    size_t bars = 0;
    for (size_t i = 0; i < line.size(); ++i) {
      bars += line[i] == '|' && (i == 0 || line[i - 1] != '\\') ? 1 : 0;
    }
    CHECK_MESSAGE(bars == 9, line);
  }
}
