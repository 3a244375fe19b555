#include "cli/command.h"
#include "cli/help.h"
#include "core/version.h"
#include "session/output.h"

#include <fmt/format.h>

#include <span>
#include <sstream>
#include <string>
#include <string_view>

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

struct Meaning {
  const char* name;
  const char* meaning;
};

std::string entries(std::span<const Meaning> meanings) {
  std::string text;
  for (const auto& [name, meaning] : meanings) {
    text += entry(name, "", meaning);
  }
  return text;
}

constexpr Meaning kExitCodes[] = {
    {"0", "everything is done"},
    {"1",
     "a part failed and the rest is done (a run of compare, a row of bench, a check of check-norm, …), the loss of "
     "eval is not finite, --skip-bad-images left a class of eval without images, or the output could not be written"},
    {"2", "a mistake in options, files or shapes"},
    {"130, 143, 129", "ended by Ctrl-C, SIGTERM, SIGHUP; finished work is saved"}};

constexpr Meaning kVariables[] = {
    {"NO_COLOR, TERM",
     "if NO_COLOR is not empty, or TERM is dumb, empty or missing, progress is plain lines, as where the output is no "
     "terminal"},
    {"OMP_NUM_THREADS", "the number of threads, as --threads; all cores by default"},
    {"GOMP_SPINCOUNT, OMP_WAIT_POLICY",
     "how threads wait: by default they spin 10,000 times and then sleep; with OMP_WAIT_POLICY=active they never "
     "sleep"},
    {"NORMA_DEVICE", "the device where no --device is given: cpu, cuda or cuda:N"},
    {"NORMA_SIMD",
     "the instructions of our kernels, and the widest that oneDNN may use: avx512, avx2, sse4 or neon; norma info "
     "lists them"},
    {"NORMA_CONV",
     "exact or fast, where no --conv is given (docs/precision.md); or the implementation of convolutions, wherever it "
     "supports the case: depthwise, onednn, eigen, winograd_4x4, winograd_2x2 or reference (plain loops); on CUDA "
     "depthwise or cudnn"},
    {"NORMA_MATMUL", "the implementation of matrix products: onednn or eigen"},
    {"NORMA_NORM", "reference: norms by plain loops"},
    {"NORMA_ATTENTION", "reference: attention by plain loops"},
    {"NORMA_BFLOAT16", "how bfloat16 products are computed: primitives or through_float (docs/precision.md)"},
    {"NORMA_CUDNN_PLANS",
     "timed, the default: convolutions on CUDA take the fastest of some plans, kept in a file; heuristic: the first "
     "plan, without timing (docs/cuda.md)"},
    {"NORMA_CUDA_CACHING",
     "0: each tensor on CUDA has memory of its own, for compute-sanitizer; there are no CUDA graphs then"},
    {"NORMA_CUDA_SYNC", "1: the host waits for each kernel on CUDA, so that a fault shows at its kernel"},
    {"NORMA_CUDA", "OFF: ./run builds without CUDA even where there is a GPU"},
    {"NORMA_PYTHON", "the Python that checks the files of norma export"}};

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
  return text + ".SH EXIT STATUS\n" + entries(kExitCodes) + ".SH ENVIRONMENT\n" + entries(kVariables) +
         ".SH EXAMPLES\n" + as_it_stands(program.get_footer());
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
