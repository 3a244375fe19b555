#include "lab/report/report.h"

#include "core/error.h"
#include "error_text.h"
#include "files.h"

#include <doctest/doctest.h>
#include <sys/mman.h>

#include <cstring>
#include <regex>
#include <string>

using namespace norma;
using namespace norma::lab;

namespace {

Cell finished(const std::string& model, const std::string& norm, uint64_t seed, double accuracy, double rate) {
  Cell cell;
  cell.model = model;
  cell.norm = norm;
  cell.seed = seed;
  cell.state = CellState::finished;
  cell.accuracy = accuracy;
  cell.loss = 0.5;
  cell.images_per_second = rate;
  cell.seconds = 60;
  cell.peak_bytes = 1'230'000'000;
  cell.peak_resident = 1'500'000'000;
  cell.parameters = 25'557'032;
  cell.losses = {2.5, 1.5, 0.5};
  return cell;
}

Cell unfinished(const std::string& norm, CellState state, const std::string& reason) {
  Cell cell;
  cell.model = "resnet50";
  cell.norm = norm;
  cell.state = state;
  cell.reason = reason;
  return cell;
}

Comparison example() {
  Comparison comparison;
  comparison.recipe.dataset = "shapes";
  comparison.recipe.images = 25600;
  comparison.environment = train::environment();
  comparison.command = "norma compare --norms 'group<7>'";
  comparison.date = "2026-11-21 14:03:07";
  comparison.cells = {finished("resnet50", "batch", 0, 0.831, 400), finished("resnet50", "group:32", 0, 0.834, 300),
                      unfinished("group:7", CellState::failed, "group_norm: 7 groups, \"64\" <channels>"),
                      unfinished("instance", CellState::interrupted, ""),
                      finished("convnext_atto", "layer2d", 0, 0.8, 500)};
  return comparison;
}

}  // namespace

TEST_CASE("report: the tax is the share of batch's throughput that is lost, of the same model") {
  const std::vector<Row> rows = summarize(example());
  REQUIRE(rows.size() == 5);
  CHECK(rows[0].tax == 0);
  REQUIRE(rows[1].tax.has_value());
  CHECK(*rows[1].tax == doctest::Approx(0.25));
  CHECK_FALSE(rows[2].tax.has_value());
  CHECK(rows[2].problem == "failed: group_norm: 7 groups, \"64\" <channels>");
  CHECK(rows[3].problem == "interrupted");
  CHECK_FALSE(rows[4].tax.has_value());  // no batch for this model
}

TEST_CASE("report: batch with options is the reference too") {
  Comparison comparison = example();
  comparison.cells[0].norm = "batch[momentum=0.01]";
  CHECK(*summarize(comparison)[1].tax == doctest::Approx(0.25));
}

TEST_CASE("report: seeds of one model and norm become one row with mean and deviation") {
  Comparison comparison = example();
  comparison.cells = {finished("resnet50", "batch", 0, 0.80, 400), finished("resnet50", "batch", 1, 0.84, 500),
                      unfinished("batch", CellState::pending, "")};
  comparison.cells[2].seed = 2;
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
  CHECK(format_tax(0.123456) == "12.3 %");
  CHECK(format_tax(-0.02) == "-2.0 %");
  CHECK(format_tax(-0.0001) == "0.0 %");
}

TEST_CASE("report: the table lines up, and tells what went wrong") {
  CHECK(to_table(example()) ==
        "model          norm      accuracy %  test loss  img/s     tax   memory  parameters\n"
        "resnet50       batch          83.10     0.5000  400.0   0.0 %  1.23 GB  25,557,032\n"
        "resnet50       group:32       83.40     0.5000  300.0  25.0 %  1.23 GB  25,557,032\n"
        "resnet50       group:7   failed: group_norm: 7 groups, \"64\" <channels>\n"
        "resnet50       instance  interrupted\n"
        "convnext_atto  layer2d        80.00     0.5000  500.0       –  1.23 GB  25,557,032\n");
}

TEST_CASE("report: CSV has a line per cell and quotes what needs it") {
  CHECK(to_csv(example()) ==
        "model,norm,seed,state,test_accuracy,test_loss,images_per_second,tax,peak_tensor_bytes,peak_process_bytes,"
        "parameters,steps,seconds,reason\n"
        "resnet50,batch,0,finished,0.831,0.5,400.000,0.000000,1230000000,1500000000,25557032,3,60.000,\n"
        "resnet50,group:32,0,finished,0.834,0.5,300.000,0.250000,1230000000,1500000000,25557032,3,60.000,\n"
        "resnet50,group:7,0,failed,,,,,,,,,,\"group_norm: 7 groups, \"\"64\"\" <channels>\"\n"
        "resnet50,instance,0,interrupted,,,,,,,,,,\n"
        "convnext_atto,layer2d,0,finished,0.8,0.5,500.000,,1230000000,1500000000,25557032,3,60.000,\n");
}

TEST_CASE("report: JSON keeps everything") {
  const Comparison before = example();
  const Comparison after = comparison_from_json(to_json(before));
  CHECK(to_json(after) == to_json(before));
  CHECK(to_html(after) == to_html(before));
  REQUIRE(after.cells.size() == 5);
  CHECK(after.cells[0].losses == before.cells[0].losses);
  CHECK(after.cells[2].reason == before.cells[2].reason);
  CHECK(after.cells[3].state == CellState::interrupted);
}

TEST_CASE("report: JSON keeps a loss that is no number") {
  Comparison comparison;
  comparison.cells = {finished("resnet18", "batch", 0, 0.5, 100)};
  comparison.cells[0].loss = NAN;
  CHECK(std::isnan(comparison_from_json(to_json(comparison)).cells[0].loss));
}

