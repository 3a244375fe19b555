#include "cli/help.h"

#include "base/excerpt.h"
#include "base/lists.h"
#include "base/nearest_name.h"
#include "cli/command.h"
#include "core/version.h"
#include "session/output.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <sstream>

// A shell asks `norma completion words WORD…` what may stand in the place of the last word, and gets lines: the kind of
// the answer (file, folder, list or words), and for the last two each word, with a tab and a description after it.
// So all that is known of options stays here, and the scripts of the shells (completion/) are short. In a folder of
// $fpath the zsh script is the function itself; by eval or source it has to be named.

namespace norma::cli {

namespace {

constexpr size_t kLeft = 30;    // columns of the names
constexpr size_t kWidth = 100;  // columns in all

/// `left`, and `right` beside it (below it, if `left` is too long) in lines of whole words.
std::string entry(const std::string& left, const std::string& right) {
  std::string text = "  " + left;
  size_t column = columns_of(text);
  if (column + 2 > kLeft) {
    text += '\n';
    column = 0;
  }
  std::istringstream words(right);
  for (std::string word; words >> word;) {
    if (column > kLeft && column + 1 + columns_of(word) > kWidth) {
      text += '\n';
      column = 0;
    }
    const size_t gap = column < kLeft ? kLeft - column : 1;
    text += std::string(gap, ' ') + word;
    column += gap + columns_of(word);
  }
  return text + '\n';
}

/// The names of an option: "-b, --batch-size", "--[no-]flip".
std::string shown_names(const CLI::Option& option) {
  auto names = mapped(option.get_snames(), [](const std::string& name) { return "-" + name; });
  const std::vector<std::string>& long_names = option.get_lnames();
  const auto has = [&](const std::string& name) { return is_in(long_names, name); };
  for (const std::string& name : long_names) {
    if (has("no-" + name)) {
      names.push_back("--[no-]" + name);
    } else if (!(name.starts_with("no-") && has(name.substr(3)))) {
      names.push_back("--" + name);
    }
  }
  return fmt::format("{}", fmt::join(names, ", "));
}

/// The word for the option's value: "N", "FILE"; "" for a switch.
std::string value_name(const CLI::Option& option) {
  return option.get_type_size() == 0 ? "" : option.get_type_name();
}

/// The option's description, with its default in brackets.
std::string shown_text(const CLI::Option& option) {
  std::string text = option.get_description();
  if (option.get_required()) {
    text += " (required)";
  } else if (!option.get_default_str().empty() && option.get_type_size() != 0) {
    text += " [" + option.get_default_str() + "]";
  }
  return text;
}

class HelpFormatter : public CLI::Formatter {
 public:
  HelpFormatter() { column_width(kLeft); }

