#pragma once

#include "lab/report/report.h"
#include "session/output.h"

#include <filesystem>
#include <string>
#include <vector>

namespace norma::lab {

/// One comparison of a report of several, and its name there.
struct Part {
  std::string name;
  Comparison comparison;
};

/// The content of results.json: one comparison without a name, or several.
using Parts = std::vector<Part>;

/// Reads the parts. Throws Error that begins with `where` for a text that is neither, or of a newer version.
Parts parts_from_json(const std::string& text, const std::string& where = "report");

/// Makes one comparison of the parts of a divided one, as joined(), if one of the results lacks parts. Otherwise, also
/// with divided comparisons that are whole again, it puts the parts of several results side by side. A comparison
/// without a name gets its folder's, with as many of the folders above as tell it apart. Throws Error for fewer than
/// two comparisons, and for the same comparison twice: with the same cells, begun at the same time by the same command
/// on the same machine.
Parts merged(const std::vector<std::filesystem::path>& folders, std::vector<Parts> reports);

/// Like to_table(), to_csv(), to_json(), to_html() and to_markdown() of one comparison. With several, each line names
/// its own; in CSV in a first column "comparison".
std::string to_table(const Parts& parts);
std::string to_csv(const Parts& parts);
std::string to_json(const Parts& parts);
std::string to_html(const Parts& parts);
std::string to_markdown(const Parts& parts);

/// Writes results.csv, report.html, report.md and, last, results.json into a folder. Throws Error as HeldFolder does.
void write_report(const Parts& parts, const train::HeldFolder& folder);

/// The first thing that differs between the plans of two comparisons, "lr 0.002 → 0.001"; "" if both have the same
/// cells, recipe (but for the data's folder), weights at the start, exactness of convolutions, number of processes,
/// tune_lr, rounds of timing and number of parts.
std::string plan_difference(const Comparison& a, const Comparison& b);

/// Puts parts of one comparison together (Comparison::parts): each cell comes from the part that has it. Runs of
/// missing parts stay CellState::elsewhere. `names` are those of the parts in errors. Throws Error "report: …" for
/// parts of different plans, for a comparison that was not divided, and for a part that comes twice.
Comparison joined(const std::vector<std::string>& names, std::vector<Comparison> parts);

}  // namespace norma::lab
