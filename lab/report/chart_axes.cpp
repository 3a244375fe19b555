#include "lab/report/chart_axes.h"

#include "core/error.h"
#include "core/quoting.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdint>

namespace norma::lab {

void Range::add(double value) {
  if (std::isfinite(value)) {
    low = std::min(low, value);
    high = std::max(high, value);
  }
}

void Range::make_usable() {
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

std::string tick_text(double tick, const std::vector<double>& ticks) {
  const double step = ticks.size() > 1 ? ticks[1] - ticks[0] : 1;
  if (std::abs(tick) < step * 1e-6) {
    return "0";
  }
  if (std::abs(tick) < 1e4 || std::abs(tick) >= 1e12) {
    return fmt::format("{:.6g}", tick);
  }
  std::string text = fmt::format("{:.0f}", std::abs(tick));
  for (size_t place = text.size(); place > 3; place -= 3) {
    text.insert(place - 3, ",");
  }
  return (tick < 0 ? "-" : "") + text;
}

double share_of(double value, const std::vector<double>& ticks) {
  return (value - ticks.front()) / (ticks.back() - ticks.front());
}

std::string svg_number(double value) {
  std::string text = fmt::format("{:.1f}", value);
  if (text.ends_with(".0")) {
    text.resize(text.size() - 2);
  }
  return text == "-0" ? "0" : text;
}

std::string begin_svg(std::string_view id, std::string_view title, std::string_view description, double height) {
  return fmt::format(
      "<svg viewBox=\"0 0 {} {}\" preserveAspectRatio=\"none\" role=\"img\" aria-labelledby=\"{}-t {}-d\">"
      "<title id=\"{}-t\">{}</title><desc id=\"{}-d\">{}</desc>\n",
      svg_number(kPlotWidth), svg_number(height), id, id, id, escape_html(title), id, escape_html(description));
}

std::string style_class(size_t style) {
  // Eight colours and four kinds of dashes give 32 styles before one repeats.
  return fmt::format("s{} d{}", style % 8, (style + style / 8) % 4);
}

std::string x_axis(const std::vector<double>& ticks, std::string_view label) {
  std::vector<AxisText> texts;
  const double step = ticks.size() > 1 ? ticks[1] - ticks[0] : 1;
  for (const double tick : ticks) {
    const bool odd = ticks.size() > 5 && std::llround(tick / step) % 2 != 0;  // 0 stays
    texts.push_back({.share = share_of(tick, ticks), .text = tick_text(tick, ticks), .minor = odd});
  }
  return x_axis(texts, label);
}

std::string x_axis(const std::vector<AxisText>& texts, std::string_view label) {
  std::string html = "<div class=\"x-axis\" aria-hidden=\"true\">";
  for (const AxisText& one : texts) {
    html += fmt::format("<span{} style=\"left:{}%\">{}</span>", one.minor ? " class=\"minor\"" : "",
                        svg_number(100 * one.share), escape_html(one.text));
  }
  return html + fmt::format("<b>{}</b></div>\n", escape_html(label));
}

std::string y_axis(const std::vector<double>& ticks, std::string_view label) {
  std::string html = fmt::format("<div class=\"y-axis\" aria-hidden=\"true\"><b>{}</b>", escape_html(label));
  for (const double tick : ticks) {
    html += fmt::format("<span style=\"bottom:{}%\">{}</span>", svg_number(100 * share_of(tick, ticks)),
                        tick_text(tick, ticks));
  }
  return html + "</div>\n";
}

std::string row_chart(std::string_view id, std::string_view title, std::string_view description,
                      const std::vector<RowText>& rows, std::string_view drawing, const std::vector<double>& ticks,
                      std::string_view x_label) {
  const double height = kRowHeight * static_cast<double>(rows.size());
  std::string html = fmt::format("<div class=\"rows\" style=\"--rows:{}\">\n<div class=\"drawing\">", rows.size());
  html += begin_svg(id, title, description, height);
  html += "<path class=\"grid\" d=\"";
  for (const double tick : ticks) {
    html += fmt::format("M{} 0v{}", svg_number(kPlotWidth * share_of(tick, ticks)), svg_number(height));
  }
  html += fmt::format("\"/>\n{}</svg>\n{}</div>\n", drawing, x_axis(ticks, x_label));
  // The list has the drawing's content for readers without it.
  html += "<ul>\n";
  for (const RowText& row : rows) {
    html += fmt::format("<li><span>{}</span> <span>{}</span></li>\n", escape_html(row.name), escape_html(row.text));
  }
  return html + "</ul>\n</div>\n";
}

}  // namespace norma::lab
