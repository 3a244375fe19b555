#pragma once

#include "lab/report/report.h"

#include <cstddef>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace norma::lab {

/// A comparison as a report names it: "" where it is the only one.
struct NamedComparison {
  std::string name;
  const Comparison* comparison;
};

/// The answer of one or several comparisons in one sentence, never empty: what norms cost beside batch norm, and
/// whether they are more or less accurate, as decided for their rows; where nothing is known, what is missing. Of
/// comparisons that have not ended, a second one says how far they are.
std::string opening_of(const std::vector<NamedComparison>& comparisons);

/// A row of the page.
struct PageRow {
  const NamedComparison* source;
  Row row;
  std::string label;  ///< "group:32", of several comparisons "group:32 · laptop"
  size_t style = 0;   ///< of charts: that of its norm
  std::vector<const Cell*> cells;
};

/// What is compared with each other: a model and all settings but norm and seed, in all comparisons.
struct PageGroup {
  Settings settings;
  std::string label;  ///< "resnet18", "resnet18 with batch size 4"
  std::vector<PageRow> rows;
};

/// A part of the page with its own heading, to which the list of sections leads.
struct PageSection {
  std::string_view id;
  std::string_view title;  ///< in the list
  std::string html;        ///< "": nothing is known, and the page does not have it
};

/// What all sections of the page are made of. The comparisons must outlive it.
struct Page {
  explicit Page(std::vector<NamedComparison> named);

  std::vector<NamedComparison> sources;
  std::vector<Axis> axes;  ///< beside model, norm and seed, those on which cells lie apart
  std::vector<PageGroup> groups;
  size_t cells = 0;
  // Sentences; of several comparisons, the name of its own stands before each.
  std::vector<std::string> answers;  ///< answers_of()
  std::vector<std::string> notes;    ///< notes_of()
};

/// The page: lab/report/report_html.cpp. Its sections follow, each with its heading; "" for one of which nothing is
/// known.
std::string to_html(const Page& page);
/// The answer, the tables and the notes for a page without pictures: lab/report/report_markdown.cpp.
std::string to_markdown(const Page& page);

std::string results_section(const Page& page);   ///< the table
std::string meaning_section();                   ///< of its columns
std::string axes_section(const Page& page);      ///< accuracy against batch size, lr, precision, model
std::string accuracy_section(const Page& page);  ///< dots, and their seeds
/// Dots with the intervals that decide.
std::string difference_section(const Page& page);
std::string time_section(const Page& page);  ///< accuracy against time
std::string tax_section(const Page& page);
std::string memory_section(const Page& page);
std::string learning_section(const Page& page);  ///< loss curves
std::string settings_section(const Page& page);  ///< recipe and machine of each comparison
std::string runs_section(const Page& page);      ///< each run, and the command that repeats it

/// A heading of a section, to which the page's list of sections leads.
std::string section_head(std::string_view id, std::string_view title);

/// Charts side by side where there is room; those beyond the first `open` are folded away.
std::string figures(const std::vector<std::string>& charts, size_t open);
/// One chart with its caption.
std::string figure(std::string_view title, std::string_view note, std::string_view chart);

/// "25,600 images", "3 epochs"
std::string length_of(const train::Recipe& recipe);

}  // namespace norma::lab
