#include "lab/report/section.h"

#include "base/error.h"
#include "base/lists.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <set>

// The numbers of a drawing, for the parts of the template. A drawing is 1000 units wide, whatever its width on the
// page.

namespace norma::lab {

namespace {

using Values = nlohmann::json;

constexpr double kSize = 1000;       ///< width of all drawings, and height of a plot
constexpr double kRowHeight = 100;   ///< in a chart of rows
constexpr double kCap = 15;          ///< half the height of the end of an uncertainty's bar
constexpr size_t kMostNames = 10;    ///< beside points
constexpr double kNameHeight = 8;    ///< of a line of text, in hundredths of the plot's height on a phone
constexpr size_t kStrips = 12;       ///< in which a pointer shows the values of all curves
constexpr size_t kMostOfStrip = 10;  ///< values in one

/// The range of the values on an axis, without those that are not finite.
struct Extent {
  double low = std::numeric_limits<double>::infinity();
  double high = -std::numeric_limits<double>::infinity();

  void add(double value) {
    if (std::isfinite(value)) {
      low = std::min(low, value);
      high = std::max(high, value);
    }
  }
  void add(const std::vector<double>& values) {
    for (const double value : values) {
      add(value);
    }
  }
  /// About `count` ticks around the values; the range is then neither empty nor a point.
  std::vector<double> ticks(int count) {
    if (!(low <= high)) {
      low = 0;
      high = 1;
    }
    if (low == high) {
      // The step is as large as the values need: a step of 1 beside 1e17 would be lost.
      const double step = std::max(0.5, std::abs(low) * 1e-3);
      low -= step;
      high += step;
    }
    return axis_ticks(low, high, count);
  }
};

/// The place of a value between the first and the last tick: 0 to 1 inside.
double share_of(double value, const std::vector<double>& ticks) {
  return (value - ticks.front()) / (ticks.back() - ticks.front());
}

/// A number for an attribute, with at most one digit after the point.
std::string units(double value) {
  std::string text = fmt::format("{:.1f}", value);
  if (text.ends_with(".0")) {
    text.resize(text.size() - 2);
  }
  return text == "-0" ? "0" : text;
}

std::string hundredths(double share) {
  return units(100 * share);
}

/// A text at a place of an axis; a minor one is hidden where there is little room.
Values tick_at(double share, const std::string& text, bool minor) {
  return {{"at", hundredths(share)}, {"text", text}, {"minor", minor}};
}

/// Every second one of many is minor, but 0 stays; with `all` none is.
Values ticks_of(const std::vector<double>& ticks, bool all = false) {
  const double step = ticks.size() > 1 ? ticks[1] - ticks[0] : 1;
  return mapped(ticks, [&](double tick) {
    const bool odd = !all && ticks.size() > 5 && std::llround(tick / step) % 2 != 0;
    return tick_at(share_of(tick, ticks), tick_text(tick, ticks), odd);
  });
}

/// Lines of a grid across a plot, and up to a height.
std::string lines_across(const std::vector<double>& ticks) {
  const auto line = [&](double tick) {
    return fmt::format("M0 {}h{}", units(kSize * (1 - share_of(tick, ticks))), units(kSize));
  };
  return fmt::format("{}", fmt::join(mapped(ticks, line), ""));
}
std::string lines_up(const std::vector<double>& ticks, double height) {
  const auto line = [&](double tick) {
    return fmt::format("M{} 0v{}", units(kSize * share_of(tick, ticks)), units(height));
  };
  return fmt::format("{}", fmt::join(mapped(ticks, line), ""));
}

/// What all charts have.
template <class AnyChart>
Values frame_of(const AnyChart& chart, double height) {
  return {{"id", chart.id},
          {"title", chart.title},
          {"description", chart.description},
          {"height", units(height)},
          {"x_label", chart.x_label}};
}

/// Writes a path through points in whole units, each relative to the one before, which takes few bytes.
class Pen {
 public:
  void to(double x, double y) {
    const auto to_x = std::lround(x);
    const auto to_y = std::lround(y);
    if (!down_) {
      path_ += fmt::format("M{} {}", to_x, to_y);
      alone_ = true;
    } else if (to_x != x_ || to_y != y_) {
      path_ += fmt::format("l{}{}{}", to_x - x_, to_y < y_ ? "" : " ", to_y - y_);
      alone_ = false;
    }
    x_ = to_x;
    y_ = to_y;
    down_ = true;
  }
  void lift() {
    if (down_ && alone_) {
      path_ += "h0";  // a line without length is visible by its round ends
    }
    down_ = false;
  }
  std::string path() {
    lift();
    return path_;
  }

