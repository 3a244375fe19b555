#include "cli/program.h"
#include "json.h"

#include <algorithm>
#include <string>

using namespace norma;
using test::complaint;
using test::interrupt_norma;
using test::Outcome;
using test::read_file;
using test::run_norma;
using test::TemporaryFolder;

TEST_CASE("norma audit: table on the terminal, files in the folder") {
  const TemporaryFolder folder;
  const Outcome outcome = run_norma(folder.path(),
                                    "audit --quick --norms layer,rms2d --statistics stable,sum_of_squares "
                                    "--dtypes float32 --cases offset_0,offset_1e4,rand_100 --output o");
  CHECK_MESSAGE(outcome.code == 0, outcome.err);
  CHECK(outcome.out.find("float32 layer: 6 measurements so far, ") != std::string::npos);
  CHECK(outcome.out.find("layer  stable          float32  ") != std::string::npos);
  CHECK(outcome.out.find("rows  columns  runs\n") != std::string::npos);
  CHECK(outcome.out.find("8 measurements in ") != std::string::npos);
  CHECK(outcome.out.find("all of them: o/results.json\n") != std::string::npos);
  CHECK(outcome.out.find(read_file(folder / "o/table.txt")) != std::string::npos);
  const std::string csv = read_file(folder / "o/results.csv");
  CHECK(std::count(csv.begin(), csv.end(), '\n') == 9);
  const std::string costs = read_file(folder / "o/costs.csv");
  CHECK(std::count(costs.begin(), costs.end(), '\n') == 7);
  const auto json = test::parse_json(read_file(folder / "o/results.json"));
  CHECK(json["quick"] == true);
  CHECK(json["complete"] == true);
  CHECK(json["command"].get<std::string>().starts_with("norma audit --quick --norms layer,rms2d"));

  const Outcome again = run_norma(folder.path(), "audit --quick --output o");
  CHECK(again.code == 2);
  CHECK(again.err == "norma: audit: 'o' holds other results (results.json): choose another output folder\n");
}

TEST_CASE("norma audit: --quiet shows no progress, and the folder has a name of its own") {
  const TemporaryFolder folder;
  const Outcome outcome =
      run_norma(folder.path(), "audit --quick --quiet --norms rms2d --dtypes float32 --cases one_element");
  CHECK_MESSAGE(outcome.code == 0, outcome.err);
  CHECK(outcome.out.find("so far") == std::string::npos);
  CHECK(outcome.out.find("all of them: runs/audit-") != std::string::npos);
}

TEST_CASE("norma audit: SIGINT writes what is measured") {
  const TemporaryFolder folder;
  const Outcome cut = interrupt_norma(folder.path(), "audit --output o", "measurements so far");
  CHECK(cut.code == 130);
  CHECK_MESSAGE(cut.out.ends_with("interrupted\n"), cut.out);
  CHECK(test::parse_json(read_file(folder / "o/results.json"))["complete"] == false);

  // At the first training step, behind the layers.
  const Outcome of_convolutions = interrupt_norma(folder.path(), "audit --convolutions --quick --output c",
                                                  "convolutions: resnet18 batch 8x3x64x64, ");
  CHECK(of_convolutions.code == 130);
  CHECK(of_convolutions.out.find("Each norm") == std::string::npos);
  REQUIRE_FALSE(read_file(folder / "c/table.txt").empty());
  CHECK(of_convolutions.out.find(read_file(folder / "c/table.txt")) != std::string::npos);
  const auto json = test::parse_json(read_file(folder / "c/results.json"));
  CHECK(json["complete"] == false);
  CHECK(json["measurements"].empty());
  CHECK(json["convolutions"].size() == 48);
  const std::string csv = read_file(folder / "c/convolutions.csv");
  CHECK(csv.starts_with("what,memory_format,implementation,quantity,error\n8x64x56x56,channels_last,exact,output,"));
  CHECK(std::count(csv.begin(), csv.end(), '\n') == 49);
}

TEST_CASE("norma audit: --convolutions compares implementations with float64, in layers and training steps" *
          doctest::test_suite("again")) {
  const TemporaryFolder folder;
  const Outcome outcome = run_norma(folder.path(), "audit --convolutions --quick --output o");
  CHECK_MESSAGE(outcome.code == 0, outcome.err);
  CHECK(outcome.out.find("convolutions: resnet18 batch 8x3x64x64, ") != std::string::npos);
  CHECK(outcome.out.find("20 measurements in ") != std::string::npos);
  REQUIRE_FALSE(read_file(folder / "o/table.txt").empty());
  CHECK(outcome.out.find(read_file(folder / "o/table.txt")) != std::string::npos);
  CHECK(test::parse_json(read_file(folder / "o/results.json"))["convolutions"].size() == 60);
  const std::string csv = read_file(folder / "o/convolutions.csv");
  CHECK(std::count(csv.begin(), csv.end(), '\n') == 61);
}

TEST_CASE("norma audit: the help lists the cases") {
  const TemporaryFolder folder;
  const Outcome help = run_norma(folder.path(), "audit --help");
  CHECK(help.code == 0);
  for (const char* text : {"--norms", "--statistics", "--dtypes", "--cases", "--output", "--quick", "--threads",
                           "offset_1e6", "randn_1024x32768", "layer_16x224x224"}) {
    CHECK_MESSAGE(help.out.find(text) != std::string::npos, text);
  }
}

TEST_CASE("norma audit: what is wrong is said before anything runs") {
  CHECK(complaint("audit --norms bath") == "norma: audit: norms: unknown norm 'bath'; did you mean 'batch'?\n");
  CHECK(complaint("audit --statistics stable,stabel") ==
        "norma: audit: statistics: unknown statistics 'stabel'; did you mean 'stable'?\n");
  CHECK(complaint("audit --dtypes int64").starts_with("norma: audit: dtypes: unknown dtype 'int64'"));
  CHECK(complaint("audit --cases nan,nan") == "norma: audit: cases: expected each once, got nan twice\n");
  CHECK(complaint("audit --convolutions --dtypes float32") ==
        "norma: audit: convolutions: expected norms with the choice of statistics, dtypes or cases, got none\n");
  CHECK(complaint("audit --convolutions --device cuda-emulated") ==
        "norma: audit: convolutions: expected a device with Winograd's convolutions, got cuda-emulated:0\n");
  CHECK(complaint("audit --quik") == "norma: audit: unknown option '--quik'; did you mean '--quick'?\n");
  CHECK(complaint("audit --threads -1") == "norma: audit: --threads: expected a whole number from 0 to 1024, got -1\n");
  const TemporaryFolder folder;
  test::write_file(folder / "file", "");
  CHECK(run_norma(folder.path(), "audit --output file").err == "norma: audit: cannot write file: Not a directory\n");
}
