#include "cli/command.h"
#include "cli/help.h"
#include "cli/option.h"
#include "cli/plugins.h"
#include "cli/run_files.h"
#include "core/excerpt.h"
#include "core/nearest_name.h"
#include "core/quoting.h"
#include "core/simd/target.h"
#include "core/spin_briefly.h"
#include "core/version.h"
#include "train/output.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <pthread.h>
#include <unistd.h>
#include <CLI/CLI.hpp>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <memory>
#include <new>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

namespace norma::cli {

namespace {

std::string started_as = "norma";

/// The command line in a form to type again.
std::string command_line(int argc, char** argv) {
  std::string text = "norma";
  for (int i = 1; i < argc; ++i) {
    text += " " + shell_word(argv[i]);
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
  std::vector<std::string> names;
  for (const CLI::App* subcommand : app.get_subcommands({})) {
    names.push_back(subcommand->get_name());
  }
  return names;
}

/// The words of the command line, the last one first, as CLI11 takes them; a subcommand's words are checked.
std::vector<std::string> parsed_words(const CLI::App& program, int argc, char** argv) {
  std::vector<std::string> words(argv + std::min(argc, 1), argv + argc);
  for (const CLI::App* subcommand : program.get_subcommands({})) {
    if (!words.empty() && words.front() == subcommand->get_name()) {
      words = checked_words(*subcommand, {words.begin() + 1, words.end()});
      for (const std::vector<ConfigLine>& lines : lines_of_files(subcommand->get_name(), words)) {
        words = with_lines(*subcommand, words, lines);
      }
      words.insert(words.begin(), subcommand->get_name());
      break;
    }
  }
  std::reverse(words.begin(), words.end());
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
  const auto option = std::find_if(rest.begin(), rest.end(), [](const std::string& word) { return word[0] == '-'; });
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

/// Stores how the program was started: the script `run` uses a long path, and passes its own name on.
void note_program_name(const char* own) {
  const char* script = std::getenv("NORMA_STARTED_AS");
  if (script != nullptr && *script != '\0') {
    started_as = script;
  } else if (own != nullptr && *own != '\0') {
    started_as = own;
  }
}

int fail_with(const std::string& text) {
  complain(text);
  return kBadInput;
}

/// Limits the stack of threads started from now on. Loops of ours and of the libraries need a small part of the
/// system's 8 MB. For 64 threads those are half a gigabyte of addresses, which may be limited (ulimit -v).
void set_thread_stack_size() {
  constexpr size_t kStackBytes = size_t{2} << 20U;
  pthread_attr_t attributes;
  if (pthread_attr_init(&attributes) == 0) {
    pthread_attr_setstacksize(&attributes, kStackBytes);
    pthread_setattr_default_np(&attributes);
    pthread_attr_destroy(&attributes);
  }
}

/// Replaces closed standard streams by ones on which reading and writing fail. Otherwise a file could get such a
/// stream's number, and printed text would go into it.
void occupy_standard_streams() {
  for (const int descriptor : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    if (::fcntl(descriptor, F_GETFD) == -1) {
      // This gets the lowest free number, which is this one.
      [[maybe_unused]] const int opened =
          ::open("/dev/null", descriptor == STDIN_FILENO ? O_WRONLY : O_RDONLY | O_CLOEXEC);
    }
  }
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

int run(int argc, char** argv) {
  CLI::App program(
      "Norma trains image networks with one norm layer or another, and shows what each costs and what it buys.",
      "norma");
  program.footer(
      "Examples:\n"
      "  norma compare                                  ResNet-50 and ConvNeXt with three norms; writes a report\n"
      "  norma compare --quick                          a first report in about three minutes\n"
      "  norma compare --models resnet18 --norms batch,group:8,instance\n"
      "  norma train --model resnet18 --norm layer2d --epochs 5\n"
      "  norma eval --checkpoint runs/train-20261121-140307/last.safetensors\n"
      "'norma SUBCOMMAND --help' explains the options of each.");
  program.set_version_flag("--version", fmt::format("norma {}", version()), "show the version");
  program.set_help_flag("-h,--help", "show this help");
  program.allow_extras();
  program.require_subcommand(0, 1);
  program.formatter(std::make_shared<HelpFormatter>());
  load_plugins({argv + std::min(argc, 1), argv + argc});
  const std::string line = command_line(argc, argv);
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

  try {
    program.parse(parsed_words(program, argc, argv));
  } catch (const CLI::Success& e) {  // --help, --version
    std::ostringstream text;
    const int code = program.exit(e, text, text);
    train::say("{}", text.str());
    return code;
  } catch (const CLI::ParseError& e) {
    const std::string unknown = complaint(program);
    const auto chosen = program.get_subcommands();
    const std::string where = chosen.empty() ? "" : chosen.front()->get_name() + ": ";
    return fail_with(unknown.empty() ? where + e.what() : unknown);
  }
  if (const std::string unknown = complaint(program); !unknown.empty()) {
    return fail_with(unknown);
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

}  // namespace

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

int main(int argc, char** argv) {
  norma::spin_briefly(argv);
  norma::cli::occupy_standard_streams();
  norma::cli::set_thread_stack_size();
  std::signal(SIGPIPE, SIG_IGN);  // a closed pipe becomes an error of writing, so that the rest of the work is kept
  norma::cli::note_program_name(argc > 0 ? argv[0] : nullptr);
  int code = norma::cli::kBadInput;
  try {
    code = norma::cli::run(argc, argv);
  } catch (const std::bad_alloc&) {
    norma::cli::complain("out of memory");
  } catch (const std::exception& e) {
    norma::cli::complain(e.what());
  }
  return norma::cli::checked_output(code);
}
