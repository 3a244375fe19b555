#include "lab/report/merged.h"

#include "error_text.h"
#include "files.h"
#include "lab/page_check.h"
#include "lab/report_cases.h"

#include <doctest/doctest.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

using namespace norma;
using namespace norma::lab;
using namespace norma::test;

namespace {

Comparison of_machine(const std::string& cpu, double accuracy) {
  Comparison comparison = example();
  comparison.environment.cpu = cpu;
  comparison.cells[0].accuracy = accuracy;
  return comparison;
}

/// The fields of a line of CSV without quotes.
std::vector<std::string> fields_of(const std::string& line) {
  std::vector<std::string> fields(1);
  for (const char c : line) {
    if (c == ',') {
      fields.emplace_back();
    } else {
      fields.back() += c;
    }
  }
  return fields;
}

Parts two() {
  return merged({"/results/laptop", "/results/server"}, {{{.name = "", .comparison = of_machine("A", 0.8)}},
                                                         {{.name = "", .comparison = of_machine("B", 0.7)}}});
}

}  // namespace

TEST_CASE("merged: the same model, norm and seed of two comparisons stay two, marked by which") {
  const Parts parts = two();
  REQUIRE(parts.size() == 2);
  CHECK(parts[0].name == "laptop");
  CHECK(parts[1].name == "server");
  const std::string page = to_html(parts);
  CHECK_MESSAGE(faults_of_page(page).empty(), fmt::format("{}", fmt::join(faults_of_page(page), "\n")));
  CHECK(page.find(">batch · laptop</th>") != std::string::npos);
  CHECK(page.find(">batch · server</th>") != std::string::npos);
  CHECK(page.find("<td>A, ") != std::string::npos);  // each machine
  CHECK(page.find("<td>B, ") != std::string::npos);
  const std::string csv = to_csv(parts);
  CHECK(csv.starts_with("comparison,model,norm,seed,"));
  CHECK(std::count(csv.begin(), csv.end(), '\n') == 1 + 2 * 5);
  CHECK(csv.find("\nlaptop,resnet50,batch,0,") != std::string::npos);
  CHECK(csv.find("\nserver,resnet50,batch,0,") != std::string::npos);
  CHECK(csv.find("\nserver,resnet50,group:7,0,") != std::string::npos);
  CHECK(to_table(parts).find("\nserver:\nmodel ") != std::string::npos);
  const std::string markdown = to_markdown(parts);
  CHECK(markdown.find("| resnet50 | batch · server | 70.00 |") != std::string::npos);
  CHECK(markdown.find("\n### laptop\n") != std::string::npos);
}

TEST_CASE("merged: each figure of the CSV stands under its head, whatever axes a comparison has") {
  Comparison with = of_machine("A", 0.8);
  for (Cell& cell : with.cells) {
    cell.options["opt"] = "adamw";
  }
  const Comparison without = of_machine("B", 0.7);
  const auto lines_of = [](const std::vector<std::pair<std::string, Comparison>>& comparisons) {
    std::vector<std::filesystem::path> folders;
    std::vector<Parts> all;
    for (const auto& [name, comparison] : comparisons) {
      folders.emplace_back("/results/" + name);
      all.push_back({{.name = "", .comparison = comparison}});
    }
    std::map<std::string, std::map<std::string, std::string>> first;  // of each comparison: head to figure
    std::istringstream csv(to_csv(merged(folders, all)));
    std::string line;
    std::getline(csv, line);
    const std::vector<std::string> heads = fields_of(line);
    while (std::getline(csv, line)) {
      const std::vector<std::string> fields = fields_of(line);
      if (!first.contains(fields[0])) {
        REQUIRE(fields.size() == heads.size());
        for (size_t i = 0; i < heads.size(); ++i) {
          first[fields[0]][heads[i]] = fields[i];
        }
      }
    }
    return first;
  };
  const auto one = lines_of({{"with", with}, {"without", without}});
  const auto other = lines_of({{"without", without}, {"with", with}});
  CHECK(one == other);
  CHECK(one.at("with").at("opt") == "adamw");
  CHECK(one.at("without").at("opt") == "");
  for (const auto& [name, row] : one) {
    CHECK(row.at("state") == "finished");
    CHECK(row.at("dataset") == one.at("with").at("dataset"));
  }
}

