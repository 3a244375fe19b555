#include "lab/report/chart.h"
#include "lab/report/chart_axes.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

// Charts of rows: dots with bars of their uncertainty, and bars from 0.

namespace norma::lab {

namespace {

constexpr double kCap = 15;  ///< half the height of the end of an uncertainty's bar

/// A dot: a line without length, whose ends stay round when the drawing is stretched.
std::string dot_at(std::string_view kind, size_t style, double x, double y) {
  return fmt::format("<path class=\"{} {}\" d=\"M{} {}h0\"/>", kind, style_class(style), svg_number(x), svg_number(y));
}

std::string bar_through(const Dot& dot, double y, const std::vector<double>& ticks) {
  const auto place = [&](double value) { return kPlotWidth * std::clamp(share_of(value, ticks), 0.0, 1.0); };
  const double low = place(*dot.low);
  const double high = place(*dot.high);
  std::string path = fmt::format("M{} {}H{}", svg_number(low), svg_number(y), svg_number(high));
  // A bar that goes on beyond the edge has no end there.
  for (const auto& [value, x] : {std::pair(*dot.low, low), std::pair(*dot.high, high)}) {
    if (std::isfinite(value)) {
      path += fmt::format("M{} {}v{}", svg_number(x), svg_number(y - kCap), svg_number(2 * kCap));
    }
  }
  return fmt::format("<path class=\"error {}\" d=\"{}\"/>", style_class(dot.style), path);
}

}  // namespace

std::string dot_plot(const DotPlot& plot) {
  Range range;
  for (const Dot& dot : plot.dots) {
    range.add(dot.value);
    for (const double part : dot.parts) {
      range.add(part);
    }
    if (dot.low && dot.high) {
      range.add(*dot.low);
      range.add(*dot.high);
    }
  }
  if (plot.reference) {
    range.add(*plot.reference);
  }
  range.make_usable();
  const std::vector<double> ticks = axis_ticks(range.low, range.high, 5);
  std::string drawing;
  if (plot.reference) {
    drawing += fmt::format("<path class=\"axis\" d=\"M{} 0v{}\"/>\n",
                           svg_number(kPlotWidth * share_of(*plot.reference, ticks)),
                           svg_number(kRowHeight * static_cast<double>(plot.dots.size())));
  }
  std::vector<RowText> rows;
  for (size_t i = 0; i < plot.dots.size(); ++i) {
    const Dot& dot = plot.dots[i];
    rows.push_back({.name = dot.name, .text = dot.text});
    const double y = kRowHeight * (static_cast<double>(i) + 0.5);
    if (dot.low && dot.high && !std::isnan(*dot.low) && !std::isnan(*dot.high)) {
      drawing += bar_through(dot, y, ticks);
    }
    for (const double part : dot.parts) {
      if (std::isfinite(part)) {
        drawing += dot_at("part", dot.style, kPlotWidth * share_of(part, ticks), y);
      }
    }
    if (std::isfinite(dot.value)) {
      drawing += dot_at("dot", dot.style, kPlotWidth * share_of(dot.value, ticks), y);
    }
    drawing += '\n';
  }
  return row_chart(plot.id, plot.title, plot.description, rows, drawing, ticks, plot.x_label);
}

std::string bar_chart(const BarChart& chart) {
  Range range;
  range.add(0);
  for (const Bar& bar : chart.bars) {
    range.add(std::max(bar.value, 0.0));
  }
  range.make_usable();
  const std::vector<double> ticks = axis_ticks(0, range.high, 5);
  std::string drawing;
  std::vector<RowText> rows;
  for (size_t i = 0; i < chart.bars.size(); ++i) {
    const Bar& bar = chart.bars[i];
    rows.push_back({.name = bar.name, .text = bar.text});
    const double length = std::isfinite(bar.value) && bar.value > 0 ? kPlotWidth * share_of(bar.value, ticks) : 0;
    drawing +=
        fmt::format("<rect class=\"bar {}\" x=\"0\" y=\"{}\" width=\"{}\" height=\"40\"/>\n", style_class(bar.style),
                    svg_number(kRowHeight * static_cast<double>(i) + 30), svg_number(length));
  }
  return row_chart(chart.id, chart.title, chart.description, rows, drawing, ticks, chart.x_label);
}

}  // namespace norma::lab
