#include "lab/report/section.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <regex>
#include <set>
#include <string>
#include <string_view>

using namespace norma::lab;

namespace {

/// Relative luminance of "#rrggbb" (WCAG 2.2).
double luminance(std::string_view color) {
  REQUIRE(color.size() == 7);
  std::array<double, 3> parts{};
  for (size_t i = 0; i < 3; ++i) {
    const double share = std::stoi(std::string(color.substr(1 + 2 * i, 2)), nullptr, 16) / 255.0;
    parts[i] = share <= 0.04045 ? share / 12.92 : std::pow((share + 0.055) / 1.055, 2.4);
  }
  return 0.2126 * parts[0] + 0.7152 * parts[1] + 0.0722 * parts[2];
}

double contrast(std::string_view a, std::string_view b) {
  const double light = std::max(luminance(a), luminance(b));
  const double dark = std::min(luminance(a), luminance(b));
  return (light + 0.05) / (dark + 0.05);
}

/// The colors of a theme by their names, "--text" and so on: those of the `number`th rule for the root.
std::map<std::string, std::string> theme(size_t number) {
  const std::string css(page_style());
  size_t at = 0;
  for (size_t i = 0; i <= number; ++i) {
    at = css.find(":root{", at) + 1;
  }
  std::map<std::string, std::string> colors;
  const std::string rule = css.substr(at, css.find('}', at) - at);
  static const std::regex kColor("(--[a-z0-9]+):(#[0-9a-f]{6});");
  for (auto i = std::sregex_iterator(rule.begin(), rule.end(), kColor); i != std::sregex_iterator(); ++i) {
    colors[(*i)[1]] = (*i)[2];
  }
  return colors;
}

constexpr size_t kSeries = 8;

}  // namespace

TEST_CASE("page style: every color of text and charts can be read on both backgrounds of its theme") {
  CHECK(contrast("#000000", "#ffffff") == doctest::Approx(21));
  CHECK(contrast("#777777", "#ffffff") == doctest::Approx(4.48).epsilon(0.001));
  for (const size_t number : {0, 1}) {
    const auto colors = theme(number);
    CHECK(colors.size() == 7 + kSeries);
    for (const auto& [name, color] : colors) {
      for (const char* background : {"--back", "--panel"}) {
        CAPTURE(name);
        CAPTURE(background);
        CHECK((name == "--line" || name == "--back" || name == "--panel" ||
               contrast(color, colors.at(background)) >= 4.5));
      }
    }
  }
}

TEST_CASE("page style: the colors of the charts differ, and the style sheet has them all") {
  const std::string css(page_style());
  for (const size_t number : {0, 1}) {
    std::set<std::string> series;
    for (const auto& [name, color] : theme(number)) {
      if (name.starts_with("--c")) {
        series.insert(color);
      }
    }
    CHECK(series.size() == kSeries);
  }
  for (size_t i = 0; i < kSeries; ++i) {
    CHECK(css.find(".s" + std::to_string(i) + "{") != std::string::npos);
  }
  CHECK(std::count(css.begin(), css.end(), '{') == std::count(css.begin(), css.end(), '}'));
}
