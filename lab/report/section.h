#pragma once

#include "lab/report/table.h"

#include <nlohmann/json_fwd.hpp>

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
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

/// The y axis spans the curves that are not faint and cuts the faint ones off. Values that are not finite leave a gap.
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

/// A value, and an interval around it.
struct Dot {
  std::string name = {};
  size_t style = 0;
  double value = 0;
  std::optional<double> low = {};   ///< with `high`: the ends of a bar through the dot
  std::optional<double> high = {};  ///< may be infinite: the bar then reaches the edge
  std::vector<double> parts = {};   ///< small dots: the values whose mean this is
  std::string text;                 ///< at the end of the row
};

/// Rows of dots over one axis, which fits the values; a dot that is not finite has only its name and text. Or rows of
/// bars from 0; a value that is not finite or below 0 has no length.
struct DotPlot {
  std::string id;
  std::string title;
  std::string description;
  std::string x_label;
  std::vector<Dot> dots = {};
  std::optional<double> reference = {};  ///< a vertical line, which the axis of dots reaches
  bool bars = false;
};

/// A point with its name beside it.
struct Point {
  std::string name;
  size_t style = 0;
  double x = 0;
  double y = 0;
};

/// Both axes fit the points; a point that is not finite is left out. Up to 10 points have their names beside them; with
/// more, pointing at one shows its name.
struct PointChart {
  std::string id;
  std::string title;
  std::string description;
  std::string x_label;
  std::string y_label;
  std::vector<Point> points;
};

using Chart = std::variant<LineChart, DotPlot, PointChart>;
std::string to_html(const Chart& chart);

/// Round numbers from at most `low` to at least `high`, about `count` of them. Throws Error unless low < high.
std::vector<double> axis_ticks(double low, double high, int count);

/// "0.2", "25,000", never "-0"; -1e-17 beside steps of 0.1 is 0.
std::string tick_text(double tick, const std::vector<double>& ticks);

/// The classes of a style: its color, and its dashes in curves. 32 styles differ.
std::string style_class(size_t style);

// A report as data. The page, Markdown and the terminal show the same sections, each as far as it can: charts need the
// page.

/// A chart with its caption.
struct Figure {
  std::string title;
  std::string note = {};
  Chart chart;
};

/// Charts side by side if there is room; all but the first `open` are folded away.
struct Figures {
  std::vector<Figure> figures;
  size_t open = 8;
};

struct Heading {
  std::string text;
};

struct Note {
  std::string text;
  bool is_warning = false;
};

/// A table wider than the page scrolls sideways, by keyboard, too.
struct CaptionedTable {
  std::string caption;
  Table table;
};

/// Names and what is said of them: settings, or the meaning of words. Those without a text are left out.
struct Facts {
  std::string caption;  ///< "": a list of words and their meaning
  std::vector<std::pair<std::string, std::string>> facts;

  void add(std::string name, std::string text) {
    if (!text.empty()) {
      facts.emplace_back(std::move(name), std::move(text));
    }
  }
};

/// Lines for a shell.
struct Code {
  std::string text;
};

/// A cell of a table of results: a figure, and what stands small below it.
struct ResultCell {
  std::string text;
  std::string aside = {};
};

/// The results of rows that are compared with each other.
struct ResultRow {
  std::string name;
  std::vector<ResultCell> cells;  ///< none: nothing is finished, and `problem` stands in their place
  std::string problem = {};
};
struct ResultGroup {
  std::string label;
  std::vector<ResultRow> rows;
};
/// All results, with the columns of `heads`; `table` has them for pages without small print.
struct ResultTable {
  std::string caption;
  std::vector<std::string> heads;
  std::vector<ResultGroup> groups;
  Table table;
};

struct Fold;
using Block = std::variant<Heading, Note, CaptionedTable, Facts, Code, ResultTable, Figures, Fold>;

/// Blocks after a line that opens them.
struct Fold {
  std::string summary;
  std::string problem = {};  ///< after the summary, in the color of errors
  std::vector<Block> blocks;
  bool on_page_only = false;  ///< details that Markdown leaves out
};

/// A part of the report with an entry in the list of sections. Without blocks nothing is known of it, and it is left
/// out.
struct Section {
  std::string id;
  std::string menu;   ///< its name in the list
  std::string title;  ///< its heading
  std::string sentence = {};
  std::vector<Block> blocks = {};
};

/// texts.toml, and a text of it with figures in its places.
std::string_view texts_file();
const std::vector<std::string>& texts_of(const std::string& name);
template <class... Figures>
std::string text_of(const std::string& name, const Figures&... figures) {
  return fmt::format(fmt::runtime(texts_of(name).back()), figures...);
}
/// A section with its words there, without blocks.
Section section_called(const std::string& id);

/// The whole report.
struct Document {
  std::string title;
  std::string headline;
  std::vector<std::string> answers;  ///< below the headline, one by one
  std::vector<std::pair<std::string, std::string>> key_facts;
  std::vector<Section> sections;
};

/// One page that needs nothing else, without outside references and scripts.
std::string to_html(const Document& document);
/// The blocks of a section alone.
std::string to_html(const Section& section);
/// The same content as GitHub's Markdown, without charts.
std::string to_markdown(const Document& document);

/// The page's template and its style sheet: lab/report/page.html and page.css.
std::string_view page_template();
std::string_view page_style();
/// The script for gnuplot of a sweep over norms: lab/bench/share.gp.
std::string_view gnuplot_template();

/// Fills a part of a template, which begins after a line {{=part}} and ends before the next one, with values:
///
/// - {{name}} is a value as text, with HTML's characters escaped, and {{{name}}} is one as it is. A name that the
///   innermost object lacks is looked for in those around it; {{.}} is the element of a list.
/// - {{#name}}…{{/name}} stands once for each element of a list, once for another value that is not empty or false, and
///   not at all where the innermost object has none; {{^name}}…{{/name}} stands where the other does not. No section
///   holds one of the same name.
/// - {{>part}} is another part with the same values.
///
/// Throws Error "template: …" for a name or part that is nowhere, and for a {{ without its end.
std::string fill(std::string_view text, std::string_view part, const nlohmann::json& values);

}  // namespace norma::lab