 private:
  std::string path_;
  long x_ = 0;
  long y_ = 0;
  bool down_ = false;
  bool alone_ = false;
};

/// The path of a curve. A long one has the least and the most of each stretch, so that outliers stay visible.
std::string path_through(const Series& series, size_t most_points, const auto& to_x, const auto& to_y) {
  const size_t count = std::min(series.x.size(), series.y.size());
  const size_t stretch = count <= most_points ? 1 : (2 * count + most_points - 1) / std::max<size_t>(most_points, 2);
  Pen pen;
  for (size_t begin = 0; begin < count; begin += stretch) {
    const size_t end = std::min(begin + stretch, count);
    size_t least = end;
    size_t most = end;
    for (size_t i = begin; i < end; ++i) {
      if (std::isfinite(series.y[i])) {
        least = least == end || series.y[i] < series.y[least] ? i : least;
        most = most == end || series.y[i] > series.y[most] ? i : most;
      }
    }
    if (least == end) {
      pen.lift();
      continue;
    }
    for (const size_t i : {std::min(least, most), std::max(least, most)}) {
      pen.to(to_x(series.x[i]), to_y(series.y[i]));
    }
  }
  return pen.path();
}

/// The axis begins at a tick and ends with the data: a tick beyond would leave a gap. With names it has a place for
/// each.
struct XAxis {
  XAxis(const LineChart& chart, Extent range) {
    if (chart.x_names.empty()) {
      values = range.ticks(5);
      low = values.front();
      high = range.high;
      std::erase_if(values, [&](double tick) { return tick > range.high; });
    } else {
      low = -0.5;
      high = static_cast<double>(chart.x_names.size()) - 0.5;
    }
    size_t characters = 0;
    for (size_t i = 0; i < chart.x_names.size(); ++i) {
      values.push_back(static_cast<double>(i));
      characters += chart.x_names[i].size();
    }
    const bool is_crowded = values.size() > 5 || characters > 32;  // on a phone
    for (size_t i = 0; i < values.size(); ++i) {
      texts.push_back(chart.x_names.empty() ? tick_text(values[i], values) : chart.x_names[i]);
      json.push_back(tick_at(share(values[i]), texts.back(), is_crowded && i % 2 == 1));
    }
  }
  [[nodiscard]] double share(double x) const { return (x - low) / (high - low); }

