#pragma once

#include "lab/audit/audit.h"
#include "train/folder_lock.h"

#include <string>

namespace norma::lab::audit {

/// The printed text: the units of the errors, the errors of each norm, the published cases, a summary over all norms
/// with the costs, and the parts left out.
std::string to_table(const Audit& audit);
/// A line per measurement, with a header.
std::string to_csv(const Audit& audit);
/// A line per timing, with a header.
std::string costs_to_csv(const Audit& audit);
/// All of it. Errors that are no numbers are "inf", "-inf" or "nan".
std::string to_json(const Audit& audit);

/// Writes table.txt, results.csv, costs.csv and results.json into a folder. Throws Error as HeldFolder does.
void write_report(const Audit& audit, const train::HeldFolder& folder);

}  // namespace norma::lab::audit
