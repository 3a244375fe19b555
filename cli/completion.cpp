#include "base/nearest_name.h"
#include "cli/command.h"
#include "cli/help.h"
#include "session/output.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

// A shell asks `norma completion words WORD…` what may stand in the place of the last word, and gets lines: the kind of
// the answer (file, folder, list or words), and for the last two each word, with a tab and a description after it.
// So all that is known of options stays here, and the scripts of the shells are short.

namespace norma::cli {

namespace {

constexpr std::string_view kBash = R"(# Completion of norma for bash; made by 'norma completion bash'.
_norma() {
  local kind='' cur=${COMP_WORDS[COMP_CWORD]}
  if [[ $cur == '=' ]]; then cur=''; fi
  COMPREPLY=()
  { read -r kind; mapfile -t COMPREPLY; } < \
    <("${COMP_WORDS[0]}" completion words "${COMP_WORDS[@]:1:COMP_CWORD}" 2> /dev/null)
  COMPREPLY=("${COMPREPLY[@]%%$'\t'*}")
  case $kind in
    file) mapfile -t COMPREPLY < <(compgen -f -- "$cur") ;;
    folder) mapfile -t COMPREPLY < <(compgen -d -- "$cur") ;;
    list) compopt -o nospace 2> /dev/null ;;
  esac
  if [[ $kind == file || $kind == folder ]]; then compopt -o filenames 2> /dev/null; fi
}
complete -F _norma norma
)";

// In a folder of $fpath the zsh script is the function itself; by eval or source it has to be named.
constexpr std::string_view kZsh = R"(#compdef norma
# Completion of norma for zsh; made by 'norma completion zsh'.
_norma() {
  local kind
  local -a lines
  lines=("${(@f)$("${words[1]}" completion words "${(@)words[2,CURRENT]}" 2> /dev/null)}")
  kind=$lines[1]
  lines=("${(@)lines[2,-1]}")
  case $kind in
    file) compset -P '--*='; _files ;;
    folder) compset -P '--*='; _files -/ ;;
    list) compadd -S '' -- "${(@)lines%%$'\t'*}" ;;
    *) lines=("${(@)lines//:/\\:}"); lines=("${(@)lines/$'\t'/:}"); _describe word lines ;;
  esac
}
if [[ $funcstack[1] == _norma ]]; then
  _norma "$@"
else
  compdef _norma norma
fi
)";

constexpr std::string_view kFish = R"(# Completion of norma for fish; made by 'norma completion fish'.
function _norma_words
  set -l words (commandline -opc) (commandline -ct)
  set -l lines ($words[1] completion words $words[2..-1] 2> /dev/null)
  switch "$lines[1]"
    case file
      __fish_complete_path (commandline -ct)
    case folder
      __fish_complete_directories (commandline -ct)
    case '*'
      string join \n -- $lines[2..-1]
  end
end
complete -c norma -f -a '(_norma_words)'
)";

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
  CLI::App& app = add_subcommand(
      program, "completion", "Print what makes a shell complete the words of this command",
      "Examples:\n"
      "  source <(norma completion bash)                                        in ~/.bashrc\n"
      "  eval \"$(norma completion zsh)\"                                         in ~/.zshrc, after compinit\n"
      "  norma completion fish > ~/.config/fish/completions/norma.fish\n"
      "Subcommands, options, the names that options take (models, norms, datasets, …), files and folders.");
  const auto words = std::make_shared<std::vector<std::string>>();
  add_words(app, "SHELL", *words, "bash, zsh or fish").choices({"bash", "zsh", "fish"});
  return {&app, [words] {
            check(words->size() == 1, "completion", "expected one shell: bash, zsh or fish, got {}", words->size());
            const std::map<std::string, std::string_view> scripts{{"bash", kBash}, {"zsh", kZsh}, {"fish", kFish}};
            const auto script = scripts.find(words->front());
            check(script != scripts.end(), "completion", "{}",
                  unknown_name("shell", words->front(), {"bash", "zsh", "fish"}));
            train::say("{}", script->second);
            return kSuccess;
          }};
}

}  // namespace norma::cli
