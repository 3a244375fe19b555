#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <variant>
#include <vector>

namespace norma::lab {

// Charts for an HTML page, as data. The drawing is SVG that stretches with the page; the text is HTML over and beside
// it, so that it keeps its size on a phone (page.html). Values show under a pointer or a finger, and the legend
// switches curves off, without a script. Colors and sizes are the page's (page.css). A `style` is a number, the same
// for one norm in all charts; it stands for a color and, in curves, a pattern of dashes. Every chart has an `id`,
// unique on the page, and a title and a description for readers who cannot see it.

/// A curve through (x[i], y[i]). A faint one has no entry in the legend.
struct Series {
  std::string name;
  size_t style = 0;
  std::vector<double> x;
  std::vector<double> y;
  bool faint = false;
};

struct LineChart {
  std::string id;
  std::string title;
  std::string description;
  std::string x_label;
  std::string y_label;
  std::vector<Series> series;
  std::vector<std::string> x_names = {};  ///< if x is the place in this list, not a number; curves then have dots
  size_t most_points = 300;               ///< in a curve; of a longer one, each stretch shows its smallest and largest
};

/// The y axis spans the curves that are not faint and cuts the faint ones off. Values that are not finite leave a gap.
std::string line_chart(const LineChart& chart);

/// A value, and an interval around it.
struct Dot {
  std::string name;
  size_t style = 0;
  double value = 0;
  std::optional<double> low = {};   ///< with `high`: the ends of a bar through the dot
  std::optional<double> high = {};  ///< may be infinite: the bar then reaches the edge
  std::vector<double> parts = {};   ///< small dots: the values whose mean this is
  std::string text;                 ///< at the end of the row
};

/// Rows of dots over one axis, which fits the values.
struct DotPlot {
  std::string id;
  std::string title;
  std::string description;
  std::string x_label;
  std::vector<Dot> dots;
  std::optional<double> reference = {};  ///< a vertical line, which the axis reaches
};

/// A dot that is not finite has only its name and text.
std::string dot_plot(const DotPlot& plot);

struct Bar {
  std::string name;
  size_t style = 0;
  double value = 0;
  std::string text;  ///< at the end of the row
};

struct BarChart {
  std::string id;
  std::string title;
  std::string description;
  std::string x_label;
  std::vector<Bar> bars;
};

/// Horizontal bars from 0; a value that is not finite or below 0 has no length.
std::string bar_chart(const BarChart& chart);

/// A point with its name beside it.
struct Point {
  std::string name;
  size_t style = 0;
  double x = 0;
  double y = 0;
};

struct PointChart {
  std::string id;
  std::string title;
  std::string description;
  std::string x_label;
  std::string y_label;
  std::vector<Point> points;
};

/// Both axes fit the points; a point that is not finite is left out. Up to 10 points have their names beside them; with
/// more, pointing at one shows its name.
std::string point_chart(const PointChart& chart);

using Chart = std::variant<LineChart, DotPlot, BarChart, PointChart>;
std::string to_html(const Chart& chart);

/// Round numbers from at most `low` to at least `high`, about `count` of them. Throws Error unless low < high.
std::vector<double> axis_ticks(double low, double high, int count);

/// "0.2", "25,000", never "-0"; -1e-17 beside steps of 0.1 is 0.
std::string tick_text(double tick, const std::vector<double>& ticks);

/// The classes of a style: its color, and its dashes in curves. 32 styles differ.
std::string style_class(size_t style);

}  // namespace norma::lab
