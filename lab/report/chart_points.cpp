#include "core/quoting.h"
#include "lab/report/chart.h"
#include "lab/report/chart_axes.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace norma::lab {

namespace {

constexpr double kHeight = 1000;
constexpr size_t kMostNames = 10;
constexpr double kNameHeight = 8;  ///< of a line of text, in hundredths of the plot's height on a phone

/// A name beside its point: hundredths of the plot's width and height.
struct Name {
  const Point* point;
  double left;
  double bottom;
};

/// Names stand at the height of their points, or as far above as the names below need: on a phone each reaches half
/// across the plot, so that any two could meet.
std::vector<Name> placed_names(const std::vector<Point>& points, const std::vector<double>& x_ticks,
                               const std::vector<double>& y_ticks) {
  std::vector<Name> names;
  for (const Point& point : points) {
    names.push_back({&point, 100 * share_of(point.x, x_ticks), 100 * share_of(point.y, y_ticks)});
  }
  std::stable_sort(names.begin(), names.end(), [](const Name& a, const Name& b) { return a.bottom < b.bottom; });
  for (size_t i = 1; i < names.size(); ++i) {
    names[i].bottom = std::max(names[i].bottom, names[i - 1].bottom + kNameHeight);
  }
  return names;
}

}  // namespace

std::string point_chart(const PointChart& chart) {
  std::vector<Point> points = chart.points;
  std::erase_if(points, [](const Point& point) { return !std::isfinite(point.x) || !std::isfinite(point.y); });
  Range x_range;
  Range y_range;
  for (const Point& point : points) {
    x_range.add(point.x);
    y_range.add(point.y);
  }
  x_range.make_usable();
  y_range.make_usable();
  const std::vector<double> x_ticks = axis_ticks(x_range.low, x_range.high, 4);
  const std::vector<double> y_ticks = axis_ticks(y_range.low, y_range.high, 5);
  const auto to_x = [&](double x) { return kPlotWidth * share_of(x, x_ticks); };
  const auto to_y = [&](double y) { return kHeight * (1 - share_of(y, y_ticks)); };

  std::string html = "<div class=\"plot points\">\n" + y_axis(y_ticks, chart.y_label);
  html += begin_svg(chart.id, chart.title, chart.description, kHeight);
  html += "<path class=\"grid\" d=\"";
  for (const double tick : y_ticks) {
    html += fmt::format("M0 {}h{}", svg_number(to_y(tick)), svg_number(kPlotWidth));
  }
  for (const double tick : x_ticks) {
    html += fmt::format("M{} 0v{}", svg_number(to_x(tick)), svg_number(kHeight));
  }
  html += "\"/>\n";
  for (const Point& point : points) {
    const std::string style = style_class(point.style);
    html += fmt::format("<path class=\"dot {}\" d=\"M{} {}h0\"><title>{}</title></path>\n", style,
                        svg_number(to_x(point.x)), svg_number(to_y(point.y)), escape_html(point.name));
  }
  html += "</svg>\n";
  if (points.size() <= kMostNames) {
    html += "<div class=\"names\" aria-hidden=\"true\">";
    for (const Name& name : placed_names(points, x_ticks, y_ticks)) {
      const bool leftwards = name.left > 50;  // the left side has more room
      html += fmt::format("<span class=\"{}\" style=\"{}:{}%;bottom:{}%\">{}</span>", style_class(name.point->style),
                          leftwards ? "right" : "left", svg_number(leftwards ? 100 - name.left : name.left),
                          svg_number(name.bottom), escape_html(name.point->name));
    }
    html += "</div>\n";
  }
  html += x_axis(x_ticks, chart.x_label);
  return html + "</div>\n";
}

}  // namespace norma::lab