TEST_CASE("report: a text that is no comparison is an error") {
  CHECK_THROWS_AS(comparison_from_json("{"), Error);
  CHECK_THROWS_AS(comparison_from_json("{}"), Error);
  std::string text = to_json(example());
  text.replace(text.find("\"interrupted\""), 13, "\"interruptet\"");
  CHECK_THROWS_WITH_AS(
      comparison_from_json(text),
      "comparison: cell 4: state: expected pending, finished, failed or interrupted, got 'interruptet'", Error);
  text = to_json(example());
  text.insert(text.find("\"recipe\""), "\"environment\": {}, ");
  CHECK_THROWS_WITH_AS(comparison_from_json(text),
                       "comparison: the comparison: 'environment': expected each key once, got it again", Error);
}

TEST_CASE("report: cells that contradict themselves are an error") {
  const auto error = [](auto&& change) {
    Comparison comparison = example();
    change(comparison);
    return test::error_of([&] { comparison_from_json(to_json(comparison)); });
  };
  CHECK(error([](Comparison& c) { c.cells[0].accuracy = 1.5; }) ==
        "comparison: cell 1: accuracy: expected a number from 0 to 1, got 1.5");
  CHECK(error([](Comparison& c) { c.cells[0].accuracy = -0.5; }) ==
        "comparison: cell 1: accuracy: expected a number from 0 to 1, got -0.5");
  CHECK(error([](Comparison& c) { c.cells[1].seconds = -60; }) ==
        "comparison: cell 2: seconds: expected at least 0, got -60");
  CHECK(error([](Comparison& c) { c.cells[1].peak_bytes = -1; }) ==
        "comparison: cell 2: peak_bytes: expected at least 0, got -1");
  CHECK(error([](Comparison& c) { c.cells[1].norm = "batch"; }) ==
        "comparison: cell 2: expected each once, got resnet50 with norm batch and seed 0 twice");
  CHECK(error([](Comparison& c) { c.cells.clear(); }) == "comparison: cells: expected at least one, got none");
}

TEST_CASE("report: the page stands alone, escapes its texts and closes its elements") {
  const std::string page = to_html(example());
  for (const char* outside : {"http:", "https:", "src=", "href=", "url(", "@import", "<script"}) {
    CHECK_MESSAGE(page.find(outside) == std::string::npos, outside);
  }
  CHECK(page.find("group&lt;7&gt;") != std::string::npos);
  CHECK(page.find("<channels>") == std::string::npos);
  CHECK(page.find("nan") == std::string::npos);
  for (const char* element : {"table", "tr", "td", "svg", "figure", "dl", "dt", "dd", "style", "path", "body"}) {
    const std::string name = element;
    const std::regex open("<" + name + "[ >]");
    const std::regex close("</" + name + ">");
    const auto count = [&](const std::regex& pattern) {
      return std::distance(std::sregex_iterator(page.begin(), page.end(), pattern), std::sregex_iterator());
    };
    CHECK_MESSAGE(count(open) == count(close), name);
    CHECK_MESSAGE(count(open) > 0, name);
  }
  CHECK(page.find("83.10 %") != std::string::npos);
  CHECK(page.find("25.0 %") != std::string::npos);
}

TEST_CASE("report: three files are written, and an error names the one that cannot be") {
  const test::TemporaryFolder folder;
  write_report(example(), folder.path());
  CHECK(test::read_file(folder / "results.csv") == to_csv(example()));
  CHECK(test::read_file(folder / "results.json") == to_json(example()));
  CHECK(test::read_file(folder / "report.html") == to_html(example()));
  const std::string missing = (folder / "missing").string();
  CHECK_THROWS_WITH_AS(write_report(example(), missing),
                       ("compare: cannot write " + missing + "/results.json: No such file or directory").c_str(),
                       Error);
}

TEST_CASE("environment: says what it runs on") {
  const train::Environment e = train::environment();
  CHECK_FALSE(e.norma.empty());
  CHECK_FALSE(e.compiler.empty());
  CHECK(e.cores >= 1);
  CHECK(e.threads >= 1);
  CHECK(e.memory > 0);
  CHECK(e.libraries.size() >= 5);
  for (const auto& [name, version] : e.libraries) {
    CHECK_MESSAGE(std::regex_search(version, std::regex("[0-9]+\\.[0-9]+")), name << " " << version);
  }
}

TEST_CASE("environment: the time has the form it promises") {
  CHECK(std::regex_match(train::local_time(), std::regex("\\d{4}-\\d\\d-\\d\\d \\d\\d:\\d\\d:\\d\\d")));
  CHECK(std::regex_match(train::local_time(/* compact= */ true), std::regex("\\d{8}-\\d{6}")));
}

TEST_CASE("environment: the peak of resident memory is that of its own span") {
  constexpr size_t kBytes = 64'000'000;
  constexpr int64_t kHalf = kBytes / 2;
  for (const bool reset : {true, false}) {  // false: as where the system does not let a process reset its mark
    CAPTURE(reset);
    train::ResidentPeak first(reset);
    const int64_t before = first.bytes();
    CHECK(before > 0);
    // Straight from the system: an allocator may keep what it is given back.
    void* memory = mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    REQUIRE(memory != MAP_FAILED);
    std::memset(memory, 1, kBytes);
    first.sample();
    REQUIRE(munmap(memory, kBytes) == 0);
    CHECK(first.bytes() >= before + kHalf);
    const train::ResidentPeak second(reset);
    CHECK(second.bytes() < before + kHalf);
  }
}
