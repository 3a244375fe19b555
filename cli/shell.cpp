#include "cli/command.h"
#include "cli/option_table.h"
#include "core/nearest_name.h"
#include "session/output.h"

#include <memory>
#include <string>
#include <vector>

namespace norma::cli {

Command add_completion(CLI::App& program) {
  CLI::App& app = add_subcommand(
      program, "completion", "Print what makes a shell complete the words of this command",
      "Examples:\n"
      "  source <(norma completion bash)                                        in ~/.bashrc\n"
      "  eval \"$(norma completion zsh)\"                                         in ~/.zshrc, after compinit\n"
      "  norma completion fish > ~/.config/fish/completions/norma.fish\n"
      "Subcommands, options, the names that options take (models, norms, datasets, …), files and folders.");
  const auto shells = std::make_shared<std::vector<std::string>>();
  add_words(app, "SHELL", *shells, "bash, zsh or fish");
  return {&app, [shells, &program] {
            check(shells->size() == 1, "completion", "expected one shell: bash, zsh or fish, got {}", shells->size());
            const std::string& shell = shells->front();
            const std::vector<CommandRow> table = option_table(program);
            if (shell == "bash") {
              train::say("{}", bash_completion(table));
            } else if (shell == "zsh") {
              train::say("{}", zsh_completion(table));
            } else {
              check(shell == "fish", "completion", "{}", unknown_name("shell", shell, {"bash", "zsh", "fish"}));
              train::say("{}", fish_completion(table));
            }
            return kSuccess;
          }};
}

Command add_man(CLI::App& program) {
  CLI::App& app = add_subcommand(program, "man", "Print the man page",
                                 "Examples:\n"
                                 "  norma man | man -l -\n"
                                 "  norma man > ~/.local/share/man/man1/norma.1");
  return {&app, [&program] {
            train::say("{}", man_page(option_table(program)));
            return kSuccess;
          }};
}

}  // namespace norma::cli
