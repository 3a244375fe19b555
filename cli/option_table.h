#pragma once

#include <string>
#include <vector>

namespace CLI {
class App;
}  // namespace CLI

namespace norma::cli {

// What --help says, as data: completion and man page are made of it.

/// What a shell can offer for a value.
enum class ValueKind {
  none,    ///< a switch has no value
  text,    ///< a number, or one of OptionRow::choices
  file,    ///< the name of a file, or of a file or folder
  folder,  ///< the name of a folder
};

struct OptionRow {
  std::vector<std::string> names;    ///< as they are typed: "-b", "--batch-size"; "--flip", "--no-flip"
  std::string shown;                 ///< in --help: "-b, --batch-size", "--[no-]flip"
  std::string value;                 ///< what stands for the value: "N", "FILE"; "" for a switch
  std::string text;                  ///< in --help: what it does, with the default in brackets
  std::string heading;               ///< under which --help shows it
  std::vector<std::string> choices;  ///< some values, or all
  ValueKind kind = ValueKind::none;
  bool several = false;  ///< takes several values, with commas between them
};

struct CommandRow {
  std::string name;  ///< "" for the program itself
  std::string text;
  std::string footer;
  std::vector<OptionRow> options;  ///< without those that have no name
  std::vector<OptionRow> words;    ///< what stands on the command line without the name of an option
};

/// The program and its subcommands, in the order of --help.
std::vector<CommandRow> option_table(const CLI::App& program);

/// Values that an option of a command can have, for those that take names; none: it does not, or they are not known.
/// `name` without dashes: "norm".
std::vector<std::string> option_choices(const std::string& command, const std::string& name);

}  // namespace norma::cli
