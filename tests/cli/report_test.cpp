#include "cli/program.h"
#include "json.h"

#include <regex>
#include <sstream>
#include <string>

using namespace norma;
using test::Outcome;
using test::read_file;
using test::run_norma;
using test::TemporaryFolder;

namespace {

// Without telemetry: its numbers have six digits in results.json, and a page made of that may differ in the last of
// them.
const std::string kTiny =
    "compare --models convnext_atto --patch-size 4 --dataset shapes --batch-size 4 --test-images 8 --images 8 "
    "--timing-rounds 0 --no-telemetry --quiet ";

}  // namespace

TEST_CASE("norma report: rebuilds a report, merges several, and each run's command repeats it") {
  const TemporaryFolder folder;
  const std::string odd =
      "--no-channels-last --lr 0.003 --clip-grad 1 --smoothing 0.1 --flip --layer-scale 0.5 --threads 1 --scale 0.5,1 "
      "--ratio 0.8,1.2 --aa rand-m9-mstd0.5-inc1 --color-jitter 0.4,0.4,0.4,0.1 --reprob 0.5 --remode pixel --mixup "
      "0.8 --cutmix 1 ";
  REQUIRE(run_norma(folder.path(), kTiny + odd + "--norms 'batch,layer2d[eps=1e-3]' --seeds 3 --output a").code == 0);
  const std::string page = read_file(folder / "a/report.html");
  const std::string table = read_file(folder / "a/results.csv");
  std::filesystem::remove(folder / "a/report.html");
  std::filesystem::remove(folder / "a/results.csv");
  const Outcome again = run_norma(folder.path(), "report a");
  CHECK_MESSAGE(again.code == 0, again.err);
  CHECK(again.out.ends_with("\nreport: a/report.html\n"));
  CHECK(read_file(folder / "a/report.html") == page);
  CHECK(read_file(folder / "a/results.csv") == table);

  nlohmann::json other = test::parse_json(read_file(folder / "a/results.json"));
  other["environment"]["cpu"] = "another one";
  std::filesystem::create_directory(folder / "b");
  test::write_file(folder / "b/results.json", data::json_text(other));
  const Outcome both = run_norma(folder.path(), "report a b --output both");
  CHECK_MESSAGE(both.code == 0, both.err);
  CHECK(read_file(folder / "both/report.html").find("batch · b") != std::string::npos);
  CHECK(run_norma(folder.path(), "report both").code == 0);
  CHECK(
      run_norma(folder.path(), "compare --resume both").err.starts_with("norma: resume: both/results.json: format: "));

  // The second command of the page for people: the same accuracy and loss, to the last digit that is printed.
  const std::string markdown = read_file(folder / "a/report.md");
  std::smatch command;
  REQUIRE(std::regex_search(markdown, command, std::regex("norma (train .*layer2d.*)\n")));
  const Outcome repeated = run_norma(folder.path(), command[1].str() + " --quiet --output run");
  CHECK_MESSAGE(repeated.code == 0, repeated.err);
  const nlohmann::json cell = test::parse_json(read_file(folder / "a/results.json"))["cells"][1];
  CHECK_MESSAGE(
      repeated.out.find(fmt::format("test accuracy {:.2f} %, test loss {:.4f};", 100 * cell["accuracy"].get<double>(),
                                    cell["loss"].get<double>())) != std::string::npos,
      repeated.out);
}

