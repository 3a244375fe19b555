#include "cli/option_table.h"

#include "core/quoting.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <map>
#include <string_view>
#include <utility>

namespace norma::cli {

namespace {

/// The words of a list for compgen -W, in single quotes.
std::string quoted(const std::vector<std::string>& words) {
  return shell_quoted(fmt::format("{}", fmt::join(words, " ")));
}

constexpr std::string_view kHead = R"(# Completion of norma for bash; made by 'norma completion bash'.

# The options of a subcommand, in `words`.
_norma_options() {
  case "$1" in
)";

constexpr std::string_view kValues = R"(  esac
}

# What stands behind an option of a subcommand: `kind` is text, list, file or folder, `words` what to choose from.
_norma_value() {
  kind='' words=''
  case "$1 $2" in
)";

// bash splits "--norm=batch" into three words.
constexpr std::string_view kTail = R"(  esac
}

_norma() {
  local cur=${COMP_WORDS[COMP_CWORD]} command='' option='' kind='' words='' values=0 i word prefix
  COMPREPLY=()
  if [[ $cur == '=' ]]; then cur=''; fi
  for ((i = 1; i < COMP_CWORD; ++i)); do
    word=${COMP_WORDS[i]}
    if [[ -z $command ]]; then
      if [[ $word != -* ]]; then command=$word; fi
    elif [[ $word == -* ]]; then
      option=$word values=0
    elif [[ $word != '=' ]]; then
      ((++values))
    fi
  done
  _norma_value "$command" "$option"
  if [[ -z $kind || $cur == -* ]] || [[ $kind != list && $values -gt 0 ]]; then
    _norma_value "$command" WORDS  # what needs no option
    if [[ -z $kind || $cur == -* ]]; then
      _norma_options "$command"
      mapfile -t COMPREPLY < <(compgen -W "$words" -- "$cur")
      return
    fi
  fi
  case $kind in
    file) mapfile -t COMPREPLY < <(compgen -f -- "$cur") ;;
    folder) mapfile -t COMPREPLY < <(compgen -d -- "$cur") ;;
    list)
      prefix=${cur%"${cur##*,}"}
      mapfile -t COMPREPLY < <(compgen -P "$prefix" -W "$words" -- "${cur##*,}")
      compopt -o nospace 2> /dev/null
      ;;
    *) mapfile -t COMPREPLY < <(compgen -W "$words" -- "$cur") ;;
  esac
  if [[ $kind == file || $kind == folder ]]; then compopt -o filenames 2> /dev/null; fi
}
complete -F _norma norma
)";

std::string_view kind_name(const OptionRow& row) {
  switch (row.kind) {
    case ValueKind::file: return "file";
    case ValueKind::folder: return "folder";
    default: return row.several ? "list" : "text";
  }
}

}  // namespace

std::string bash_completion(const std::vector<CommandRow>& table) {
  std::string text(kHead);
  using Value = std::pair<std::string_view, std::vector<std::string>>;
  std::map<Value, std::vector<std::string>> values;  // equal ones share a line
  for (const CommandRow& command : table) {
    std::vector<std::string> words;
    for (const OptionRow& option : command.options) {
      words.insert(words.end(), option.names.begin(), option.names.end());
      if (option.kind != ValueKind::none) {
        for (const std::string& name : option.names) {
          values[{kind_name(option), option.choices}].push_back(fmt::format("'{} {}'", command.name, name));
        }
      }
    }
    if (command.name.empty()) {
      for (const CommandRow& subcommand : table) {
        if (!subcommand.name.empty()) {
          words.push_back(subcommand.name);
        }
      }
    }
    for (const OptionRow& word : command.words) {
      values[{word.kind == ValueKind::text ? "text" : kind_name(word), word.choices}].push_back(
          fmt::format("'{} WORDS'", command.name));
    }
    text += fmt::format("    '{}') words={} ;;\n", command.name, quoted(words));
  }
  text += kValues;
  for (const auto& [value, options] : values) {
    text += fmt::format("    {}) kind={} words={} ;;\n", fmt::join(options, " | "), value.first, quoted(value.second));
  }
  return text + std::string(kTail);
}

}  // namespace norma::cli