 protected:
  std::string make_option(const CLI::Option* option, bool is_positional) const override {
    const std::string names = is_positional ? "" : shown_names(*option);
    const std::string value = value_name(*option);
    return entry(names + (names.empty() || value.empty() ? "" : " ") + value, shown_text(*option));
  }
  std::string make_subcommand(const CLI::App* subcommand) const override {
    return entry(subcommand->get_name(), subcommand->get_description());
  }
};

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
  return text.append(man_end()) + as_it_stands(program.get_footer());
}

/// The part of a description that fits beside an option: up to the first semicolon or bracket.
std::string short_text(const std::string& text) {
  constexpr size_t kLongest = 70;
  std::string first = text.substr(0, std::min({text.find("; "), text.find(" ["), text.find(" (")}));
  if (first.size() > kLongest) {
    const size_t space = first.rfind(' ', kLongest);
    first = first.substr(0, space == std::string::npos ? kLongest : space) + " …";
  }
  return first;
}

/// True iff the option takes several values, with commas between them.
bool is_list(const CLI::Option& option) {
  return !option.get_positional() &&
         (option.get_expected_max() > 1 || (option.get_type_name() == "LIST" && !choices_of(option).empty()));
}

/// What a shell may put in the place of `now`, which begins an option's value. `head` stands before the value in the
/// same word: "--norm=".
std::string values_of(const CLI::Option& option, const std::string& now, const std::string& head) {
  const std::string type = option.get_type_name();
  if (type == "FOLDER" || type.starts_with("DIR")) {
    return "folder\n";
  }
  if (type == "PATH" || type.starts_with("CHECKPOINT") || type.starts_with("FILE") || type.find('.') != type.npos) {
    return "file\n";
  }
  const size_t comma = is_list(option) ? now.rfind(',') : std::string::npos;
  const std::string before = comma == std::string::npos ? "" : now.substr(0, comma + 1);
  std::string text = is_list(option) ? "list\n" : "words\n";
  for (const std::string& name : choices_of(option)) {
    text += (before + name).starts_with(now) ? head + before + name + "\n" : "";
  }
  return text;
}

/// The subcommands and options that begin with `now`.
std::string names_of(const CLI::App& app, const std::string& now) {
  std::string text = "words\n";
  const auto offer = [&](const std::string& name, const std::string& about) {
    text += name.starts_with(now) ? fmt::format("{}\t{}\n", name, about) : "";
  };
  for (const CLI::App* command : app.get_subcommands({})) {
    offer(command->get_name(), command->get_description());
  }
  for (const CLI::Option* option : app.get_options()) {
    for (const std::string& name : option->get_lnames()) {
      offer("--" + name, short_text(shown_text(*option)));
    }
    for (const std::string& letter : option->get_snames()) {
      offer("-" + letter, short_text(shown_text(*option)));
    }
  }
  return text;
}

}  // namespace

std::shared_ptr<CLI::Formatter> help_formatter() {
  return std::make_shared<HelpFormatter>();
}

Command add_man(CLI::App& program) {
  CLI::App& app = add_subcommand(program, "man");
  return {&app, [&program] {
            train::say("{}", man_page(program));
            return kSuccess;
          }};
}

std::string completed(const CLI::App& program, std::vector<std::string> words) {
  std::string now = words.empty() || words.back() == "=" ? "" : words.back();
  words.resize(words.empty() ? 0 : words.size() - 1);
  std::erase(words, "=");  // bash makes three words of --norm=batch
  const CLI::App* app = &program;
  const CLI::Option* option = nullptr;
  int values = 0;  // after the option
  for (const std::string& word : words) {
    if (word.starts_with('-')) {
      option = app->get_option_no_throw(word);
      values = 0;
    } else if (app != &program) {
      ++values;
    } else {
      const auto commands = program.get_subcommands([&](const CLI::App* one) { return one->get_name() == word; });
      if (commands.empty()) {
        return "words\n";
      }
      app = commands.front();
    }
  }
  if (const size_t equals = now.find('='); now.starts_with("--") && equals != std::string::npos) {
    option = app->get_option_no_throw(now.substr(0, equals));
    return option == nullptr ? "words\n" : values_of(*option, now.substr(equals + 1), now.substr(0, equals + 1));
  }
  if (!now.starts_with('-')) {
    if (option != nullptr && option->get_items_expected_max() > 0 && (values == 0 || is_list(*option))) {
      return values_of(*option, now, "");
    }
    const auto positional = app->get_options([](const CLI::Option* one) { return one->get_positional(); });
    if (!positional.empty()) {
      return values_of(*positional.front(), now, "");
    }
  }
  return names_of(*app, now);
}

Command add_completion(CLI::App& program) {
  CLI::App& app = add_subcommand(program, "completion");
  const auto words = std::make_shared<std::vector<std::string>>();
  add_words(app, "SHELL", *words, "bash, zsh or fish", {.choices = {"bash", "zsh", "fish"}});
  return {&app, [words] {
            check(words->size() == 1, "completion", "expected one shell: bash, zsh or fish, got {}", words->size());
            const std::vector<EmbeddedText> scripts = completion_scripts();
            const auto script = std::ranges::find(scripts, words->front(), &EmbeddedText::name);
            check(script != scripts.end(), "completion", "{}",
                  unknown_name("shell", words->front(), {"bash", "zsh", "fish"}));
            train::say("{}", script->text);
            return kSuccess;
          }};
}

}  // namespace norma::cli
