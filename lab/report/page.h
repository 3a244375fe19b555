#pragma once

#include "lab/report/report.h"
#include "lab/report/section.h"
#include "lab/report/table.h"
#include "lab/telemetry/telemetry.h"

#include <cstddef>
#include <optional>
#include <string>
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

/// What all sections show. The comparisons must outlive it.
struct Page {
  explicit Page(std::vector<NamedComparison> named);

  std::vector<NamedComparison> sources;
  std::vector<Axis> axes;  ///< the axes beside model, norm and seed that differ between cells
  std::vector<PageGroup> groups;
  size_t cells = 0;
  // Sentences; with several comparisons, each begins with its comparison's name.
  std::vector<std::string> answers;  ///< answers_of()
  std::vector<Note> notes;           ///< notes_of()
};

/// The report of one or several comparisons.
Document document_of(const Page& page);

Section results_section(const Page& page);  ///< the table, and the notes below it
Section meaning_section();                  ///< what the table's columns mean
Section axes_section(const Page& page);     ///< accuracy against batch size, lr, precision, model
/// One chart for each group: accuracy and its seeds, differences with the intervals that decide, accuracy against time,
/// the tax, memory; then loss curves.
std::vector<Section> figure_sections(const Page& page);
Section learning_section(const Page& page);
Section statistics_section(const Page& page);  ///< statistics_table() of each comparison
Section settings_section(const Page& page);    ///< recipe and machine of each comparison
Section runs_section(const Page& page);        ///< each run, and the command that repeats it

/// A row for each norm beside its reference whose runs are all made: the difference, what moves it, and tests
/// (docs/statistics.md).
Table statistics_table(const Comparison& comparison);

/// "25,600 images of shapes at 32×32", "3 epochs of …"
std::string data_text(const Comparison& comparison);

/// A record and its name on a page.
struct NamedTelemetry {
  std::string group;  ///< the runs that are compared with each other: "resnet18", "resnet18 with batch size 4"
  std::string label;  ///< in its group: "group:32"
  const Telemetry* telemetry;
  DynamicsParts dynamics = {};              ///< what was asked for
  size_t style = 0;                         ///< in charts: its row's
  std::optional<double> step_seconds = {};  ///< of an update, by the images per second of the table; none: of the run
};

/// The record of each row of a comparison, which must outlive it: the first finished seed's, else a failed one's.
std::vector<NamedTelemetry> named_telemetry(const Comparison& comparison);

/// The parts of a step's time and the memory that its layers keep, implicit copies, the numbers in the layers,
/// attention_section() and dynamics_section(). Without records they have no blocks.
std::vector<Section> telemetry_sections(const std::vector<NamedTelemetry>& runs);
/// Charts of HealthSample::dynamics, for the parts that were asked for.
Section dynamics_section(const std::vector<NamedTelemetry>& runs);
/// Charts of HealthSample::attention.
Section attention_section(const std::vector<NamedTelemetry>& runs);

}  // namespace norma::lab