TEST_CASE("merged: JSON keeps everything, of one comparison and of several") {
  const Parts parts = two();
  const Parts read = parts_from_json(to_json(parts));
  CHECK(to_json(read) == to_json(parts));
  CHECK(to_html(read) == to_html(parts));
  const Parts one = parts_from_json(to_json(example()));
  REQUIRE(one.size() == 1);
  CHECK(one[0].name.empty());
  CHECK(to_json(one) == to_json(example()));
  CHECK(to_csv(one) == to_csv(example()));
  CHECK(to_html(one) == to_html(example()));
}

TEST_CASE("merged: names are as long as they must be to differ, also of reports that are merged ones") {
  const auto names = [](const std::vector<std::filesystem::path>& folders, std::vector<Parts> reports) {
    std::vector<std::string> all;
    for (const Part& part : merged(folders, std::move(reports))) {
      all.push_back(part.name);
    }
    return all;
  };
  const auto one = [](const std::string& cpu) { return Parts{{.name = "", .comparison = of_machine(cpu, 0.5)}}; };
  using Names = std::vector<std::string>;
  CHECK(names({"/a/run", "/b/run"}, {one("A"), one("B")}) == Names{"a/run", "b/run"});
  CHECK(names({"/a/run", "/a/other"}, {one("A"), one("B")}) == Names{"run", "other"});
  CHECK(names({"/a/run", "/c/both"}, {one("C"), two()}) == Names{"run", "laptop", "server"});
  CHECK(names({"/a/laptop", "/c/both"}, {one("C"), two()}) == Names{"laptop", "both/laptop", "server"});
}

TEST_CASE("merged: what cannot be merged is an error that says why") {
  const Part part{.name = "", .comparison = example()};
  CHECK(error_of([&] {
          merged({"/a", "/b"}, {{part}, {part}});
        }) == "report: '/a' and '/b' hold the same comparison, begun 2026-11-21 14:03:07: leave one of them out");
  CHECK(error_of([&] { merged({"/a"}, {{part}}); }) ==
        "report: folders: expected two comparisons or more to merge, got 1");
}

TEST_CASE("merged: a text that is no report, or one of a newer version, is an error") {
  const std::string text = to_json(two());
  const auto changed = [&](const std::string& what, const std::string& with) {
    std::string other = text;
    REQUIRE(other.find(what) != std::string::npos);
    other.replace(other.find(what), what.size(), with);
    return error_of([&] { parts_from_json(other); });
  };
  CHECK(
      changed("norma comparisons 1", "norma comparisons 2") ==
      "report: format: expected a version up to 1, got 2: a newer Norma has written this, and this one cannot read it");
  CHECK(changed("norma comparisons 1", "norma comparisons x") ==
        "report: format: expected 'norma comparisons 1', got 'norma comparisons x'");
  CHECK(changed("\"server\"", "\"laptop\"") == "report: comparison 2: name: expected each once, got 'laptop' twice");
  CHECK(changed("\"server\"", "\"\"") == "report: comparison 2: name: expected one, got an empty text");
  CHECK(changed("\"name\": \"server\"", "\"nam\": \"server\"") == "report: comparison 2: name: missing");
  CHECK(error_of([] { parts_from_json(R"({"format": "norma comparisons 1", "comparisons": [{}]})"); }) ==
        "report: comparisons: expected a list of two or more");
  CHECK(error_of([] {
          parts_from_json(R"({"format": "norma comparison 99"})");
        }).find("a newer Norma has written this") != std::string::npos);
  CHECK_THROWS_AS(parts_from_json("{}"), Error);
}

TEST_CASE("merged: all files are written, and none into a folder that took the place of theirs") {
  const TemporaryFolder folder;
  {
    std::filesystem::create_directory(folder / "o");
    const train::HeldFolder held("report", folder / "o");
    std::filesystem::rename(folder / "o", folder / "moved");
    std::filesystem::create_directory(folder / "o");
    CHECK(error_of([&] { write_report(two(), held); }) ==
          "report: '" + (folder / "o").string() +
              "' was moved or removed while results were written into it: nothing more is written");
    CHECK(std::filesystem::remove(folder / "o"));  // it is empty
    CHECK(std::filesystem::remove(folder / "moved"));
  }
  write_report(two(), train::HeldFolder("report", folder.path()));
  CHECK(folder.names() == std::vector<std::string>{"report.html", "report.md", "results.csv", "results.json"});
  CHECK(read_file(folder / "report.md") == to_markdown(two()));
}
