#pragma once

#include "files.h"
#include "paths.h"

#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <thread>

namespace norma::test {

/// How a run of the program ended, and what it printed.
struct Outcome {
  int code = -1;  ///< exit code; 128 + the signal that ended it
  std::string out;
  std::string err;
};

/// What `folder` holds of a run's output once the run is over.
inline Outcome outcome_in(const std::filesystem::path& folder, int status) {
  Outcome outcome;
  outcome.code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  outcome.out = read_file(folder / "stdout.txt");
  outcome.err = read_file(folder / "stderr.txt");
  std::filesystem::remove(folder / "stdout.txt");
  std::filesystem::remove(folder / "stderr.txt");
  return outcome;
}

/// The shell's line that runs `norma ARGUMENTS` in `folder`, its output into files there.
inline std::string shell_line(const std::filesystem::path& folder, const std::string& arguments,
                              const std::string& prefix) {
  return fmt::format("cd '{}' && {} '{}' {} > stdout.txt 2> stderr.txt < /dev/null", folder.string(), prefix,
                     norma_program(), arguments);
}

/// Runs `norma ARGUMENTS` in `folder` through the shell. `prefix` stands before the program: "ulimit -f 100;".
inline Outcome run_norma(const std::filesystem::path& folder, const std::string& arguments,
                         const std::string& prefix = "") {
  return outcome_in(folder, std::system(shell_line(folder, arguments, prefix).c_str()));
}

/// Starts `norma ARGUMENTS` in `folder`, its output into files there; the process is the program itself, not a shell.
/// `variables` are set for it: "NORMA_STARTED_AS=./run".
inline pid_t start_norma(const std::filesystem::path& folder, const std::string& arguments,
                         const std::string& variables = "") {
  const std::string line = shell_line(folder, arguments, "exec env " + variables);
  const pid_t program = ::fork();
  if (program == 0) {
    ::execl("/bin/sh", "sh", "-c", line.c_str(), nullptr);
    ::_exit(127);
  }
  return program;
}

/// Waits for a program, and sends it `signal` as soon as `now()` is true. One that has not come to that after two
/// minutes, or has not ended two minutes later, is killed.
template <class Now>
Outcome signal_when(pid_t program, const std::filesystem::path& folder, int signal, const Now& now) {
  using Clock = std::chrono::steady_clock;
  Clock::time_point last = Clock::now() + std::chrono::minutes(2);
  bool sent = false;
  int status = 0;
  while (::waitpid(program, &status, WNOHANG) == 0) {
    if (!sent && now()) {
      ::kill(program, signal);
      sent = true;
      last = Clock::now() + std::chrono::minutes(2);
    } else if (Clock::now() > last) {
      ::kill(program, SIGKILL);
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  return outcome_in(folder, status);
}

/// Runs `norma ARGUMENTS` in `folder`, and sends it SIGINT as soon as it has printed `said`: never too early and never
/// too late, however busy the machine.
inline Outcome interrupt_norma(const std::filesystem::path& folder, const std::string& arguments,
                               const std::string& said, const std::string& variables = "") {
  return signal_when(start_norma(folder, arguments, variables), folder, SIGINT, [&] {
    return std::filesystem::exists(folder / "stdout.txt") &&
           read_file(folder / "stdout.txt").find(said) != std::string::npos;
  });
}

/// Runs `norma ARGUMENTS` in `folder` and kills it after that time, unless it has ended. The exit code is the program's
/// own: timeout(1) gives 124 for a program that was already ending when the time was over.
inline Outcome kill_norma(const std::filesystem::path& folder, const std::string& arguments,
                          std::chrono::milliseconds after) {
  const auto start = std::chrono::steady_clock::now();
  return signal_when(start_norma(folder, arguments), folder, SIGKILL,
                     [&] { return std::chrono::steady_clock::now() - start >= after; });
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
