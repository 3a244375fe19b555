#include "cli/option_table.h"

#include "core/quoting.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <string_view>

namespace norma::cli {

namespace {

/// `text` with a backslash before each of these characters.
std::string escaped(std::string_view text, std::string_view characters) {
  std::string result;
  for (const char c : text) {
    if (characters.find(c) != std::string_view::npos) {
      result += '\\';
    }
    result += c;
  }
  return result;
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

// --- zsh -------------------------------------------------------------------------------------------------------------

/// The part of _arguments for a value: ":NAME:action".
std::string zsh_value(const OptionRow& row) {
  std::string action = " ";  // anything
  if (row.kind == ValueKind::file) {
    action = "_files";
  } else if (row.kind == ValueKind::folder) {
    action = "_files -/";
  } else if (!row.choices.empty()) {
    std::vector<std::string> names;
    for (const std::string& name : row.choices) {
      names.push_back(escaped(name, "\\ :()[]"));
    }
    action = fmt::format(fmt::runtime(row.several ? "_sequence compadd - {}" : "({})"), fmt::join(names, " "));
  }
  return fmt::format(":{}:{}", escaped(row.value, ":"), action);
}

std::string zsh_options(const CommandRow& command) {
  std::string text;
  for (const OptionRow& option : command.options) {
    const std::string value = option.kind == ValueKind::none ? "" : zsh_value(option);
    // Giving one name of an option excludes its others.
    const std::string others = option.names.size() > 1 ? fmt::format("({})", fmt::join(option.names, " ")) : "";
    for (const std::string& name : option.names) {
      const std::string equals = option.kind != ValueKind::none && name.starts_with("--") ? "=" : "";
      text +=
          fmt::format(" \\\n        {}", shell_quoted(fmt::format("{}{}{}[{}]{}", others, name, equals,
                                                                  escaped(short_text(option.text), "[]:\\"), value)));
    }
  }
  for (OptionRow word : command.words) {
    word.several = false;  // each is a word of its own
    text += fmt::format(" \\\n        {}", shell_quoted("*" + zsh_value(word)));
  }
  return text;
}

// --- fish ------------------------------------------------------------------------------------------------------------

std::string fish_quoted(std::string_view text) {
  return "'" + escaped(text, "\\'") + "'";
}

/// The flags of `complete` for a value.
std::string fish_value(const OptionRow& row) {
  const std::string names = fmt::format("{}", fmt::join(row.choices, " "));
  switch (row.kind) {
    case ValueKind::none: return "";
    case ValueKind::file: return " -r -F";
    case ValueKind::folder: return " -x -a '(__fish_complete_directories)'";
    case ValueKind::text: break;
  }
  if (names.empty()) {
    return " -x";
  }
  return " -x -a " + fish_quoted(row.several ? "(__fish_append , " + names + ")" : names);
}

/// The flags of `complete` for words without an option's name.
std::string fish_word(const OptionRow& word) {
  switch (word.kind) {
    case ValueKind::file: return " -F";
    case ValueKind::folder: return " -a '(__fish_complete_directories)'";
    default: return " -a " + fish_quoted(fmt::format("{}", fmt::join(word.choices, " ")));
  }
}

}  // namespace

std::string zsh_completion(const std::vector<CommandRow>& table) {
  std::string text =
      "#compdef norma\n# Completion of norma for zsh; made by 'norma completion zsh'.\n\n_norma() {\n"
      "  local -a commands\n  commands=(\n";
  std::string cases;
  std::string own;
  for (const CommandRow& command : table) {
    if (command.name.empty()) {
      own = zsh_options(command);
      continue;
    }
    text += fmt::format("    {}\n", shell_quoted(escaped(command.name, ":\\") + ":" + command.text));
    cases += fmt::format("    {})\n      _arguments -s{}\n      ;;\n", command.name, zsh_options(command));
  }
  return text + "  )\n  if ((CURRENT == 2)); then\n    _describe -t commands subcommand commands\n    _arguments" +
         own + "\n    return\n  fi\n  local command=$words[2]\n  shift words\n  ((CURRENT--))\n  case $command in\n" +
         cases +
         "  esac\n}\n\n"
         "# As a file of $fpath it is the function itself; by eval or source it has to be named.\n"
         "if [[ $funcstack[1] == _norma ]]; then\n  _norma \"$@\"\nelse\n  compdef _norma norma\nfi\n";
}

std::string fish_completion(const std::vector<CommandRow>& table) {
  std::string text = "# Completion of norma for fish; made by 'norma completion fish'.\n\ncomplete -c norma -f\n";
  for (const CommandRow& command : table) {
    const std::string when =
        command.name.empty() ? " -n __fish_use_subcommand" : " -n '__fish_seen_subcommand_from " + command.name + "'";
    if (!command.name.empty()) {
      text += fmt::format("complete -c norma -n __fish_use_subcommand -a {} -d {}\n", command.name,
                          fish_quoted(command.text));
    }
    for (const OptionRow& option : command.options) {
      std::string names;
      for (const std::string& name : option.names) {
        names += name.starts_with("--") ? " -l " + name.substr(2) : " -s " + name.substr(1);
      }
      text += fmt::format("complete -c norma{}{}{} -d {}\n", when, names, fish_value(option),
                          fish_quoted(short_text(option.text)));
    }
    for (const OptionRow& word : command.words) {
      text += fmt::format("complete -c norma{}{}\n", when, fish_word(word));
    }
  }
  return text;
}

}  // namespace norma::cli
