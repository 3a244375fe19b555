#pragma once

#include "cli/options.h"
#include "lab/compare/comparison.h"
#include "lab/report/report.h"

#include <cstdint>

namespace norma::cli {

/// Throws Error if the device has changed: results of one device say nothing of another. Older files do not name
/// theirs.
void check_same_device(const lab::Comparison& comparison);
/// Throws Error for another number of processes: without --sync-bn the statistics of batch norms depend on it.
void check_same_processes(const lab::Comparison& comparison, int64_t processes);
/// Computes with as many threads as at the beginning, unless the command line says how many.
void take_threads(const RunOptions& running, const lab::Comparison& comparison);
/// Computes convolutions as at the beginning. Throws Error where the command line asks for the other way. Results of
/// older versions do not say how they began: they go on as the command line says.
void take_convolutions(const RunOptions& running, const lab::Comparison& comparison);
/// Throws Error for a batch with fewer images than there are processes.
void check_each_has_images(const lab::Comparison& comparison, int64_t processes);
/// Throws Error where the dynamics that are wanted cannot be recorded. `budget` in seconds; 0: none.
void check_dynamics(const lab::ComparisonOptions& options, double budget);

}  // namespace norma::cli
