#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

namespace norma::lab {

// Charts to stand inside an HTML page. What is drawn is SVG that stretches with the page; what is written is HTML over
// and beside it, so that text keeps its size on a phone. Colours and sizes are those of the page (page_style.h): a
// `style` is a number, the same for one norm in all charts, and stands for a colour and, in curves, a pattern of
// dashes. Every chart has an `id`, unique on the page, and a title and a description for who cannot see it.

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
  std::vector<std::string> x_names = {};  ///< where x is not a number but the place in this list; curves then have dots
  size_t most_points = 300;  ///< of a curve; of a longer one the least and the most of each stretch are drawn
};

/// The y axis spans the curves that are not faint; faint ones are cut off at it. Values that are not finite leave a
/// gap.
std::string line_chart(const LineChart& chart);

/// A value, and where it may as well lie.
struct Dot {
  std::string name;
  size_t style = 0;
  double value = 0;
  std::optional<double> low = {};   ///< with `high`: the ends of a bar through the dot
  std::optional<double> high = {};  ///< may be infinite: the bar then reaches the edge
  std::vector<double> parts = {};   ///< small dots: what the value is the mean of
  std::string text;                 ///< stands at the end of the row
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

/// Dots that are not finite have their name and text only.
std::string dot_plot(const DotPlot& plot);

struct Bar {
  std::string name;
  size_t style = 0;
  double value = 0;
  std::string text;  ///< stands at the end of the row
};

struct BarChart {
  std::string id;
  std::string title;
  std::string description;
  std::string x_label;
  std::vector<Bar> bars;
};

/// Horizontal bars from 0; one that is not finite or below 0 has no length.
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

/// Both axes fit the points; one that is not finite is left out. Names stand beside at most 10 points, and are shown on
/// pointing at more.
std::string point_chart(const PointChart& chart);

}  // namespace norma::lab
