#pragma once

#include "lab/report/report.h"
#include "train/folder_lock.h"

#include <filesystem>
#include <string>
#include <vector>

namespace norma::lab {

/// A comparison of a report of several, under the name that marks what comes from it.
struct Part {
  std::string name;
  Comparison comparison;
};

/// What results.json holds: one comparison, without a name, or several.
using Parts = std::vector<Part>;

/// Throws Error, with `where` before it, for a text that is neither, or of a newer version.
Parts parts_from_json(const std::string& text, const std::string& where = "report");

/// The parts of several results in one. A comparison without a name gets that of its folder, with as many of the
/// folders above it as tell it from the others. Throws Error for fewer than two comparisons, and for the same
/// comparison twice: of the same cells, begun at the same time by the same command on the same machine.
Parts merged(const std::vector<std::filesystem::path>& folders, std::vector<Parts> reports);

/// As to_table(), to_csv(), to_json(), to_html() and to_markdown() of one comparison. Of several, each line says which
/// it is from, in CSV in a first column "comparison".
std::string to_table(const Parts& parts);
std::string to_csv(const Parts& parts);
std::string to_json(const Parts& parts);
std::string to_html(const Parts& parts);
std::string to_markdown(const Parts& parts);

/// Writes results.csv, report.html, report.md and last results.json into a folder. Throws Error as HeldFolder.
void write_report(const Parts& parts, const train::HeldFolder& folder);

}  // namespace norma::lab