TEST_CASE("norma report: names from a file are no markup in report.md, and no escape sequences on the terminal") {
  const TemporaryFolder folder;
  REQUIRE(run_norma(folder.path(), kTiny + "--norms batch,layer2d --threads 1 --output a").code == 0);
  nlohmann::json results = test::parse_json(read_file(folder / "a/results.json"));
  const std::string evil = "<img src=x onerror=y>\x1B[31m|\x7F\xC2\x9B";
  results["cells"][1]["norm"] = evil;
  results["cells"][1]["model"] = evil;
  results["command"] = "norma compare " + evil + "\n```\n<b>";
  results["environment"]["cpu"] = evil;
  test::write_file(folder / "a/results.json", data::json_text(results));
  const Outcome report = run_norma(folder.path(), "report a");
  CHECK_MESSAGE(report.code == 0, report.err);
  const auto no_controls = [](const std::string& text) {
    return text.find_first_of("\x1B\x7F") == std::string::npos && text.find("\xC2\x9B") == std::string::npos;
  };
  CHECK(report.out.find("<img") != std::string::npos);
  CHECK(no_controls(report.out));
  const std::string markdown = read_file(folder / "a/report.md");
  CHECK(no_controls(markdown));
  // Only inside code, which shows it as it is.
  std::string fence;  // of the code that a line lies in
  std::istringstream lines(markdown);
  for (std::string line; std::getline(lines, line);) {
    if (fence.empty() && line.starts_with("```")) {
      fence = line.substr(0, line.find_first_not_of('`'));
    } else if (line == fence) {
      fence.clear();
    }
    CHECK_MESSAGE((!fence.empty() || line.find('<') == std::string::npos), line);
  }
  CHECK(fence.empty());
  CHECK(markdown.find("&lt;img src=x onerror=y&gt;") != std::string::npos);
  CHECK(no_controls(read_file(folder / "a/report.html")));
  CHECK(read_file(folder / "a/report.html").find("<img") == std::string::npos);
}

TEST_CASE("norma report: what a killed one has left is written over by the same command, and nothing else is") {
  const TemporaryFolder folder;
  REQUIRE(run_norma(folder.path(), kTiny + "--norms batch --threads 1 --output a").code == 0);
  std::filesystem::create_directory(folder / "b");
  test::write_file(folder / "b/.norma-lock", "4711\n");
  test::write_file(folder / "b/results.csv", "half");
  test::write_file(folder / "b/report.html.4711-0.tmp", "ha");
  test::write_file(folder / "b/mine.txt", "a letter");
  const std::string refused = "norma: report: 'b' holds other results (results.csv): choose another output folder\n";
  CHECK(run_norma(folder.path(), "report a --output b").err == refused);
  std::filesystem::remove(folder / "b/mine.txt");
  const Outcome again = run_norma(folder.path(), "report a --output b");
  CHECK_MESSAGE(again.code == 0, again.err);
  CHECK(std::distance(std::filesystem::directory_iterator(folder / "b"), {}) == 4);
  CHECK(test::parse_json(read_file(folder / "b/results.json")) ==
        test::parse_json(read_file(folder / "a/results.json")));
  // A disk that fills leaves nothing that the next try would refuse.
  const Outcome full = run_norma(folder.path(), "report a --output c", "ulimit -f 8;");
  CHECK(full.code == 2);
  CHECK_MESSAGE(full.err.ends_with(": File too large\n"), full.err);
  CHECK(run_norma(folder.path(), "report a --output c").code == 0);
  // A whole one stays, whatever lies beside it.
  test::write_file(folder / "b/.norma-lock", "4711\n");
  CHECK(run_norma(folder.path(), "report a --output b").err ==
        "norma: report: 'b' holds other results (results.json): choose another output folder\n");
}

TEST_CASE("norma report: what cannot be read, merged or written is said in a line") {
  const TemporaryFolder folder;
  const auto error = [&](const std::string& words) { return run_norma(folder.path(), "report " + words).err; };
  CHECK(error("") == "norma: report: expected the folder of a comparison, or several\n");
  CHECK(error("none") == "norma: report: 'none': expected the folder of a comparison\n");
  CHECK(error("none other") == "norma: report: --output: expected the folder of the merged report, got nothing\n");
  CHECK(error("--nothing") == "norma: report: unknown option '--nothing'; did you mean '--help'?\n");
  std::filesystem::create_directory(folder / "a");
  CHECK(error("a") == "norma: report: cannot open a/results.json: No such file or directory\n");
  test::write_file(folder / "a/results.json", R"({"format": "norma comparison 99"})");
  CHECK(error("a").find("a newer Norma has written this, and this one cannot read it\n") != std::string::npos);
  CHECK(error("a --output a") ==
        "norma: report: 'a' holds other results (results.json): choose another output folder\n");
  CHECK(error("a none --output new") == error("a --output new"));
  CHECK(!std::filesystem::exists(folder / "new"));
}
