#include "cli/command.h"
#include "cli/help.h"
#include "core/version.h"
#include "session/output.h"

#include <fmt/format.h>

#include <sstream>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace norma::cli {

namespace {

/// Escapes text so that roff shows it unchanged.
std::string roff(std::string_view text) {
  std::string result = text.starts_with('.') ? "\\&" : "";
  for (const char c : text) {
    switch (c) {
      case '\\': result += "\\e"; break;
      case '-': result += "\\-"; break;  // a minus, which can be copied to the command line
      case '\'': result += "\\(aq"; break;
      case '`': result += "\\(ga"; break;
      case '^': result += "\\(ha"; break;
      case '~': result += "\\(ti"; break;
      default: result += c;
    }
  }
  return result;
}

/// Lines that roff does not fill.
std::string as_it_stands(const std::string& text) {
  std::istringstream in(text);
  std::string result = ".nf\n";
  for (std::string line; std::getline(in, line);) {
    result += line.empty() ? ".sp\n" : roff(line) + "\n";
  }
  return result + ".fi\n";
}

std::string entry(std::string_view bold, std::string_view italic, std::string_view text) {
  return fmt::format(".TP\n{}{}\n{}\n", bold.empty() ? "" : "\\fB" + roff(bold) + "\\fR",
                     italic.empty() ? "" : fmt::format("{}\\fI{}\\fR", bold.empty() ? "" : " ", roff(italic)),
                     roff(text));
}

/// The words of a command, then its options under their headings.
std::string entries(const CLI::App& app) {
  std::string text;
  for (const CLI::Option* word : app.get_options([](const CLI::Option* one) { return one->get_positional(); })) {
    text += entry("", word->get_type_name(), shown_text(*word));
  }
  for (const std::string& heading : app.get_groups()) {
    text += app.get_parent() == nullptr ? "" : fmt::format(".PP\n{}:\n", roff(heading));
    for (const CLI::Option* option : app.get_options(
             [&](const CLI::Option* one) { return !one->get_positional() && one->get_group() == heading; })) {
      text += entry(shown_names(*option), value_name(*option), shown_text(*option));
    }
  }
  return text;
}

using Meanings = std::vector<std::pair<std::string, std::string>>;

std::string entries(const Meanings& meanings) {
  std::string text;
  for (const auto& [name, meaning] : meanings) {
    text += entry(name, "", meaning);
  }
  return text;
}

/// norma(1) in roff (man macros), in UTF-8, from the texts of --help.
std::string man_page(const CLI::App& program) {
  std::string text = fmt::format(
      "'\\\" -*- coding: utf-8 -*-\n.\\\" Made by 'norma man' from the texts of --help.\n"
      ".TH NORMA 1 \"\" \"norma {}\" \"Norma\"\n.ad l\n.nh\n"
      ".SH NAME\nnorma \\- trains image networks, and compares their norm layers\n"
      ".SH SYNOPSIS\n\\fBnorma\\fR \\fISUBCOMMAND\\fR [\\fIOPTION\\fR \\fIVALUE\\fR] ...\n.br\n"
      "\\fBnorma\\fR \\fISUBCOMMAND\\fR \\fB\\-\\-help\\fR\n"
      ".SH DESCRIPTION\n{}\n{}.SH SUBCOMMANDS\n",
      version(), roff(program.get_description()), entries(program));
  for (const CLI::App* command : program.get_subcommands({})) {
    text += fmt::format(".SS norma {}\n{}\n{}", roff(command->get_name()), roff(command->get_description()),
                        entries(*command));
    text += command->get_footer().empty() ? "" : ".PP\n" + as_it_stands(command->get_footer());
  }
  text += ".SH EXIT STATUS\n" +
          entries(Meanings{
              {std::to_string(kSuccess), "all is done"},
              {std::to_string(kFailure), "something failed, and the rest is done; or the output cannot be written"},
              {std::to_string(kBadInput), "a mistake: wrong options, files or shapes"},
              {"128 + N", "ended by signal N, with what was done saved: 130 for Ctrl-C, 143 for SIGTERM"}});
  text +=
      ".SH ENVIRONMENT\n" +
      entries(Meanings{{"OMP_NUM_THREADS", "threads, as --threads"},
                       {"NORMA_DEVICE", "where tensors lie that no --device has placed: cpu, cuda or cuda:N"},
                       {"NORMA_SIMD", "the instructions of the kernels: avx512, avx2, sse4 or neon"},
                       {"NORMA_CONV",
                        "how convolutions on CPUs are computed where no --conv says it: exact or fast; or the "
                        "implementation: depthwise, onednn, eigen, winograd_4x4, winograd_2x2 or reference"},
                       {"NORMA_CUDNN_PLANS",
                        "timed, the default: convolutions on CUDA take the fastest of some plans, kept in a file; "
                        "heuristic: the first plan, without timing"},
                       {"NO_COLOR, TERM",
                        "where NO_COLOR is not empty, or TERM is dumb or missing, progress is plain lines, as where "
                        "the output is no terminal"}});
  return text + ".SH EXAMPLES\n" + as_it_stands(program.get_footer());
}

}  // namespace

Command add_man(CLI::App& program) {
  CLI::App& app = add_subcommand(program, "man", "Print the man page",
                                 "Examples:\n"
                                 "  norma man | man -l -\n"
                                 "  norma man > ~/.local/share/man/man1/norma.1");
  return {&app, [&program] {
            train::say("{}", man_page(program));
            return kSuccess;
          }};
}

}  // namespace norma::cli
