#pragma once

#include "files.h"
#include "paths.h"

#include <sys/wait.h>

#include <cstdlib>
#include <filesystem>
#include <string>

namespace norma::test {

/// How a run of the program ended, and what it printed.
struct Outcome {
  int code = -1;  ///< exit code; 128 + the signal that ended it
  std::string out;
  std::string err;
};

/// Runs `norma ARGUMENTS` in `folder` through the shell. `prefix` stands before the program: "ulimit -f 100;".
inline Outcome run_norma(const std::filesystem::path& folder, const std::string& arguments,
                         const std::string& prefix = "") {
  const std::string out = (folder / "stdout.txt").string();
  const std::string err = (folder / "stderr.txt").string();
  const std::string command = fmt::format("cd '{}' && {} '{}' {} > '{}' 2> '{}' < /dev/null", folder.string(), prefix,
                                          norma_program(), arguments, out, err);
  const int status = std::system(command.c_str());
  Outcome outcome;
  outcome.code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  outcome.out = read_file(out);
  outcome.err = read_file(err);
  std::filesystem::remove(out);
  std::filesystem::remove(err);
  return outcome;
}

/// What the program says to `arguments` that are wrong: its one line on stderr, or what else happened.
inline std::string complaint(const std::string& arguments) {
  const TemporaryFolder folder;
  const Outcome outcome = run_norma(folder.path(), arguments);
  if (outcome.code != 2 || !folder.names().empty()) {
    return fmt::format("exit code {}, {} files left, stderr: {}", outcome.code, folder.names().size(), outcome.err);
  }
  return outcome.err;
}

}  // namespace norma::test
