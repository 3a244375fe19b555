#include "lab/report/chart.h"

#include "core/error.h"

#include <doctest/doctest.h>

#include <cmath>
#include <set>
#include <string>

using namespace norma::lab;

namespace {

size_t count(const std::string& text, const std::string& part) {
  size_t found = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + part.size())) {
    ++found;
  }
  return found;
}

}  // namespace

TEST_CASE("chart: ticks are round and enclose the values") {
  CHECK(axis_ticks(0, 1, 5) == std::vector<double>{0, 0.2, 0.4, 0.6000000000000001, 0.8, 1});
  CHECK(axis_ticks(0.3, 2.1, 4) == std::vector<double>{0, 0.5, 1, 1.5, 2, 2.5});
  CHECK(axis_ticks(-3, 12, 3) == std::vector<double>{-5, 0, 5, 10, 15});
  CHECK_THROWS_WITH_AS(axis_ticks(1, 1, 3), "axis_ticks: low: expected less than high (1), got 1", norma::Error);
}

TEST_CASE("chart: HTML's own characters are escaped") {
  CHECK(escape_html("a<b & \"c\" > 'd'") == "a&lt;b &amp; &quot;c&quot; &gt; &#39;d&#39;");
  CHECK(escape_html("83.1 ± 0.2 %") == "83.1 ± 0.2 %");
}

TEST_CASE("chart: palette colours differ and repeat") {
  std::set<std::string_view> colours;
  for (size_t i = 0; i < 8; ++i) {
    colours.insert(palette(i));
  }
  CHECK(colours.size() == 8);
  CHECK(palette(8) == palette(0));
}

TEST_CASE("chart: a line chart has a path per curve and a legend entry per name that is not faint") {
  const std::string svg =
      line_chart({.title = "loss <1>",
                  .x_label = "images",
                  .y_label = "loss",
                  .series = {{.name = "batch", .colour = "#111111", .x = {0, 1, 2}, .y = {3, 2, 1}},
                             {.name = "batch", .colour = "#111111", .x = {0, 1}, .y = {3, 1}},
                             {.name = "group", .colour = "#222222", .x = {0, 1}, .y = {2, 1}},
                             {.name = "pale", .colour = "#333333", .x = {0, 1}, .y = {9, 0}, .faint = true}}});
  CHECK(count(svg, "<path") == 4);
  CHECK(count(svg, "<span>") == 2);
  CHECK(count(svg, "loss &lt;1&gt;") == 1);
  CHECK(count(svg, "<svg") == count(svg, "</svg>"));
  // The faint curve's 9 does not stretch the axis.
  CHECK(count(svg, ">3</text>") == 1);
  CHECK(count(svg, ">9</text>") == 0);
}

TEST_CASE("chart: NaN and infinity leave a gap, and no letter of them reaches the page") {
  const std::string svg =
      line_chart({.title = "t",
                  .x_label = "x",
                  .y_label = "y",
                  .series = {{.name = "a", .colour = "#000", .x = {0, 1, 2, 3, 4}, .y = {1, NAN, 2, INFINITY, 3}}}});
  CHECK(count(svg, "nan") == 0);
  CHECK(count(svg, "inf") == 0);
  const size_t path = svg.find(" d=\"");
  const std::string d = svg.substr(path, svg.find('"', path + 4) - path);
  CHECK(count(d, "M") == 3);
  CHECK(count(d, "L") == 0);
}

TEST_CASE("chart: empty charts and long curves") {
  CHECK(count(line_chart({.title = "t", .x_label = "x", .y_label = "y", .series = {}}), "<path") == 0);
  Series series{.name = "long", .colour = "#000", .x = {}, .y = {}};
  for (int i = 0; i < 20000; ++i) {
    series.x.push_back(i);
    series.y.push_back(std::sin(i));
  }
  CHECK(line_chart({.title = "t", .x_label = "x", .y_label = "y", .series = {series}}).size() < 30000);
}

TEST_CASE("chart: bars are as long as their values") {
  const std::string svg = bar_chart({.title = "accuracy",
                                     .bars = {{.name = "a", .colour = "#000", .value = 50, .text = "50 %"},
                                              {.name = "b", .colour = "#000", .value = 100, .text = "100 %"},
                                              {.name = "c", .colour = "#000", .value = NAN, .text = "-"}},
                                     .end = 100});
  CHECK(count(svg, "width=\"200.0\"") == 1);
  CHECK(count(svg, "width=\"400.0\"") == 1);
  CHECK(count(svg, "width=\"0.0\"") == 1);
  CHECK(count(svg, "50 %") == 1);
}
