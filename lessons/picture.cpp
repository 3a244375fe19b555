#include "picture.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <limits>
#include <stdexcept>

namespace lessons {

namespace {

// Colors that can be told apart without seeing red and green (Okabe and Ito), darker on white for the sake of text.
constexpr std::string_view kStyle = R"(<style>
text{font-family:system-ui,sans-serif}
.ink{fill:#1a1a1a}.ink-line{stroke:#1a1a1a}.faint{fill:#6b6b6b}.faint-line{stroke:#8a8a8a}.paper{fill:#fff}
.paper-line{stroke:#fff}.one{fill:#0063a6}.one-line{stroke:#0063a6}.two{fill:#b34700}.two-line{stroke:#b34700}
.three{fill:#00754f}.three-line{stroke:#00754f}.four{fill:#9c3d78}.four-line{stroke:#9c3d78}.five{fill:#7a5c00}
.five-line{stroke:#7a5c00}.six{fill:#5b5b8f}.six-line{stroke:#5b5b8f}
@media(prefers-color-scheme:dark){.ink{fill:#eee}.ink-line{stroke:#eee}.faint{fill:#a8a8a8}.faint-line{stroke:#8a8a8a}
.paper{fill:#16181c}.paper-line{stroke:#16181c}.one{fill:#6cb8f0}.one-line{stroke:#6cb8f0}.two{fill:#f0945a}
.two-line{stroke:#f0945a}.three{fill:#4cc79b}.three-line{stroke:#4cc79b}.four{fill:#dc9cc3}.four-line{stroke:#dc9cc3}
.five{fill:#d6b656}.five-line{stroke:#d6b656}.six{fill:#a9a9dd}.six-line{stroke:#a9a9dd}}
</style>
)";

std::string_view name_of(Color color) {
  constexpr std::array<std::string_view, 9> names = {"ink",   "faint", "paper", "one", "two",
                                                     "three", "four",  "five",  "six"};
  return names.at(static_cast<size_t>(color));
}

std::string escaped(std::string_view text) {
  std::string result;
  for (const char c : text) {
    switch (c) {
      case '&': result += "&amp;"; break;
      case '<': result += "&lt;"; break;
      case '>': result += "&gt;"; break;
      case '"': result += "&quot;"; break;
      default: result += c;
    }
  }
  return result;
}

/// A coordinate: a tenth is finer than the eye, and the same on every machine.
std::string at(double value) {
  const double rounded = std::round(value * 10) / 10;
  return fmt::format("{}", rounded == 0 ? 0.0 : rounded);
}

/// Maps values to coordinates.
struct Scale {
  double low = 0;
  double high = 1;
  double from = 0;
  double to = 1;
  bool logarithmic = false;

  [[nodiscard]] bool can_show(double value) const { return std::isfinite(value) && (!logarithmic || value > 0); }
  [[nodiscard]] double operator()(double value) const {
    const double v = logarithmic ? std::log10(value) : value;
    return from + (v - low) / (high - low) * (to - from);
  }
};

/// The largest of 1, 2 and 5 times a power of ten that makes at least `parts` steps of `range`.
double step_of(double range, int parts) {
  const double power = std::pow(10, std::floor(std::log10(range / parts)));
  for (const double factor : {5.0, 2.0}) {
    if (factor * power * parts <= range) {
      return factor * power;
    }
  }
  return power;
}

std::vector<double> ticks_of(const Scale& scale) {
  std::vector<double> ticks;
  const double step =
      scale.logarithmic ? std::max(1.0, std::ceil((scale.high - scale.low) / 6)) : step_of(scale.high - scale.low, 4);
  for (double i = std::ceil(scale.low / step); i * step <= scale.high + step * 1e-6; ++i) {
    ticks.push_back(scale.logarithmic ? std::pow(10, i * step) : i * step);
  }
  return ticks;
}

Scale scale_of(const std::vector<Curve>& curves, bool of_x, const Axis& axis, double from, double to) {
  Scale scale{.from = from, .to = to, .logarithmic = axis.logarithmic};
  scale.low = std::numeric_limits<double>::infinity();
  scale.high = -scale.low;
  for (const Curve& curve : curves) {
    for (const auto& [x, y] : curve.points) {
      const double value = of_x ? x : y;
      if (scale.can_show(value)) {
        scale.low = std::min(scale.low, axis.logarithmic ? std::floor(std::log10(value)) : value);
        scale.high = std::max(scale.high, axis.logarithmic ? std::ceil(std::log10(value)) : value);
      }
    }
  }
  if (!(scale.low < scale.high)) {
    scale.low = std::isfinite(scale.low) ? scale.low - 1 : 0;
    scale.high = scale.low + 2;
  }
  return scale;
}

std::string short_number(double value) {
  const double size = std::abs(value);
  return size != 0 && (size < 1e-3 || size >= 1e5) ? fmt::format("{:.0e}", value) : fmt::format("{:.4g}", value);
}

}  // namespace

Picture::Picture(double height, std::string_view title, std::string_view description)
    : height_(height), title_(title), description_(description) {}

void Picture::box(double x, double y, double width, double height, Color color, bool filled, std::string_view content) {
  const std::string_view name = name_of(color);
  body_ += fmt::format(R"(<rect x="{}" y="{}" width="{}" height="{}" rx="2" class="{}"{}/>)"
                       "\n",
                       at(x), at(y), at(width), at(height), filled ? std::string(name) : fmt::format("{}-line", name),
                       filled ? "" : R"( fill="none" stroke-width="1.5")");
  if (!content.empty()) {
    text(x + width / 2, y + height / 2 + 4.5, content,
         {.color = filled && color != Color::paper ? Color::paper : Color::ink, .anchor = "middle"});
  }
}

void Picture::text(double x, double y, std::string_view content, const TextStyle& style) {
  body_ += fmt::format(R"(<text x="{}" y="{}" font-size="{}" text-anchor="{}" class="{}"{}>{}</text>)"
                       "\n",
                       at(x), at(y), at(style.size), style.anchor, name_of(style.color),
                       style.bold ? R"( font-weight="bold")" : "", escaped(content));
}

void Picture::line(double x1, double y1, double x2, double y2, Color color, double width) {
  body_ += fmt::format(R"(<line x1="{}" y1="{}" x2="{}" y2="{}" stroke-width="{}" class="{}-line"/>)"
                       "\n",
                       at(x1), at(y1), at(x2), at(y2), at(width), name_of(color));
}

void Picture::arrow(double x1, double y1, double x2, double y2, Color color) {
  const double length = std::hypot(x2 - x1, y2 - y1);
  const double ux = length > 0 ? (x2 - x1) / length : 0;
  const double uy = length > 0 ? (y2 - y1) / length : 0;
  line(x1, y1, x2 - 5 * ux, y2 - 5 * uy, color, 1.5);
  body_ += fmt::format(R"(<polygon points="{},{} {},{} {},{}" class="{}"/>)"
                       "\n",
                       at(x2), at(y2), at(x2 - 8 * ux - 4 * uy), at(y2 - 8 * uy + 4 * ux), at(x2 - 8 * ux + 4 * uy),
                       at(y2 - 8 * uy - 4 * ux), name_of(color));
}

void Picture::dot(double x, double y, double radius, Color color) {
  body_ += fmt::format(R"(<circle cx="{}" cy="{}" r="{}" class="{}"/>)"
                       "\n",
                       at(x), at(y), at(radius), name_of(color));
}

void Picture::curve(const std::vector<std::pair<double, double>>& points, Color color, double width) {
  std::string path;
  for (const auto& [x, y] : points) {
    path += fmt::format("{}{},{}", path.empty() ? "" : " ", at(x), at(y));
  }
  body_ +=
      fmt::format(R"(<polyline points="{}" fill="none" stroke-width="{}" stroke-linejoin="round" class="{}-line"/>)"
                  "\n",
                  path, at(width), name_of(color));
}

void Picture::save(std::string_view folder, std::string_view name) const {
  const std::string path = fmt::format("{}/{}.svg", folder, name);
  std::ofstream file(path);
  file << fmt::format(R"(<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {} {}" role="img">)"
                      "\n<title>{}</title>\n<desc>{}</desc>\n",
                      at(kWidth), at(height_), escaped(title_), escaped(description_))
       << kStyle << body_ << "</svg>\n";
  if (!file.flush()) {
    throw std::runtime_error(fmt::format("picture: cannot write {}", path));
  }
}

Picture bar_chart(std::string_view title, std::string_view description, std::string_view x_label,
                  const std::vector<Bar>& bars) {
  double most = 0;
  for (const Bar& bar : bars) {
    most = std::isfinite(bar.value) ? std::max(most, bar.value) : most;
  }
  constexpr double kRow = 44;
  Picture picture(kRow * static_cast<double>(bars.size()) + 26, title, description);
  double y = 0;
  for (const Bar& bar : bars) {
    picture.text(4, y + 15, bar.name);
    picture.text(kWidth - 4, y + 15, bar.text, {.anchor = "end"});
    const double length = std::isfinite(bar.value) && most > 0 ? std::max(0.0, bar.value) / most * (kWidth - 8) : 0;
    picture.box(4, y + 20, length, 14, bar.color);
    y += kRow;
  }
  picture.text(4, y + 14, x_label, {.color = Color::faint});
  return picture;
}

Picture curve_chart(std::string_view title, std::string_view description, const Axis& x, const Axis& y,
                    const std::vector<Curve>& curves) {
  // Above the chart: the names of the curves, and what the y axis is.
  std::vector<std::pair<double, double>> names;
  double end = 4;
  double row = 14;
  for (const Curve& curve : curves) {
    const double width = 8 * static_cast<double>(curve.name.size()) + 16;
    if (end > 4 && end + width > kWidth) {
      end = 4;
      row += 18;
    }
    names.emplace_back(end, row);
    end += width;
  }
  const double top = row + 38;
  const double height = top + 232;
  Picture picture(height, title, description);
  for (size_t i = 0; i < curves.size(); ++i) {
    picture.text(names[i].first, names[i].second, curves[i].name, {.color = curves[i].color, .bold = true});
  }
  const Scale across = scale_of(curves, true, x, 48, kWidth - 10);
  const Scale up = scale_of(curves, false, y, height - 44, top);
  for (const double tick : ticks_of(up)) {
    picture.line(across.from, up(tick), across.to, up(tick), Color::faint, 0.5);
    picture.text(across.from - 4, up(tick) + 4, short_number(tick), {.size = 12, .anchor = "end"});
  }
  for (const double tick : ticks_of(across)) {
    picture.line(across(tick), up.from, across(tick), up.from + 4);
    const std::string label = short_number(tick);
    // The last one must not leave the picture on the right. A sign in the widest of the usual fonts has 8 units.
    const bool fits = across(tick) + 4 * static_cast<double>(label.size()) <= kWidth;
    picture.text(fits ? across(tick) : kWidth - 2, up.from + 17, label,
                 {.size = 12, .anchor = fits ? "middle" : "end"});
  }
  picture.line(across.from, up.from, across.to, up.from, Color::ink);
  picture.text(4, row + 20, y.label, {.color = Color::faint});
  picture.text(across.to, height - 8, x.label, {.color = Color::faint, .anchor = "end"});
  for (const Curve& curve : curves) {
    std::vector<std::pair<double, double>> points;
    for (const auto& [px, py] : curve.points) {
      if (across.can_show(px) && up.can_show(py)) {
        points.emplace_back(across(px), up(py));
      }
    }
    picture.curve(points, curve.color);
    for (const auto& [px, py] : points) {
      picture.dot(px, py, points.size() > 30 ? 0 : 2.5, curve.color);
    }
  }
  return picture;
}

std::string picture_folder(int argc, char** argv) {
  return argc > 1 ? argv[1] : std::filesystem::temp_directory_path().string();
}

}  // namespace lessons
