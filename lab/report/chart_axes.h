#pragma once

#include "lab/report/chart.h"

#include <limits>
#include <string>
#include <string_view>
#include <vector>

namespace norma::lab {

// The parts that all kinds of charts share. The SVG of a chart is 1000 units wide, whatever its width on the page.

inline constexpr double kPlotWidth = 1000;

/// The range of the values on an axis.
struct Range {
  double low = std::numeric_limits<double>::infinity();
  double high = -std::numeric_limits<double>::infinity();

  /// Ignores values that are not finite.
  void add(double value);
  /// Makes the range neither empty nor a point.
  void make_usable();
};

/// Round numbers from at most `low` to at least `high`, about `count` of them. Throws Error unless low < high.
std::vector<double> axis_ticks(double low, double high, int count);

/// "0.2", "25,000", never "-0"; -1e-17 beside steps of 0.1 is 0.
std::string tick_text(double tick, const std::vector<double>& ticks);

/// The place of a value between the first and the last tick: 0 to 1 inside.
double share_of(double value, const std::vector<double>& ticks);

/// A number for an SVG attribute, with at most one digit after the point.
std::string svg_number(double value);

/// `<svg …>` with title and description, which screen readers read out; `height` in units. No other id on the page may
/// begin with `id`.
std::string begin_svg(std::string_view id, std::string_view title, std::string_view description, double height);

/// The classes of a style: its colour, and its dashes in curves.
std::string style_class(size_t style);

/// A text at a place of an axis.
struct AxisText {
  double share = 0;  ///< of the way along the axis
  std::string text;
  bool minor = false;  ///< hidden where there is little room
};

/// The values under a plot, at their places, and the axis' name. Screen readers skip them.
std::string x_axis(const std::vector<AxisText>& texts, std::string_view label);
std::string x_axis(const std::vector<double>& ticks, std::string_view label);
/// Likewise for the y axis, left of the plot.
std::string y_axis(const std::vector<double>& ticks, std::string_view label);

/// The texts left and right of a row of a chart.
struct RowText {
  std::string name;
  std::string text;
};

/// Height of a row in a chart of rows, in units.
inline constexpr double kRowHeight = 100;

/// Rows of name, drawing and text over one x axis; `drawing` are SVG elements, row i between i and i + 1 row heights.
std::string row_chart(std::string_view id, std::string_view title, std::string_view description,
                      const std::vector<RowText>& rows, std::string_view drawing, const std::vector<double>& ticks,
                      std::string_view x_label);

}  // namespace norma::lab
