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

}  // namespace norma::lab
