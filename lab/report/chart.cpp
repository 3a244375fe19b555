#include "lab/report/chart.h"

#include "core/error.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

namespace norma::lab {

namespace {

constexpr double kWidth = 720;
constexpr double kHeight = 320;
constexpr double kLeft = 58;
constexpr double kRight = 14;
constexpr double kTop = 14;
constexpr double kBottom = 44;
constexpr double kBarHeight = 20;
constexpr double kBarStep = 28;
constexpr double kBarLabelWidth = 190;
constexpr double kBarTextWidth = 130;
constexpr size_t kMostPoints = 500;  ///< more cannot be told apart on the page

struct Range {
  double low = std::numeric_limits<double>::infinity();
  double high = -std::numeric_limits<double>::infinity();

  void add(double value) {
    if (std::isfinite(value)) {
      low = std::min(low, value);
      high = std::max(high, value);
    }
  }
  /// Not empty and wider than a point.
  void make_usable() {
    if (!(low <= high)) {
      low = 0;
      high = 1;
    }
    if (low == high) {
      low -= 0.5;
      high += 0.5;
    }
  }
};

/// The path through the points, at most about kMostPoints of them.
std::string path_through(const Series& series, const auto& to_x, const auto& to_y) {
  std::string path;
  const size_t stride = std::max<size_t>(1, series.y.size() / kMostPoints);
  bool pen_down = false;
  for (size_t i = 0; i < series.y.size(); i += stride) {
    if (!std::isfinite(series.y[i])) {
      pen_down = false;
      continue;
    }
    path += fmt::format("{}{:.1f} {:.1f}", pen_down ? 'L' : 'M', to_x(series.x[i]), to_y(series.y[i]));
    pen_down = true;
  }
  return path;
}

}  // namespace

std::string_view palette(size_t i) {
  static constexpr std::array<std::string_view, 8> kColours = {"#0072B2", "#D55E00", "#009E73", "#CC79A7",
                                                               "#E69F00", "#56B4E9", "#8A6FDF", "#7F7F7F"};
  return kColours[i % kColours.size()];
}

std::vector<double> axis_ticks(double low, double high, int count) {
  check(low < high, "axis_ticks", "low: expected less than high ({}), got {}", high, low);
  const double raw = (high - low) / std::max(count, 1);
  const double power = std::pow(10.0, std::floor(std::log10(raw)));
  const double rest = raw / power;
  const double step = power * (rest <= 1 ? 1 : rest <= 2 ? 2 : rest <= 5 ? 5 : 10);
  std::vector<double> ticks;
  const auto first = static_cast<int64_t>(std::floor(low / step + 1e-9));
  const auto last = static_cast<int64_t>(std::ceil(high / step - 1e-9));
  for (int64_t i = first; i <= last; ++i) {
    ticks.push_back(static_cast<double>(i) * step);
  }
  return ticks;
}

std::string escape_html(std::string_view text) {
  std::string result;
  for (const char c : text) {
    switch (c) {
      case '&': result += "&amp;"; break;
      case '<': result += "&lt;"; break;
      case '>': result += "&gt;"; break;
      case '"': result += "&quot;"; break;
      case '\'': result += "&#39;"; break;
      default: result += c;
    }
  }
  return result;
}

std::string line_chart(const LineChart& chart) {
  Range x_range;
  Range y_range;
  for (const Series& series : chart.series) {
    for (const double x : series.x) {
      x_range.add(x);
    }
    if (!series.faint) {
      for (const double y : series.y) {
        y_range.add(y);
      }
    }
  }
  x_range.make_usable();
  y_range.make_usable();
  // The axis ends where the data end: a tick beyond would leave a gap.
  std::vector<double> x_ticks = axis_ticks(x_range.low, x_range.high, 8);
  std::erase_if(x_ticks, [&](double tick) { return tick > x_range.high; });
  x_range.low = std::min(x_range.low, x_ticks.front());
  const std::vector<double> y_ticks = axis_ticks(y_range.low, y_range.high, 6);
  const auto to_x = [&](double x) {
    return kLeft + (x - x_range.low) / (x_range.high - x_range.low) * (kWidth - kLeft - kRight);
  };
  const auto to_y = [&](double y) {
    return kHeight - kBottom - (y - y_ticks.front()) / (y_ticks.back() - y_ticks.front()) * (kHeight - kTop - kBottom);
  };

  std::string svg;
  svg += fmt::format("<svg viewBox=\"0 0 {0} {1}\" role=\"img\" aria-label=\"{2}\">\n", kWidth, kHeight,
                     escape_html(chart.title));
  for (const double tick : y_ticks) {
    svg += fmt::format(
        "<line class=\"grid\" x1=\"{0}\" x2=\"{1}\" y1=\"{2:.1f}\" y2=\"{2:.1f}\"/>"
        "<text class=\"label\" x=\"{3}\" y=\"{4:.1f}\" text-anchor=\"end\">{5:.6g}</text>\n",
        kLeft, kWidth - kRight, to_y(tick), kLeft - 6, to_y(tick) + 4, tick);
  }
  for (const double tick : x_ticks) {
    svg += fmt::format("<text class=\"label\" x=\"{:.1f}\" y=\"{}\" text-anchor=\"middle\">{:.6g}</text>\n", to_x(tick),
                       kHeight - kBottom + 18, tick);
  }
  svg += fmt::format("<line class=\"axis\" x1=\"{0}\" x2=\"{1}\" y1=\"{2}\" y2=\"{2}\"/>\n", kLeft, kWidth - kRight,
                     kHeight - kBottom);
  svg += fmt::format("<text class=\"label\" x=\"{}\" y=\"{}\" text-anchor=\"middle\">{}</text>\n",
                     (kLeft + kWidth - kRight) / 2, kHeight - 8, escape_html(chart.x_label));
  svg +=
      fmt::format("<text class=\"label\" transform=\"translate(14 {}) rotate(-90)\" text-anchor=\"middle\">{}</text>\n",
                  (kTop + kHeight - kBottom) / 2, escape_html(chart.y_label));
  // A nested svg cuts off what reaches outside of it.
  svg += fmt::format("<svg x=\"{0}\" y=\"{1}\" width=\"{2}\" height=\"{3}\" viewBox=\"{0} {1} {2} {3}\">\n", kLeft,
                     kTop, kWidth - kLeft - kRight, kHeight - kTop - kBottom);
  for (const bool faint : {true, false}) {  // faint ones below
    for (const Series& series : chart.series) {
      if (series.faint == faint) {
        svg += fmt::format("<path class=\"{}\" stroke=\"{}\" d=\"{}\"><title>{}</title></path>\n",
                           faint ? "curve faint" : "curve", series.colour, path_through(series, to_x, to_y),
                           escape_html(series.name));
      }
    }
  }
  svg += "</svg>\n</svg>\n<p class=\"legend\">";
  std::vector<std::string> named;
  for (const Series& series : chart.series) {
    if (!series.faint && std::find(named.begin(), named.end(), series.name) == named.end()) {
      named.push_back(series.name);
      svg += fmt::format("<span><i style=\"background:{}\"></i>{}</span> ", series.colour, escape_html(series.name));
    }
  }
  svg += "</p>\n";
  return svg;
}

std::string bar_chart(const BarChart& chart) {
  double end = chart.end;
  if (end <= 0) {
    for (const Bar& bar : chart.bars) {
      end = std::max(end, bar.value);
    }
  }
  const double height = kBarStep * static_cast<double>(chart.bars.size()) + 4;
  const double room = kWidth - kBarLabelWidth - kBarTextWidth;
  std::string svg;
  svg += fmt::format("<svg viewBox=\"0 0 {} {}\" role=\"img\" aria-label=\"{}\">\n", kWidth, height,
                     escape_html(chart.title));
  for (size_t i = 0; i < chart.bars.size(); ++i) {
    const Bar& bar = chart.bars[i];
    const double y = kBarStep * static_cast<double>(i) + 4;
    const double length = end > 0 && std::isfinite(bar.value) ? std::clamp(bar.value / end, 0.0, 1.0) * room : 0;
    svg += fmt::format(
        "<text class=\"label\" x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"end\">{}</text>"
        "<rect x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.1f}\" height=\"{}\" rx=\"2\" fill=\"{}\"/>"
        "<text class=\"label\" x=\"{:.1f}\" y=\"{:.1f}\">{}</text>\n",
        kBarLabelWidth - 8, y + 14, escape_html(bar.name), kBarLabelWidth, y, length, kBarHeight, bar.colour,
        kBarLabelWidth + length + 8, y + 14, escape_html(bar.text));
  }
  svg += "</svg>\n";
  return svg;
}

}  // namespace norma::lab
