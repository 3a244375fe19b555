#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace lessons {

// Pictures for the pages: SVG files that follow the reader's light or dark setting. A picture is 360 units wide, as
// wide as a phone, so that its text (13 units) stays readable there; on a wider screen it grows.

constexpr double kWidth = 360;

/// A color by its use; each has a light and a dark form. `one` to `six` tell things apart.
enum class Color { ink, faint, paper, one, two, three, four, five, six };

struct TextStyle {
  Color color = Color::ink;
  double size = 13;                   ///< at least 11
  std::string_view anchor = "start";  ///< start, middle or end
  bool bold = false;
};

/// A drawing with the origin at the top left; y grows downwards.
class Picture {
 public:
  /// `title` and `description` are for readers who cannot see it.
  Picture(double height, std::string_view title, std::string_view description);

  /// A box; with text in its middle if there is one. `filled`: of this color, else an outline.
  void box(double x, double y, double width, double height, Color color, bool filled = true,
           std::string_view text = "");
  void text(double x, double y, std::string_view text, const TextStyle& style = {});
  void line(double x1, double y1, double x2, double y2, Color color = Color::faint, double width = 1);
  void arrow(double x1, double y1, double x2, double y2, Color color = Color::ink);
  void dot(double x, double y, double radius, Color color);
  /// A curve through the points.
  void curve(const std::vector<std::pair<double, double>>& points, Color color, double width = 2);

  /// The file FOLDER/NAME.svg. Throws std::runtime_error when it cannot be written.
  void save(std::string_view folder, std::string_view name) const;

 private:
  double height_;
  std::string title_;
  std::string description_;
  std::string body_;
};

/// A horizontal bar with its name in front and a text at its end.
struct Bar {
  std::string name;
  double value = 0;
  std::string text;
  Color color = Color::one;
};

/// Bars from 0 to the largest value. Where `text` has measured values, write "measured" into `x_label`: numbers of such
/// a picture are not compared.
Picture bar_chart(std::string_view title, std::string_view description, std::string_view x_label,
                  const std::vector<Bar>& bars);

struct Curve {
  std::string name;  ///< written above the chart
  std::vector<std::pair<double, double>> points;
  Color color = Color::one;
};

struct Axis {
  std::string label;
  bool logarithmic = false;  ///< by powers of ten
};

/// Curves over two axes. Values that are not finite, or not above 0 on a logarithmic axis, are left out.
Picture curve_chart(std::string_view title, std::string_view description, const Axis& x, const Axis& y,
                    const std::vector<Curve>& curves);

/// What the program was given as the folder for its pictures: argv[1], or the folder for temporary files.
std::string picture_folder(int argc, char** argv);

}  // namespace lessons
