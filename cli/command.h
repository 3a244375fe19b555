#pragma once

#include "base/error.h"
#include "cli/option.h"

#include <functional>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

namespace norma::cli {

// Exit codes.
inline constexpr int kSuccess = 0;
inline constexpr int kFailure = 1;   ///< something failed, and the rest was done; or the output cannot be written
inline constexpr int kBadInput = 2;  ///< an Error: wrong options, files or shapes
// A command that a signal ended, with everything saved, exits with 128 + the signal: 130 for Ctrl-C, 143 for SIGTERM,
// 129 for SIGHUP.

/// Thrown where a signal ends a command that has no result yet.
struct Interrupted {
  int code;  ///< interrupted_code()
};

/// Throws Error, in the name of a command, while another command of this process runs, until the lock is gone.
std::unique_lock<std::mutex> be_the_only_command(std::string_view name);

/// The text to type to start this program again: "./run" below that script, else the name that it was started by.
const std::string& program_name();

/// Prints "norma: TEXT" on the standard error, in one line, whatever file names it contains; a failure there is
/// ignored.
void complain(std::string_view text);

/// A subcommand: its options, and the function that runs after they are parsed and returns the exit code.
struct Command {
  CLI::App* app = nullptr;
  std::function<int()> run;
};

// Each command has its own file.
Command add_compare(CLI::App& program, const std::string& command_line);
Command add_train(CLI::App& program);
Command add_eval(CLI::App& program);
Command add_average(CLI::App& program);
Command add_convert(CLI::App& program);
Command add_export(CLI::App& program);
Command add_run(CLI::App& program);
Command add_audit(CLI::App& program, const std::string& command_line);
Command add_bench(CLI::App& program);
Command add_bench_norms(CLI::App& program, const std::string& command_line);
Command add_check_norm(CLI::App& program);
Command add_report(CLI::App& program);
Command add_data(CLI::App& program);
Command add_info(CLI::App& program);
Command add_completion(CLI::App& program);
/// `program` must live until it has run.
Command add_man(CLI::App& program);

/// A file of this folder, as it stands in the program.
struct EmbeddedText {
  std::string_view name;  ///< without its extension
  std::string_view text;
};
std::vector<EmbeddedText> help_texts();          ///< help/*.txt, by subcommand
std::vector<EmbeddedText> completion_scripts();  ///< completion/*, by shell
std::string_view man_end();                      ///< man.roff: the sections of the man page behind the subcommands
std::string_view onnxruntime_program();          ///< onnxruntime.py

/// The answer to a shell that completes the words after the program's name, up to the one that is being typed
/// (help.cpp).
std::string completed(const CLI::App& program, std::vector<std::string> words);

}  // namespace norma::cli
