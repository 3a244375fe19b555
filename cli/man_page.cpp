#include "cli/option_table.h"

#include "cli/command.h"
#include "core/version.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <sstream>
#include <string_view>

namespace norma::cli {

namespace {

/// The UTF-8 letter that begins at `i`; moves i to its last byte.
uint32_t letter_at(std::string_view text, size_t& i) {
  const auto first = static_cast<unsigned char>(text[i]);
  const int more = first >= 0xF0 ? 3 : first >= 0xE0 ? 2 : first >= 0xC0 ? 1 : 0;
  uint32_t letter = more == 0 ? first : first & (0x3FU >> static_cast<unsigned>(more));
  for (int k = 0; k < more && i + 1 < text.size(); ++k) {
    letter = letter << 6U | (static_cast<unsigned char>(text[++i]) & 0x3FU);
  }
  return letter;
}

/// Escapes text so that roff shows it unchanged.
std::string roff(std::string_view text) {
  std::string result;
  for (size_t i = 0; i < text.size(); ++i) {
    const uint32_t letter = letter_at(text, i);
    if (letter == '\\') {
      result += "\\e";
    } else if (letter == '-') {
      result += "\\-";  // a minus, which can be copied to the command line
    } else if (letter == '\'') {
      result += "\\(aq";
    } else if (letter == '`') {
      result += "\\(ga";
    } else if (letter == '^') {
      result += "\\(ha";
    } else if (letter == '~') {
      result += "\\(ti";
    } else if (letter >= 0x80) {
      result += fmt::format("\\[u{:04X}]", letter);
    } else {
      result += static_cast<char>(letter);
    }
  }
  return result.starts_with('.') ? "\\&" + result : result;
}

/// Lines that roff does not fill.
std::string as_it_stands(const std::string& text) {
  std::istringstream in(text);
  std::string result = ".PP\n.nf\n";
  for (std::string line; std::getline(in, line);) {
    result += line.empty() ? ".sp\n" : roff(line) + "\n";
  }
  return result + ".fi\n";
}

std::string option_entry(const OptionRow& option, const std::string& shown) {
  const std::string value = option.value.empty() || shown.empty() ? "" : " \\fI" + roff(option.value) + "\\fR";
  const std::string names = shown.empty() ? "\\fI" + roff(option.value) + "\\fR" : "\\fB" + roff(shown) + "\\fR";
  return fmt::format(".TP\n{}{}\n{}\n", names, value, roff(option.text));
}

/// The options under their headings.
std::string option_entries(const CommandRow& command) {
  std::string text;
  for (const OptionRow& word : command.words) {
    text += option_entry(word, "");
  }
  std::vector<std::string> headings;
  for (const OptionRow& option : command.options) {
    if (std::find(headings.begin(), headings.end(), option.heading) == headings.end()) {
      headings.push_back(option.heading);
    }
  }
  for (const std::string& heading : headings) {
    text += command.name.empty() ? "" : fmt::format(".PP\n{}:\n", roff(heading));
    for (const OptionRow& option : command.options) {
      text += option.heading == heading ? option_entry(option, option.shown) : "";
    }
  }
  return text;
}

struct Fact {
  std::string name;
  std::string text;
};

std::string entries(const std::vector<Fact>& facts) {
  std::string text;
  for (const Fact& fact : facts) {
    text += fmt::format(".TP\n\\fB{}\\fR\n{}\n", roff(fact.name), roff(fact.text));
  }
  return text;
}

}  // namespace

std::string man_page(const std::vector<CommandRow>& table) {
  const CommandRow& program = table.front();
  std::string text = fmt::format(
      ".\\\" Made by 'norma man' from the texts of --help.\n"
      ".TH NORMA 1 \"\" \"norma {}\" \"Norma\"\n.ad l\n.nh\n"
      ".SH NAME\nnorma \\- trains image networks, and compares their norm layers\n"
      ".SH SYNOPSIS\n\\fBnorma\\fR \\fISUBCOMMAND\\fR [\\fIOPTION\\fR \\fIVALUE\\fR] ...\n.br\n"
      "\\fBnorma\\fR \\fISUBCOMMAND\\fR \\fB\\-\\-help\\fR\n"
      ".SH DESCRIPTION\n{}\n",
      version(), roff(program.text));
  text += option_entries(program) + ".SH SUBCOMMANDS\n";
  for (const CommandRow& command : table) {
    if (command.name.empty()) {
      continue;
    }
    text += fmt::format(".SS norma {}\n{}\n", roff(command.name), roff(command.text));
    text += option_entries(command);
    text += command.footer.empty() ? "" : as_it_stands(command.footer);
  }
  text +=
      ".SH EXIT STATUS\n" +
      entries({{std::to_string(kSuccess), "all is done"},
               {std::to_string(kFailure), "something failed, and the rest is done; or the output cannot be written"},
               {std::to_string(kBadInput), "a mistake: wrong options, files or shapes"},
               {"128 + N", "ended by signal N, with what was done saved: 130 for Ctrl-C, 143 for SIGTERM"}});
  text += ".SH ENVIRONMENT\n" +
          entries({{"OMP_NUM_THREADS", "threads, as --threads"},
                   {"NORMA_DEVICE", "where tensors lie that no --device has placed: cpu, cuda or cuda:N"},
                   {"NORMA_SIMD", "the instructions of the kernels: avx512, avx2, sse4 or neon"},
                   {"NORMA_CONV",
                    "how convolutions on CPUs are computed where no --conv says it: exact or fast; or the "
                    "implementation: depthwise, onednn, eigen, winograd_4x4, winograd_2x2 or reference"},
                   {"NORMA_CUDNN_PLANS",
                    "timed, the default: convolutions on CUDA take the fastest of some plans, kept in a file; "
                    "heuristic: the first plan, without timing"},
                   {"NO_COLOR, TERM",
                    "where NO_COLOR is not empty, or TERM is dumb or missing, progress is plain lines, as where the "
                    "output is no terminal"}});
  return text + ".SH EXAMPLES" + as_it_stands(program.footer).substr(std::string_view(".PP").size());
}

}  // namespace norma::cli
