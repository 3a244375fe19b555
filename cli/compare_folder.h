#pragma once

#include "lab/compare/deal.h"
#include "lab/report/report.h"
#include "session/folder_lock.h"

#include <filesystem>
#include <optional>

namespace norma::cli {

/// Reads the comparison in a folder that it may go on in. Throws Error if there is none, if it was merged from parts,
/// and if runs are left and the file of weights that they start from has changed.
lab::Comparison comparison_in(const std::filesystem::path& folder);

/// Throws Error when the folder of a new comparison holds results.
void check_free(const std::filesystem::path& folder, const lab::Comparison& comparison);

/// The comparison in a folder if it has this plan, part and budget (seconds): then it goes on there, with the length
/// that was chosen for the budget. Takes the folder's lock. None without a comparison in the folder. Throws Error for
/// any other.
std::optional<lab::Comparison> begun_before(const lab::Comparison& planned, const lab::PartOf& part, double budget,
                                            const std::filesystem::path& folder,
                                            std::optional<train::FolderLock>& lock);

}  // namespace norma::cli
