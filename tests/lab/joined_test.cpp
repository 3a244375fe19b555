
#include "error_text.h"
#include "files.h"
#include "lab/compare/comparison.h"
#include "lab/report/merged.h"
#include "lab/report_cases.h"
#include "lab/small_comparison.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

using namespace norma;
using namespace norma::lab;
using namespace norma::test;

namespace {

/// The part of example() that has these cells.
Comparison part_of_example(int64_t number, const std::vector<size_t>& cells, const std::string& cpu = "A") {
  Comparison part = example();
  part.environment.cpu = cpu;
  part.environment.threads = 2;
  part.date = fmt::format("2026-11-2{} 08:00:00", number);
  part.part_count = 3;
  part.parts = {{.number = number, .environment = part.environment, .command = part.command, .date = part.date}};
  for (size_t i = 0; i < part.cells.size(); ++i) {
    if (std::ranges::find(cells, i) == cells.end()) {
      Cell empty;
      static_cast<Settings&>(empty) = part.cells[i];
      empty.state = CellState::elsewhere;
      part.cells[i] = std::move(empty);
    }
  }
  if (number != 1) {
    part.timings.clear();  // the first cell's part has them
  }
  return part;
}

std::vector<Comparison> three() {
  return {part_of_example(3, {2}), part_of_example(1, {0, 4}), part_of_example(2, {1, 3})};
}

/// What a whole comparison has, too.
Comparison as_whole(Comparison comparison) {
  comparison.part_count = 0;
  comparison.parts.clear();
  return comparison;
}

const std::vector<std::string> kNames = {"c", "a", "b"};

}  // namespace

TEST_CASE("joined: the parts of a comparison are that comparison, in any order") {
  const Comparison whole = joined(kNames, three());
  REQUIRE(whole.parts.size() == 3);
  CHECK(whole.parts[0].number == 1);
  CHECK(whole.date == "2026-11-21 08:00:00");
  Comparison expected = example();
  expected.environment = whole.environment;
  expected.date = whole.date;
  CHECK(to_json(as_whole(whole)) == to_json(expected));
  CHECK(to_csv(whole) == to_csv(expected));
  CHECK(to_table(whole) == to_table(expected));  // one machine: there is nothing more to say
  CHECK(to_json(comparison_from_json(to_json(whole))) == to_json(whole));
  // A merged one and the missing part.
  std::vector<Comparison> parts = three();
  const Comparison two = joined({"c", "b"}, {parts[0], parts[2]});
  CHECK(to_json(joined({"two", "a"}, {two, parts[1]})) == to_json(whole));
}

TEST_CASE("joined: missing parts and different machines are said") {
  const Comparison one = part_of_example(2, {1, 3});
  CHECK(parts_note(one) == "This is part 2 of 3; the other runs are in parts 1 and 3.");
  CHECK(to_table(one).find("in another part") != std::string::npos);
  CHECK(to_csv(one).find("resnet50,batch,0,128,0.002,float32,channels_last,fashion_mnist,elsewhere,") !=
        std::string::npos);
  CHECK(parts_note(joined({"a", "b"}, {part_of_example(1, {0, 4}), one})) == "Runs are missing: those of part 3 of 3.");
  const std::string text =
      "The parts ran on different machines: parts 1 and 3 on A, 2 threads; part 2 on B, 2 "
      "threads. Times and memory of whole runs compare only within one of them.";
  const Comparison mixed =
      joined(kNames, {part_of_example(3, {2}), part_of_example(1, {0, 4}), part_of_example(2, {1, 3}, "B")});
  CHECK(parts_note(mixed) == text);
  CHECK(to_html(mixed).find(text) != std::string::npos);
  CHECK(to_html(mixed).find("part 2 of 3</th><td>begun 2026-11-22 08:00:00 on B, 2 threads by: norma compare") !=
        std::string::npos);
  CHECK(to_markdown(mixed).find("\n- part 2 of 3: begun 2026-11-22") != std::string::npos);
  CHECK(parts_note(example()).empty());
}

TEST_CASE("joined: what are no parts of one comparison is refused") {
  const auto error_with = [](size_t part, auto&& change) {
    std::vector<Comparison> parts = three();
    for (Comparison& one : parts) {
      one.environment.exact_convolutions = false;
    }
    change(parts[part]);
    return error_of([&] { joined(kNames, std::move(parts)); });
  };
  const std::string different = "report: 'c' and 'b' are parts of different plans: ";
  CHECK(error_with(2, [](Comparison& c) { c.recipe.images = 7; }) == different + "images 25600 → 7");
  CHECK(error_with(2, [](Comparison& c) { c.timing_rounds = 7; }) == different + "timing-rounds 8 → 7");
  CHECK(error_with(2, [](Comparison& c) { c.tune_lr = true; }) == different + "tune-lr false → true");
  CHECK(error_with(2, [](Comparison& c) { c.environment.exact_convolutions = true; }) ==
        different + "convolutions fast → exact");
  CHECK(error_with(2, [](Comparison& c) { c.environment.exact_convolutions.reset(); }) == "no error");  // of old files
  CHECK(error_with(2, [](Comparison& c) { c.part_count = 4; }) == different + "number of parts 3 → 4");
  CHECK(error_with(2, [](Comparison& c) { c.cells.pop_back(); }) ==
        different + "models, norms, seeds or other axes, 5 runs → 4");
  CHECK(error_with(2, [](Comparison& c) { c.cells[0].seed = 9; }) ==
        different + "models, norms, seeds or other axes, 5 runs → 5");
  CHECK(error_with(2, [](Comparison& c) { c.recipe.data_dir = "/elsewhere"; }) == "no error");
  CHECK(error_with(2, [](Comparison& c) { c.parts[0].number = 1; }) ==
        "report: 'a' and 'b' both hold part 1 of 3: leave one of them out");
  CHECK(error_with(2, [](Comparison& c) { c = as_whole(c); }) ==
        "report: 'b' is no part of a comparison: merge the parts first, without it");
  const std::string version = train::environment().norma;
  const std::string otherwise =
      "report: the parts were dealt out in different ways; they were run by Norma 0.0, " + version;
  CHECK(error_with(2, [](Comparison& c) {
          c.cells[0].state = CellState::pending;  // of part 1
          c.parts[0].environment.norma = "0.0";
        }) == otherwise);
  CHECK(error_with(2, [](Comparison& c) {
          c.cells[1].state = CellState::elsewhere;  // of no part
          c.parts[0].environment.norma = "0.0";
        }) == otherwise);
  CHECK(error_of([] {
          merged({"/both", "/a"}, {merged({"/x", "/y"}, {{{.name = "", .comparison = example()}},
                                                         {{.name = "",
                                                           .comparison =
                                                               [] {
                                                                 Comparison other = example();
                                                                 other.date = "later";
                                                                 return other;
                                                               }()}}}),
                                   {{.name = "", .comparison = part_of_example(1, {0, 4})}}});
        }) == "report: '/both' is no part of a comparison: merge the parts first, without it");
}

