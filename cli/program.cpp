#include "cli/program.h"

#include "base/excerpt.h"
#include "base/lists.h"
#include "base/nearest_name.h"
#include "base/quoting.h"
#include "cli/command.h"
#include "cli/help.h"
#include "cli/option.h"
#include "cli/run_files.h"
#include "core/simd/target.h"
#include "core/version.h"
#include "session/output.h"

#include <fmt/format.h>
#include <unistd.h>
#include <CLI/CLI.hpp>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <new>
#include <sstream>

namespace norma::cli {

namespace {

std::string started_as = "norma";

/// The command line in a form to type again.
std::string command_line(const std::vector<std::string>& words) {
  std::string text = "norma";
  for (const std::string& word : words) {
    text += " " + shell_word(plain_text(word));  // results.json, where the line goes, has UTF-8 alone
  }
  return text;
}

std::vector<std::string> option_names(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::Option* option : app.get_options()) {
    for (const std::string& name : option->get_lnames()) {
      names.push_back("--" + name);
    }
    for (const std::string& name : option->get_snames()) {
      names.push_back("-" + name);
    }
  }
  return names;
}

std::vector<std::string> subcommand_names(const CLI::App& app) {
  return mapped(app.get_subcommands({}), &CLI::App::get_name);
}

/// The words of the command line, the last one first, as CLI11 takes them. A subcommand's words are checked, and its
/// options get what is in files.
std::vector<std::string> parsed_words(CLI::App& program, std::vector<std::string> words) {
  for (CLI::App* subcommand : program.get_subcommands({})) {
    if (!words.empty() && words.front() == subcommand->get_name()) {
      words = checked_words(*subcommand, {words.begin() + 1, words.end()});
      for (const std::vector<ConfigLine>& lines : lines_of_files(subcommand->get_name(), words)) {
        give_lines(*subcommand, words, lines);
      }
      words.insert(words.begin(), subcommand->get_name());
      break;
    }
  }
  std::ranges::reverse(words);
  return words;
}

/// An error text for words that no option took; "" if there are none.
std::string complaint(const CLI::App& program) {
  const auto chosen = program.get_subcommands();
  const CLI::App& app = chosen.empty() ? program : *chosen.front();
  std::vector<std::string> rest = program.remaining();
  if (rest.empty() && !chosen.empty()) {
    rest = chosen.front()->remaining();
  }
  if (rest.empty()) {
    return "";
  }
  // A wrong option leaves its value behind, too; the message names the option.
  const auto option = std::ranges::find_if(rest, [](const std::string& word) { return word[0] == '-'; });
  const std::string where = chosen.empty() ? "" : app.get_name() + ": ";
  if (option != rest.end() && (!chosen.empty() || option == rest.begin())) {
    const std::string name = option->substr(0, option->find('='));
    return where + unknown_name("option", name, option_names(app));
  }
  if (chosen.empty()) {
    return unknown_name("subcommand", rest.front(), subcommand_names(app));
  }
  return fmt::format("{}unexpected argument '{}'", where, rest.front());
}

/// `code`, or kFailure if some of the output could not be written.
int checked_output(int code) {
  const int error = train::output_error();
  if (error == 0) {
    return code;
  }
  complain(fmt::format("cannot write to the standard output: {}", std::strerror(error)));
  return code == kSuccess ? kFailure : code;
}

}  // namespace

void note_program_name(std::string name) {
  started_as = std::move(name);
}

std::unique_lock<std::mutex> be_the_only_command(std::string_view name) {
  static std::mutex running;
  std::unique_lock lock(running, std::try_to_lock);
  check(lock.owns_lock(), name, "expected to be the only command of the process that runs");
  return lock;
}

int run_command(const std::vector<std::string>& words) {
  const std::unique_lock<std::mutex> lock = be_the_only_command(words.empty() ? "norma" : words.front());
  forget_options();  // those of a command before
  CLI::App program("", "norma");
  describe(program, "norma");
  program.set_version_flag("--version", fmt::format("norma {}", version()), "show the version");
  program.set_help_flag("-h,--help", "show this help");
  program.allow_extras();
  program.require_subcommand(0, 1);
  program.formatter(help_formatter());
  load_plugins(words);
  const std::string line = command_line(words);
  const std::vector<Command> commands = {add_compare(program, line), add_train(program),
                                         add_eval(program),          add_average(program),
                                         add_convert(program),       add_export(program),
                                         add_run(program),           add_audit(program, line),
                                         add_bench(program),         add_bench_norms(program, line),
                                         add_check_norm(program),    add_report(program),
                                         add_data(program),          add_info(program),
                                         add_completion(program),    add_man(program)};
  for (const Command& command : commands) {
    command.app->allow_extras();
  }

  if (words.size() > 1 && words[0] == "completion" && words[1] == "words") {  // those of any command, even unfinished
    train::say("{}", completed(program, {words.begin() + 2, words.end()}));
    return kSuccess;
  }
  try {
    program.parse(parsed_words(program, words));
  } catch (const CLI::Success& e) {  // --help, --version
    std::ostringstream text;
    const int code = program.exit(e, text, text);
    train::say("{}", text.str());
    return code;
  } catch (const CLI::ParseError& e) {
    const std::string unknown = complaint(program);
    const auto chosen = program.get_subcommands();
    const std::string where = chosen.empty() ? "" : chosen.front()->get_name() + ": ";
    throw Error(unknown.empty() ? where + e.what() : unknown);
  }
  if (const std::string unknown = complaint(program); !unknown.empty()) {
    throw Error(unknown);
  }
  for (const CLI::App* chosen : program.get_subcommands()) {
    check_given(*chosen);
  }
  simd::target();  // finds a wrong NORMA_SIMD before the work begins
  for (const Command& command : commands) {
    if (command.app->parsed()) {
      return command.run();
    }
  }
  train::say("{}", program.help());
  return kBadInput;
}

namespace {

std::atomic<bool> at_work = false;

/// exit() in the middle of the work, which Norma does not call, must not end it with the status of success.
void end_half_done() {
  if (at_work) {
    constexpr std::string_view kText = "norma: ended by a call of exit() in the middle of the work: by a plug-in?\n";
    [[maybe_unused]] const ssize_t written = ::write(STDERR_FILENO, kText.data(), kText.size());
    ::_exit(kFailure);
  }
}

}  // namespace

int run_program(const std::vector<std::string>& words) {
  int code = kBadInput;
  [[maybe_unused]] static const int registered = std::atexit(end_half_done);
  at_work = true;
  try {
    code = run_command(words);
  } catch (const Interrupted& by) {  // the line of the signal is printed
    code = by.code;
  } catch (const std::bad_alloc&) {
    complain("out of memory");
  } catch (const std::filesystem::filesystem_error& e) {
    complain(fmt::format("{}: {}: {}", words.front(), e.path1().string(), e.code().message()));
  } catch (const std::exception& e) {
    std::string text = e.what();
    if (constexpr std::string_view kOwner = "train: "; text.starts_with(kOwner) && !words.empty()) {
      text.replace(0, kOwner.size(), words.front() + ": ");  // data and compare check the options of train, too
    }
    complain(text);
  } catch (...) {
    complain("something that is no std::exception was thrown: by a plug-in?");
  }
  at_work = false;
  return checked_output(code);
}

void complain(std::string_view text) {
  try {
    std::fputs(fmt::format("norma: {}\n", excerpt(text, text.size())).c_str(), stderr);
  } catch (const std::bad_alloc&) {
    std::fputs("norma: out of memory\n", stderr);
  }
}

const std::string& program_name() {
  return started_as;
}

}  // namespace norma::cli
