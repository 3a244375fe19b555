#include "lab/report/page_style.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <set>
#include <string>
#include <string_view>
#include <vector>

using namespace norma::lab;

namespace {

/// Relative luminance of "#rrggbb" (WCAG 2.2).
double luminance(std::string_view colour) {
  REQUIRE(colour.size() == 7);
  std::array<double, 3> parts{};
  for (size_t i = 0; i < 3; ++i) {
    const double share = std::stoi(std::string(colour.substr(1 + 2 * i, 2)), nullptr, 16) / 255.0;
    parts[i] = share <= 0.04045 ? share / 12.92 : std::pow((share + 0.055) / 1.055, 2.4);
  }
  return 0.2126 * parts[0] + 0.7152 * parts[1] + 0.0722 * parts[2];
}

double contrast(std::string_view a, std::string_view b) {
  const double light = std::max(luminance(a), luminance(b));
  const double dark = std::min(luminance(a), luminance(b));
  return (light + 0.05) / (dark + 0.05);
}

}  // namespace

TEST_CASE("page style: every colour of text and charts can be read on both backgrounds of its theme") {
  CHECK(contrast("#000000", "#ffffff") == doctest::Approx(21));
  CHECK(contrast("#777777", "#ffffff") == doctest::Approx(4.48).epsilon(0.001));
  for (const Theme& theme : {light_theme(), dark_theme()}) {
    std::vector<std::string_view> colours(theme.series.begin(), theme.series.end());
    colours.insert(colours.end(), {theme.text, theme.soft, theme.warn, theme.focus});
    for (const std::string_view colour : colours) {
      for (const std::string_view background : {theme.back, theme.panel}) {
        CAPTURE(colour);
        CAPTURE(background);
        CHECK(contrast(colour, background) >= 4.5);
      }
    }
  }
}

TEST_CASE("page style: the colours of the charts differ, and the style sheet has them all") {
  const std::string css = page_style();
  for (const Theme& theme : {light_theme(), dark_theme()}) {
    CHECK(std::set<std::string_view>(theme.series.begin(), theme.series.end()).size() == theme.series.size());
    for (const std::string_view colour : theme.series) {
      CHECK(css.find(colour) != std::string::npos);
    }
  }
  for (size_t i = 0; i < light_theme().series.size(); ++i) {
    CHECK(css.find(".s" + std::to_string(i) + "{") != std::string::npos);
  }
  CHECK(std::count(css.begin(), css.end(), '{') == std::count(css.begin(), css.end(), '}'));
}