TEST_CASE("joined: a comparison that has all its parts again stands beside others") {
  const auto alone = [](Comparison comparison) { return Parts{{.name = "", .comparison = std::move(comparison)}}; };
  const Comparison whole = joined(kNames, three());
  const Parts both = merged({"/whole", "/other"}, {alone(whole), alone(example())});
  REQUIRE(both.size() == 2);
  CHECK(both[0].name == "whole");
  CHECK(to_json(both[0].comparison) == to_json(whole));
  CHECK(both[1].name == "other");
  CHECK(error_of([&] {
          merged({"/whole", "/a"}, {alone(whole), alone(part_of_example(1, {0, 4}))});
        }) == "report: '/whole' and '/a' both hold part 1 of 3: leave one of them out");
  CHECK(error_of([&] {
          merged({"/a", "/other"}, {alone(part_of_example(1, {0, 4})), alone(example())});
        }) == "report: '/other' is no part of a comparison: merge the parts first, without it");
}

TEST_CASE("joined: parts in a file must be parts") {
  const std::string text = to_json(part_of_example(2, {1, 3}));
  const auto changed = [&](const std::string& what, const std::string& with) {
    std::string other = text;
    REQUIRE(other.find(what) != std::string::npos);
    other.replace(other.find(what), what.size(), with);
    return error_of([&] { comparison_from_json(other); });
  };
  CHECK(changed("\"part_count\": 3", "\"part_count\": 0") == "comparison: part_count: expected at least 1, got 0");
  CHECK(changed("\"part_count\": 3", "\"part_count\": 9000000000000000000") ==
        "comparison: part_count: expected at most 5, one for each cell, got 9000000000000000000");
  CHECK(changed("\"part_count\": 3", "\"part_count\": 1") ==
        "comparison: part 1: number: expected one from 1 to 1, got 2");
  CHECK(changed("\"number\": 2", "\"number\": 0") == "comparison: part 1: number: expected one from 1 to 3, got 0");
  CHECK(changed("\"parts\": [", "\"part\": [") == "comparison: parts: expected a list of at least one");
  CHECK(changed("\"state\": \"elsewhere\"", "\"state\": \"else\"") ==
        "comparison: cell 1: state: expected pending, finished, failed, interrupted or elsewhere, got 'else'");
}

TEST_CASE("joined: three parts that ran give the figures of one run" * doctest::test_suite("again")) {
  const TemporaryFolder folder;
  ComparisonOptions options = small_comparison(folder / "whole");
  options.models = {"resnet18", "convnext_atto"};
  options.timing_rounds = 1;
  Comparison whole = plan_comparison(options);
  run_comparison(whole, options);
  std::vector<Comparison> parts;
  std::vector<std::string> names;
  for (int64_t number = 1; number <= 3; ++number) {
    names.push_back(fmt::format("part-{}", number));
    options.output = folder / names.back();
    Comparison part = plan_comparison(options);
    take_part(part, {.number = number, .count = 3}, deal(part, 3));
    run_comparison(part, options);
    parts.push_back(comparison_from_json(read_file(options.output / "results.json")));
    CHECK(std::ranges::none_of(parts.back().cells, [](const Cell& cell) { return cell.state == CellState::pending; }));
  }
  const Comparison found = joined(names, parts);
  REQUIRE(found.cells.size() == whole.cells.size());
  for (size_t i = 0; i < found.cells.size(); ++i) {
    CHECK(static_cast<const Settings&>(found.cells[i]) == whole.cells[i]);
    CHECK(found.cells[i].state == CellState::finished);
    CHECK(found.cells[i].losses == whole.cells[i].losses);
    CHECK(found.cells[i].accuracy == whole.cells[i].accuracy);
    CHECK(found.cells[i].loss == whole.cells[i].loss);
  }
  REQUIRE(found.timings.size() == whole.timings.size());
  for (size_t i = 0; i < found.timings.size(); ++i) {
    CHECK(found.timings[i].group == whole.timings[i].group);
    CHECK(found.timings[i].rounds.size() == 1);
  }
}
