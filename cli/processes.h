#pragma once

#include "cli/options.h"
#include "parallel/process_group.h"

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace norma::cli {

/// The words for execvp(), which must outlive them.
std::vector<char*> arguments_of(std::vector<std::string>& words);

/// The number of processes that mpirun (or srun) has started, of which this is one; 0 if neither did.
int64_t started_processes();

/// Starts mpirun with this process's own command line, in so many processes, passes signals on to them, and returns
/// mpirun's exit code. Throws Error, in the name of the command, where MPI is missing.
int start_processes(std::string_view command, int64_t processes);

/// Runs a command in RunOptions::procs processes.
///
/// Without mpirun around it, and with more than one process to be, this one starts mpirun with its own command line,
/// passes signals on, and returns mpirun's exit code. In each of the processes that mpirun (or srun) has started it
/// joins their group, and calls `run`. There, all but the first print nothing but errors, unless
/// RunOptions::verbose_ranks is set. An error of one process ends all: each says which it was, and an error that all
/// share is said once.
///
/// Throws Error, in the name of the command, where MPI is missing, and where --procs and the environment contradict
/// each other.
int run_in_processes(std::string_view command, RunOptions& options,
                     const std::function<int(const std::shared_ptr<parallel::ProcessGroup>&)>& run);

}  // namespace norma::cli
