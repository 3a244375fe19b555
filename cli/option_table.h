#pragma once

#include <string>
#include <vector>

namespace CLI {
class App;
}  // namespace CLI

namespace norma::cli {

// The content of --help as data, for completion and the man page.

/// The values that a shell can offer.
enum class ValueKind {
  none,    ///< a switch has no value
  text,    ///< a number, or one of OptionRow::choices
  file,    ///< the name of a file, or of a file or folder
  folder,  ///< the name of a folder
};

struct OptionRow {
  std::vector<std::string> names;    ///< as they are typed: "-b", "--batch-size"; "--flip", "--no-flip"
  std::string shown;                 ///< in --help: "-b, --batch-size", "--[no-]flip"
  std::string value;                 ///< the word for the value: "N", "FILE"; "" for a switch
  std::string text;                  ///< in --help: the description, with the default in brackets
  std::string heading;               ///< its heading in --help
  std::vector<std::string> choices;  ///< some values, or all
  ValueKind kind = ValueKind::none;
  bool several = false;  ///< takes several values, with commas between them
};

struct CommandRow {
  std::string name;  ///< "" for the program itself
  std::string text;
  std::string footer;
  std::vector<OptionRow> options;  ///< without those that have no name
  std::vector<OptionRow> words;    ///< words of the command line without an option's name
};

/// The program and its subcommands, in the order of --help.
std::vector<CommandRow> option_table(const CLI::App& program);

/// The names that an option of a command can have as its value; empty if it takes no names, or they are not known.
/// `name` without dashes: "norm".
std::vector<std::string> option_choices(const std::string& command, const std::string& name);

// Scripts that complete subcommands, options, the names that options take, and files.

std::string bash_completion(const std::vector<CommandRow>& table);
std::string zsh_completion(const std::vector<CommandRow>& table);
std::string fish_completion(const std::vector<CommandRow>& table);

/// norma(1) in roff (man macros), in ASCII only, from the texts of --help.
std::string man_page(const std::vector<CommandRow>& table);

}  // namespace norma::cli