  double low = 0;
  double high = 1;
  std::vector<double> values = {};
  std::vector<std::string> texts = {};
  Values json = Values::array();
};

/// Strips of the plot, each with the values of the curves in its middle: "25,600: batch 0.41, group 0.38".
Values strips_of(const LineChart& chart, const XAxis& along) {
  Values strips = Values::array();
  const bool named = !chart.x_names.empty();
  const size_t count = named ? along.values.size() : kStrips;
  for (size_t i = 0; i < count; ++i) {
    const double middle = (static_cast<double>(i) + 0.5) / static_cast<double>(count);
    const double x = along.low + middle * (along.high - along.low);
    std::string text;
    size_t values = 0;
    for (const Series& series : chart.series) {
      const auto nearest = std::ranges::min_element(series.x, {}, [&](double one) { return std::abs(one - x); });
      if (series.faint || nearest == series.x.end() || (named && std::abs(*nearest - x) > 0.25)) {
        continue;
      }
      const double y = series.y[static_cast<size_t>(nearest - series.x.begin())];
      if (std::isfinite(y) && ++values <= kMostOfStrip) {
        text += fmt::format("{}{} {:.4g}", text.empty() ? "" : ", ", series.name, y);
      }
    }
    if (!text.empty()) {
      const std::string place = named ? along.texts[i] : tick_text(std::round(10 * x) / 10, along.values);
      strips.push_back({{"at", hundredths(middle - 0.5 / static_cast<double>(count))},
                        {"width", hundredths(1 / static_cast<double>(count))},
                        {"late", middle > 0.5},
                        {"text", fmt::format("{} {}: {}", chart.x_label, place, text)}});
    }
  }
  return strips;
}

Values values_of(const LineChart& chart) {
  Extent x_range;
  Extent y_range;
  for (const Series& series : chart.series) {
    x_range.add(series.x);
    if (!series.faint) {
      y_range.add(series.y);
    }
  }
  const std::vector<double> y_ticks = y_range.ticks(5);
  x_range.ticks(5);
  const XAxis along(chart, x_range);
  const auto to_x = [&](double x) { return kSize * along.share(x); };
  // Points far outside are moved nearer, which needs fewer digits.
  const auto to_y = [&](double y) { return kSize * std::clamp(1 - share_of(y, y_ticks), -1.0, 2.0); };
  Values curves = Values::array();
  Values legend = Values::array();
  std::set<std::string> named;
  for (const bool faint : {true, false}) {  // faint ones below
    for (const Series& series : chart.series) {
      if (series.faint != faint) {
        continue;
      }
      Values dots = Values::array();
      for (size_t i = 0; !chart.x_names.empty() && i < series.x.size(); ++i) {
        if (std::isfinite(series.y[i])) {
          dots.push_back({{"x", units(to_x(series.x[i]))}, {"y", units(to_y(series.y[i]))}});
        }
      }
      const std::string style = style_class(series.style);
      curves.push_back({{"name", series.name},
                        {"faint", faint},
                        {"style", style},
                        {"d", path_through(series, chart.most_points, to_x, to_y)},
                        {"dots", std::move(dots)}});
      if (!faint && named.insert(series.name).second) {
        legend.push_back({{"style", style}, {"name", series.name}});
      }
    }
  }
  Values values = frame_of(chart, kSize);
  values.update({{"y_label", chart.y_label},
                 {"y_ticks", ticks_of(y_ticks, /* all= */ true)},
                 {"x_ticks", along.json},
                 {"grid", lines_across(y_ticks)},
                 {"curves", std::move(curves)},
                 {"legend", std::move(legend)},
                 {"strips", strips_of(chart, along)}});
  return values;
}

/// Names stand at the height of their points, or as far above as the names below need: on a phone each reaches half
/// across the plot, so that any two could meet.
Values names_of(const std::vector<Point>& points, const std::vector<double>& x_ticks,
                const std::vector<double>& y_ticks) {
  auto names = mapped(points, [&](const Point& point) {  // and their height
    return std::pair(&point, 100 * share_of(point.y, y_ticks));
  });
  std::ranges::stable_sort(names, {}, [](const auto& name) { return name.second; });
  for (size_t i = 1; i < names.size(); ++i) {
    names[i].second = std::max(names[i].second, names[i - 1].second + kNameHeight);
  }
  Values list = Values::array();
  for (const auto& [point, bottom] : names) {
    const double left = 100 * share_of(point->x, x_ticks);
    const bool leftwards = left > 50;  // the left side has more room
    list.push_back({{"style", style_class(point->style)},
                    {"side", leftwards ? "right" : "left"},
                    {"at", units(leftwards ? 100 - left : left)},
                    {"bottom", units(bottom)},
                    {"name", point->name}});
  }
  return list;
}

Values values_of(const PointChart& chart) {
  std::vector<Point> points = chart.points;
  std::erase_if(points, [](const Point& point) { return !std::isfinite(point.x) || !std::isfinite(point.y); });
  Extent x_range;
  Extent y_range;
  for (const Point& point : points) {
    x_range.add(point.x);
    y_range.add(point.y);
  }
  const std::vector<double> x_ticks = x_range.ticks(4);
  const std::vector<double> y_ticks = y_range.ticks(5);
  Values dots = Values::array();
  for (const Point& point : points) {
    const double x = share_of(point.x, x_ticks);
    const double y = share_of(point.y, y_ticks);
    dots.push_back({{"style", style_class(point.style)},
                    {"x", units(kSize * x)},
                    {"y", units(kSize * (1 - y))},
                    {"at", hundredths(x)},
                    {"bottom", hundredths(y)},
                    {"late", x > 0.5},
                    {"name", point.name},
                    {"text", fmt::format("{}: {:.4g} {}, {:.4g} {}", point.name, point.y, chart.y_label, point.x,
                                         chart.x_label)}});
  }
  Values values = frame_of(chart, kSize);
  values.update({{"y_label", chart.y_label},
                 {"y_ticks", ticks_of(y_ticks, /* all= */ true)},
                 {"x_ticks", ticks_of(x_ticks)},
                 {"grid", lines_across(y_ticks) + lines_up(x_ticks, kSize)},
                 {"points", std::move(dots)},
                 {"has_names", points.size() <= kMostNames},
                 {"names", points.size() <= kMostNames ? names_of(points, x_ticks, y_ticks) : Values::array()}});
  return values;
}

std::string bar_through(const Dot& dot, double y, const std::vector<double>& ticks) {
  const auto place = [&](double value) { return kSize * std::clamp(share_of(value, ticks), 0.0, 1.0); };
  std::string path = fmt::format("M{} {}H{}", units(place(*dot.low)), units(y), units(place(*dot.high)));
  for (const double value : {*dot.low, *dot.high}) {
    if (std::isfinite(value)) {  // a bar that goes on beyond the edge has no end there
      path += fmt::format("M{} {}v{}", units(place(value)), units(y - kCap), units(2 * kCap));
    }
  }
  return path;
}

/// Drawings of a row of a plot of dots.
Values drawn(const Dot& dot, double y, const std::vector<double>& ticks) {
  const auto dot_at = [&](double value) {
    return fmt::format("M{} {}h0", units(kSize * share_of(value, ticks)), units(y));
  };
  const bool has_bar = dot.low && dot.high && !std::isnan(*dot.low) && !std::isnan(*dot.high);
  return {{"error", has_bar ? bar_through(dot, y, ticks) : ""},
          {"parts", mapped(filtered(dot.parts, [](double part) { return std::isfinite(part); }), dot_at)},
          {"dot", std::isfinite(dot.value) ? dot_at(dot.value) : ""}};
}

/// Rows of name, drawing and text over one x axis.
Values values_of(const DotPlot& plot) {
  Extent range;
  range.add(plot.bars ? 0 : plot.reference.value_or(NAN));
  for (const Dot& dot : plot.dots) {
    range.add(plot.bars ? std::max(dot.value, 0.0) : dot.value);
    range.add(dot.parts);
    if (dot.low && dot.high) {
      range.add(*dot.low);
      range.add(*dot.high);
    }
  }
  const std::vector<double> ticks = plot.bars ? axis_ticks(0, range.high > 0 ? range.high : 1, 5) : range.ticks(5);
  Values rows = Values::array();
  for (const Dot& dot : plot.dots) {
    const double top = kRowHeight * static_cast<double>(rows.size());
    Values row = {{"name", dot.name}, {"text", dot.text}, {"style", style_class(dot.style)}};
    if (plot.bars) {
      const double length = std::isfinite(dot.value) && dot.value > 0 ? kSize * share_of(dot.value, ticks) : 0;
      row.update({{"y", units(top + 30)}, {"length", units(length)}});
    } else {
      row.update(drawn(dot, top + kRowHeight / 2, ticks));
    }
    rows.push_back(std::move(row));
  }
  const double height = kRowHeight * static_cast<double>(rows.size());
  Values values = frame_of(plot, height);
  values.update({{"count", rows.size()},
                 {"grid", lines_up(ticks, height)},
                 {"x_ticks", ticks_of(ticks)},
                 {"rows", std::move(rows)}});
  if (plot.reference) {
    values["axis"] = fmt::format("M{} 0v{}", units(kSize * share_of(*plot.reference, ticks)), units(height));
  }
  return values;
}

std::string_view part_of(const LineChart& /*chart*/) {
  return "line-chart";
}
std::string_view part_of(const PointChart& /*chart*/) {
  return "point-chart";
}
std::string_view part_of(const DotPlot& plot) {
  return plot.bars ? "bar-chart" : "dot-plot";
}

}  // namespace

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

std::string tick_text(double tick, const std::vector<double>& ticks) {
  const double step = ticks.size() > 1 ? ticks[1] - ticks[0] : 1;
  if (std::abs(tick) < step * 1e-6) {
    return "0";
  }
  if (std::abs(tick) < 1e4 || std::abs(tick) >= 1e12) {
    return fmt::format("{:.6g}", tick);
  }
  return (tick < 0 ? "-" : "") + format_count(std::llrint(std::abs(tick)));
}

std::string style_class(size_t style) {
  // Eight colors and four kinds of dashes.
  return fmt::format("s{} d{}", style % 8, (style + style / 8) % 4);
}

std::string to_html(const Chart& chart) {
  return std::visit([](const auto& one) { return fill(page_template(), part_of(one), values_of(one)); }, chart);
}

}  // namespace norma::lab
