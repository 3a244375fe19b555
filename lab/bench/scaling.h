#pragma once

#include "lab/bench/rows.h"

#include <string>
#include <string_view>
#include <vector>

// One network in several numbers of processes.

namespace norma::lab::bench {

/// Adds the row of one number of processes: to_json() of a Benchmark with BenchOptions::group. The row gets one more
/// column, train_efficiency: its images per second and process as a share of those of the first row, in percent. Throws
/// Error if the text is not such a row.
void add_processes(std::vector<Json>& rows, std::string_view json);

/// A table to read, with lines that say what its columns mean. `per_process`: each process has a batch of this size,
/// whatever their number (weak scaling), and not all of them together (strong scaling).
std::string scaling_table(const std::vector<Json>& rows, bool per_process);

}  // namespace norma::lab::bench
