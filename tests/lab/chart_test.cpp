#include "lab/report/section.h"

#include "base/error.h"

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

/// The attribute `d` of the n-th path of a class.
std::string path(const std::string& svg, const std::string& of_class, size_t n = 0) {
  size_t at = svg.find("<path class=\"" + of_class);
  for (; n > 0; --n) {
    at = svg.find("<path class=\"" + of_class, at + 1);
  }
  REQUIRE(at != std::string::npos);
  const size_t begin = svg.find(" d=\"", at) + 4;
  return svg.substr(begin, svg.find('"', begin) - begin);
}

}  // namespace

TEST_CASE("chart: ticks are round and enclose the values") {
  CHECK(axis_ticks(0, 1, 5) == std::vector<double>{0, 0.2, 0.4, 0.6000000000000001, 0.8, 1});
  CHECK(axis_ticks(0.3, 2.1, 4) == std::vector<double>{0, 0.5, 1, 1.5, 2, 2.5});
  CHECK(axis_ticks(-3, 12, 3) == std::vector<double>{-5, 0, 5, 10, 15});
  CHECK_THROWS_WITH_AS(axis_ticks(1, 1, 3), "axis_ticks: low: expected less than high (1), got 1", norma::Error);
}

TEST_CASE("chart: ticks are written as people write them") {
  CHECK(tick_text(25000, {0, 25000}) == "25,000");
  CHECK(tick_text(-1250000, {-1250000, 0}) == "-1,250,000");
  CHECK(tick_text(1000, {0, 1000}) == "1000");
  CHECK(tick_text(0.6000000000000001, {0, 0.2}) == "0.6");
  CHECK(tick_text(-1e-17, {-0.1, 0}) == "0");
}

TEST_CASE("chart: 32 styles differ in color or dashes") {
  std::set<std::string> styles;
  for (size_t i = 0; i < 32; ++i) {
    styles.insert(style_class(i));
  }
  CHECK(styles.size() == 32);
  CHECK(style_class(0) == "s0 d0");
}

TEST_CASE("chart: a line chart has a path per curve and a legend entry per name that is not faint") {
  const std::string svg =
      to_html(LineChart{.id = "c",
                        .title = "loss <1>",
                        .description = "falls",
                        .x_label = "images",
                        .y_label = "loss",
                        .series = {{.name = "batch", .style = 0, .x = {0, 1, 2}, .y = {3, 2, 1}},
                                   {.name = "batch", .style = 0, .x = {0, 1}, .y = {3, 1}},
                                   {.name = "group", .style = 1, .x = {0, 1}, .y = {2, 1}},
                                   {.name = "p", .style = 2, .x = {0, 1}, .y = {9, 0}, .faint = true}}});
  CHECK(count(svg, "<path class=\"curve") == 4 + 2);  // and samples in the legend
  CHECK(count(svg, "<li>") == 2);
  CHECK(count(svg, "<title id=\"c-t\">loss &lt;1&gt;</title><desc id=\"c-d\">falls</desc>") == 1);
  CHECK(count(svg, "aria-labelledby=\"c-t c-d\"") == 1);
  CHECK(count(svg, "<svg") == count(svg, "</svg>"));
  // The faint curve's 9 does not stretch the axis.
  CHECK(count(svg, ">3</span>") == 1);
  CHECK(count(svg, ">9</span>") == 0);
  // From the upper left corner to the lower right one: 3 and 1 of an axis from 1 to 3.
  CHECK(path(svg, "curve s0") == "M0 0l500 500l500 500");
}

TEST_CASE("chart: values with names along the axis have a dot each, in the middle of their place") {
  const std::string svg = to_html(LineChart{.id = "c",
                                            .title = "t",
                                            .description = "d",
                                            .x_label = "batch size",
                                            .y_label = "y",
                                            .series = {{.name = "a", .style = 3, .x = {0, 1}, .y = {0, 1}}},
                                            .x_names = {"2", "1<6"}});
  CHECK(path(svg, "dot s3", 0) == "M250 1000h0");
  CHECK(path(svg, "dot s3", 1) == "M750 0h0");
  CHECK(count(svg, "style=\"left:75%\">1&lt;6</span>") == 1);
}

TEST_CASE("chart: NaN and infinity leave a gap, and no letter of them reaches the page") {
  const std::string svg =
      to_html(LineChart{.id = "c",
                        .title = "t",
                        .description = "d",
                        .x_label = "x",
                        .y_label = "y",
                        .series = {{.name = "a", .x = {0, 1, 2, 3, 4}, .y = {1, NAN, 2, INFINITY, 3}}}});
  CHECK(count(svg, "nan") == 0);
  CHECK(count(svg, "inf") == 0);
  CHECK(path(svg, "curve") == "M0 1000h0M500 500h0M1000 0h0");  // each alone, and seen by its round ends
}

