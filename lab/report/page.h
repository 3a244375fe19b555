#pragma once

#include "lab/report/report.h"
#include "lab/report/table.h"
#include "lab/telemetry/telemetry.h"

#include <cstddef>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace norma::lab {

/// A comparison and its name in a report; "" if it is the only one.
struct NamedComparison {
  std::string name;
  const Comparison* comparison;
};

/// The answer of one or several comparisons in a sentence, never empty: the cost of norms beside batch norm, and if
/// they are more or less accurate, as decided for their rows. If nothing is known, it says what is missing. A second
/// sentence gives the progress of comparisons that have not ended.
std::string opening_of(const std::vector<NamedComparison>& comparisons);

/// A row of the page.
struct PageRow {
  const NamedComparison* source;
  Row row;
  std::string label;  ///< "group:32", in several comparisons "group:32 · laptop"
  size_t style = 0;   ///< in charts: its norm's
  std::vector<const Cell*> cells;
};

/// Rows that are compared with each other: one model and all settings but norm and seed, over all comparisons.
struct PageGroup {
  Settings settings;
  std::string label;  ///< "resnet18", "resnet18 with batch size 4"
  std::vector<PageRow> rows;
};

/// A part of the page with its own heading and an entry in the list of sections.
struct PageSection {
  std::string_view id;
  std::string_view title;  ///< in the list
  std::string html;        ///< "" if nothing is known: the page leaves it out
};

/// The content of all sections of the page. The comparisons must outlive it.
struct Page {
  explicit Page(std::vector<NamedComparison> named);

  std::vector<NamedComparison> sources;
  std::vector<Axis> axes;  ///< the axes beside model, norm and seed that differ between cells
  std::vector<PageGroup> groups;
  size_t cells = 0;
  // Sentences; with several comparisons, each begins with its comparison's name.
  std::vector<std::string> answers;  ///< answers_of()
  std::vector<std::string> notes;    ///< notes_of()
};

/// The page (lab/report/report_html.cpp). Its sections follow, each with its heading; "" if nothing is known of one.
std::string to_html(const Page& page);
/// The answer, the tables and the notes for a page without pictures (lab/report/report_markdown.cpp).
std::string to_markdown(const Page& page);

std::string results_section(const Page& page);   ///< the table
std::string meaning_section();                   ///< what the table's columns mean
std::string axes_section(const Page& page);      ///< accuracy against batch size, lr, precision, model
std::string accuracy_section(const Page& page);  ///< dots, and their seeds
/// Dots with the intervals that decide.
std::string difference_section(const Page& page);
std::string statistics_section(const Page& page);  ///< statistics_table() of each comparison
std::string time_section(const Page& page);        ///< accuracy against time
std::string tax_section(const Page& page);
std::string memory_section(const Page& page);
std::string learning_section(const Page& page);  ///< loss curves
std::string settings_section(const Page& page);  ///< recipe and machine of each comparison
std::string runs_section(const Page& page);      ///< each run, and the command that repeats it

/// A row for each norm beside its reference whose runs are all made: the difference, what moves it, and tests
/// (docs/statistics.md).
Table statistics_table(const Comparison& comparison);

/// A heading that the page's list of sections links to.
std::string section_head(std::string_view id, std::string_view title);

/// Charts side by side if there is room; all but the first `open` are folded away.
std::string figures(const std::vector<std::string>& charts, size_t open);
/// One chart with its caption.
std::string figure(std::string_view title, std::string_view note, std::string_view chart);

/// "begun 2026-11-21 14:03:07 on AMD EPYC 9B45, 2 threads by: norma compare …"
std::string origin_text(const PartOrigin& part);
/// "25,600 images", "3 epochs"
std::string length_of(const train::Recipe& recipe);

/// A record and its name on a page.
struct NamedTelemetry {
  std::string group;  ///< the runs that are compared with each other: "resnet18", "resnet18 with batch size 4"
  std::string label;  ///< in its group: "group:32"
  const Telemetry* telemetry;
  DynamicsParts dynamics = {};  ///< what was asked for
  size_t style = 0;             ///< in charts: its row's
};

/// The record of each row of a comparison, which must outlive it: the first finished seed's, else a failed one's.
std::vector<NamedTelemetry> named_telemetry(const Comparison& comparison);

/// The style sheet, lab/report/page.css.
std::string_view page_style();

/// Sections of the page: the parts of a step's time and the memory that its layers keep, implicit copies, the numbers
/// in the layers, and dynamics_section(). Without records their HTML is "".
std::vector<PageSection> telemetry_sections(const std::vector<NamedTelemetry>& runs);
/// Charts of HealthSample::dynamics, for the parts that were asked for.
PageSection dynamics_section(const std::vector<NamedTelemetry>& runs);

}  // namespace norma::lab
