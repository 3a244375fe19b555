#pragma once

#include "lab/report/chart.h"
#include "lab/report/table.h"

#include <cstddef>
#include <string>
#include <utility>
#include <variant>
#include <vector>

namespace norma::lab {

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

}  // namespace norma::lab