TEST_CASE("chart: of a long curve the least and the most of each stretch are drawn") {
  Series series{.name = "long", .x = {}, .y = {}};
  for (int i = 0; i < 20000; ++i) {
    series.x.push_back(i);
    series.y.push_back(i == 12345 ? 100 : std::sin(i));
  }
  const std::string svg = to_html(LineChart{.id = "c",
                                            .title = "t",
                                            .description = "d",
                                            .x_label = "x",
                                            .y_label = "y",
                                            .series = {series},
                                            .most_points = 200});
  CHECK(svg.size() < 6000);
  CHECK(count(path(svg, "curve"), "l") <= 200);
  CHECK(count(svg, ">100</span>") == 1);
  CHECK(count(path(svg, "curve"), "-66") + count(path(svg, "curve"), "-67") == 1);  // two thirds of the axis: 0 to 100
  CHECK(count(to_html(
                  LineChart{.id = "c", .title = "t", .description = "d", .x_label = "x", .y_label = "y", .series = {}}),
              "curve") == 0);
}

TEST_CASE("chart: dots stand where their values are on an axis that fits them") {
  const std::string svg = to_html(DotPlot{
      .id = "c",
      .title = "accuracy",
      .description = "d",
      .x_label = "%",
      .dots = {{.name = "a", .style = 1, .value = 80, .low = 79, .high = 84, .parts = {79.5, 80.5}, .text = "80 %"},
               {.name = "b", .style = 2, .value = 82, .text = "82 %"},
               {.name = "c", .style = 4, .value = NAN, .text = "not known"}}});
  CHECK(count(svg, ">0</span>") == 0);  // the axis goes from 79 to 84
  CHECK(path(svg, "dot s1") == "M200 50h0");
  CHECK(path(svg, "dot s2") == "M600 150h0");
  CHECK(count(svg, "class=\"dot") == 2);
  CHECK(count(svg, "class=\"part s1") == 2);
  CHECK(path(svg, "error s1") == "M0 50H1000M0 35v30M1000 35v30");
  CHECK(count(svg, "<li><span>c</span> <span>not known</span></li>") == 1);
  CHECK(count(svg, "nan") == 0);
}

TEST_CASE("chart: the axis of dots reaches the reference, and a bar without end has none") {
  const std::string svg = to_html(DotPlot{.id = "c",
                                          .title = "tax",
                                          .description = "d",
                                          .x_label = "%",
                                          .dots = {{.name = "a", .value = 10, .low = 4, .high = INFINITY, .text = ""}},
                                          .reference = 0});
  CHECK(path(svg, "axis") == "M0 0v100");
  CHECK(path(svg, "error") == "M400 50H1000M400 35v30");
}

TEST_CASE("chart: bars are as long as their values") {
  const std::string svg = to_html(DotPlot{.id = "c",
                                          .title = "memory",
                                          .description = "d",
                                          .x_label = "MB",
                                          .dots = {{.name = "a", .value = 50, .text = "50 MB"},
                                                   {.name = "b", .value = 100, .text = "100 MB"},
                                                   {.name = "c", .value = NAN, .text = "-"},
                                                   {.name = "d", .value = -3, .text = "-3"}},
                                          .bars = true});
  CHECK(count(svg, "width=\"500\"") == 1);
  CHECK(count(svg, "width=\"1000\"") == 1);
  CHECK(count(svg, "width=\"0\"") == 2);
  CHECK(count(svg, "50 MB") == 1);
}

TEST_CASE("chart: names beside points leave each other room, and many points have none") {
  PointChart chart{.id = "c", .title = "t", .description = "d", .x_label = "s", .y_label = "%", .points = {}};
  for (int i = 0; i < 3; ++i) {
    chart.points.push_back({.name = "n" + std::to_string(i), .x = 1.0 + i, .y = 50});
  }
  chart.points.push_back({.name = "nowhere", .x = NAN, .y = 50});
  const std::string svg = to_html(chart);
  CHECK(count(svg, "class=\"dot") == 3);
  CHECK(count(svg, "nowhere") == 0);
  CHECK(count(svg, "bottom:50%\">n0<") == 1);
  CHECK(count(svg, "bottom:58%\">n1<") == 1);
  CHECK(count(svg, "bottom:66%\">n2<") == 1);
  chart.points.resize(1);
  for (int i = 0; i < 20; ++i) {
    chart.points.push_back({.name = "more", .x = 1, .y = 1.0 * i});
  }
  CHECK(count(to_html(chart), "class=\"names\"") == 0);
}
