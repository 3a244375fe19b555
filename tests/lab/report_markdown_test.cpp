#include "lab/report_cases.h"

#include <doctest/doctest.h>

#include <string>

using namespace norma;
using namespace norma::lab;
using namespace norma::test;

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
  CHECK(text.find("\nnorma train --model resnet50 --norm 'group|32*'") != std::string::npos);
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
