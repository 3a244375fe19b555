#include "core/quoting.h"
#include "lab/report/chart.h"
#include "lab/report/chart_axes.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace norma::lab {

namespace {

constexpr double kHeight = 1000;

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

/// The dot of a value; none for one that is not finite.
std::string dot(const Series& series, size_t i, const auto& to_x, const auto& to_y) {
  return std::isfinite(series.y[i]) ? fmt::format("<path class=\"dot {}\" d=\"M{} {}h0\"/>", style_class(series.style),
                                                  svg_number(to_x(series.x[i])), svg_number(to_y(series.y[i])))
                                    : "";
}

/// The axis begins at a tick and ends with the data: a tick beyond would leave a gap.
class XAxis {
 public:
  XAxis(const LineChart& chart, const Range& range) : names_(chart.x_names) {
    if (names_.empty()) {
      ticks_ = axis_ticks(range.low, range.high, 5);
      low_ = ticks_.front();
      high_ = range.high;
      std::erase_if(ticks_, [&](double tick) { return tick > range.high; });
      return;
    }
    low_ = -0.5;
    high_ = static_cast<double>(names_.size()) - 0.5;
    for (size_t i = 0; i < names_.size(); ++i) {
      ticks_.push_back(static_cast<double>(i));
    }
  }
  [[nodiscard]] double share_of(double x) const { return (x - low_) / (high_ - low_); }
  [[nodiscard]] std::string html(std::string_view label) const {
    std::vector<AxisText> texts;
    for (size_t i = 0; i < ticks_.size(); ++i) {
      texts.push_back({.share = share_of(ticks_[i]),
                       .text = names_.empty() ? tick_text(ticks_[i], ticks_) : names_[i],
                       .minor = ticks_.size() > 5 && i % 2 == 1});
    }
    return x_axis(texts, label);
  }

 private:
  const std::vector<std::string>& names_;
  std::vector<double> ticks_;
  double low_ = 0;
  double high_ = 1;
};

std::string legend(const std::vector<Series>& series) {
  std::string html = "<ul class=\"legend\">";
  std::vector<std::string> named;
  for (const Series& one : series) {
    if (!one.faint && std::find(named.begin(), named.end(), one.name) == named.end()) {
      named.push_back(one.name);
      html += fmt::format(
          "<li><svg class=\"sample\" viewBox=\"0 0 40 10\" aria-hidden=\"true\"><path class=\"curve {}\" "
          "d=\"M1 5h38\"/></svg>{}</li>",
          style_class(one.style), escape_html(one.name));
    }
  }
  return html + "</ul>\n";
}

}  // namespace

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
  const std::vector<double> y_ticks = axis_ticks(y_range.low, y_range.high, 5);
  const XAxis along(chart, x_range);
  const auto to_x = [&](double x) { return kPlotWidth * along.share_of(x); };
  // Points far outside are moved nearer, which needs fewer digits.
  const auto to_y = [&](double y) { return kHeight * std::clamp(1 - share_of(y, y_ticks), -1.0, 2.0); };

  std::string html = "<div class=\"plot\">\n" + y_axis(y_ticks, chart.y_label);
  html += begin_svg(chart.id, chart.title, chart.description, kHeight);
  html += "<path class=\"grid\" d=\"";
  for (const double tick : y_ticks) {
    html += fmt::format("M0 {}h{}", svg_number(to_y(tick)), svg_number(kPlotWidth));
  }
  html += "\"/>\n";
  for (const bool faint : {true, false}) {  // faint ones below
    for (const Series& series : chart.series) {
      if (series.faint == faint) {
        html += fmt::format("<path class=\"curve {}{}\" d=\"{}\"><title>{}</title></path>\n", faint ? "faint " : "",
                            style_class(series.style), path_through(series, chart.most_points, to_x, to_y),
                            escape_html(series.name));
        if (!chart.x_names.empty()) {
          for (size_t i = 0; i < series.x.size(); ++i) {
            html += dot(series, i, to_x, to_y);
          }
        }
      }
    }
  }
  html += "</svg>\n" + along.html(chart.x_label) + "</div>\n";
  return html + legend(chart.series);
}

}  // namespace norma::lab
