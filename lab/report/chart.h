#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace norma::lab {

// Charts as SVG elements to stand inside an HTML page. Text and axes take their colours from the page (the CSS classes
// "axis", "grid" and "label"), so they can be read on a light and on a dark background.

/// A curve through (x[i], y[i]). A faint one has no entry in the legend.
struct Series {
  std::string name;
  std::string colour;
  std::vector<double> x;
  std::vector<double> y;
  bool faint = false;
};

struct LineChart {
  std::string title;
  std::string x_label;
  std::string y_label;
  std::vector<Series> series;
};

/// The y axis spans the curves that are not faint; faint ones are cut off at it. Values that are not finite leave a
/// gap.
std::string line_chart(const LineChart& chart);

struct Bar {
  std::string name;
  std::string colour;
  double value = 0;
  std::string text;  ///< stands at the end of the bar
};

struct BarChart {
  std::string title;
  std::vector<Bar> bars;
  double end = 0;  ///< value at the right edge; 0: the largest of the bars
};

/// Horizontal bars from 0.
std::string bar_chart(const BarChart& chart);

/// Colour number i of a palette that colour-blind readers can tell apart (Okabe and Ito, 2008); it repeats after 8.
std::string_view palette(size_t i);

/// Round numbers from at most `low` to at least `high`, about `count` of them. Throws Error unless low < high.
std::vector<double> axis_ticks(double low, double high, int count);

/// text with &, <, >, " and ' written as HTML wants them.
std::string escape_html(std::string_view text);

}  // namespace norma::lab
