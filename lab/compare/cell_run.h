#pragma once

#include "lab/compare/comparison.h"

#include <cstddef>
#include <filesystem>
#include <string>

namespace norma::lab {

/// The checkpoint of a cell (a run of a comparison) in the output folder. It also has the cell's result so far.
std::filesystem::path cell_checkpoint(const std::filesystem::path& folder, size_t cell);
/// Removes it, and half-written files of it that killed processes have left. Call it when the report has the cell's
/// result.
void remove_cell_checkpoint(const std::filesystem::path& folder, size_t cell);

/// The number of training images that a cell's network is evaluated on at the end (Cell::fit): as many as there are
/// test images, at most this.
inline constexpr int64_t kMostFitImages = 2000;

/// Trains a cell, from its checkpoint if there is one that fits its recipe and these versions, and fills in its result.
/// Writes a checkpoint every ComparisonOptions::checkpoint_seconds and when interrupted() (interrupt.h). Throws Error
/// as Trainer::run() does; the cell then has its record up to the failure.
void run_cell(size_t cell, Comparison& comparison, const ComparisonOptions& options, const std::string& label);

}  // namespace norma::lab
