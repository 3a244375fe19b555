#pragma once

#include "base/range.h"
#include "train/recipe_option.h"

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace norma::cli {

/// One line of a file of options, as run_files.h reads them.
struct ConfigLine {
  std::string name;                ///< of the option without its dashes: "batch-size"
  std::vector<std::string> items;  ///< of an array, or the value alone, as words of the command line
  bool on_or_off = false;          ///< the value is "true" or "false" of TOML, as switches have them
  std::string place;               ///< "r50.toml:2:1", for error texts

  /// The value in a word, the items of an array with commas between them.
  [[nodiscard]] std::string value() const;
};

// The edge to CLI11. Only option.cpp, help.cpp and program.cpp include CLI11 (and info.cpp its version), since it takes
// longer to compile than a subcommand.

/// A handle on one option of a command.
class Option {
 public:
  Option() = default;
  Option(const CLI::App& app, CLI::Option* option) : app_(&app), option_(option) {}

  /// Makes it an error if the command line lacks it.
  void require();
  /// True iff the parsed command line, or a line of a file, has it.
  [[nodiscard]] bool given() const;
  /// True iff the command line itself has it.
  [[nodiscard]] bool typed() const;

 private:
  const CLI::App* app_ = nullptr;
  CLI::Option* option_ = nullptr;
};

/// What --help and shells show of an option, beside its names and description.
struct OptionText {
  std::string value = {};                 ///< the word for the value: "N", "FILE"
  std::string otherwise = {};             ///< the default
  std::string heading = {};               ///< "": that of all options without one
  std::vector<std::string> choices = {};  ///< values that a shell offers: some, or all
  bool required = false;                  ///< an error if the command line lacks it
};

/// Gives the program, or a subcommand, the texts of help/NAME.txt: its description in a line, and what stands at the
/// end of its help, before `more`.
void describe(CLI::App& app, const std::string& name, const std::string& more = "");
/// Adds a subcommand to the program.
CLI::App& add_subcommand(CLI::App& program, const std::string& name, const std::string& more = "");
const std::string& command_name(const CLI::App& app);
/// The option of a command that has this name, "--model".
Option option_of(CLI::App& app, const std::string& name);

// These functions make every option of every command, so that all are refused in one form: "COMMAND: --name: expected
// …, got …". An option that takes one value is an error if it comes twice.

/// Takes a word; returns false for one that is not as expected.
using TakeWord = std::function<bool(const std::string&)>;

/// An option that a table describes; its words go to the row's place. `exclude` is left to the caller.
Option add(CLI::App& app, const train::OptionRow& row);
/// A word; `what` says what is expected.
Option add_item(CLI::App& app, const std::string& names, const std::string& what, TakeWord take,
                const std::string& description, const OptionText& text = {});
/// A whole number, or one that may be absent.
template <class T>
Option add_value(CLI::App& app, const std::string& names, const Range<int64_t>& range, T& value,
                 const std::string& description, const OptionText& text = {}) {
  return add_item(app, names, to_string(range), train::into(value, range), description, text);
}
/// A text that is not empty; `what` is "a name", "a norm".
inline Option add_text(CLI::App& app, const std::string& names, const std::string& what, std::string& value,
                       const std::string& description, const OptionText& text = {}) {
  return add_item(app, names, what, train::into(value), description, text);
}
/// The name of a file or folder.
inline Option add_path(CLI::App& app, const std::string& names, std::string& path, const std::string& description,
                       const OptionText& text = {}) {
  return add_item(app, names, "a path", train::into(path), description, text);
}
/// Several, separated by commas outside brackets ("batch[eps=1e-3,momentum=0.1],layer2d") or given as words: calls
/// `begin` first, then `take` for each.
Option add_items(CLI::App& app, const std::string& names, const std::string& what, std::function<void()> begin,
                 TakeWord take, const std::string& description, const OptionText& text = {});
/// Texts; they replace those in `items`.
inline Option add_list(CLI::App& app, const std::string& names, const std::string& what,
                       std::vector<std::string>& items, const std::string& description, const OptionText& text = {}) {
  const auto take = [&items](const std::string& item) { return train::into(items.emplace_back())(item); };
  return add_items(
      app, names, what, [&items] { items.clear(); }, take, description, text);
}
inline constexpr const char* kMeasured = "What is measured";
/// Names of what is measured, some of `choices`.
inline Option add_names(CLI::App& app, const std::string& names, std::vector<std::string>& items,
                        const std::string& otherwise, const std::vector<std::string>& choices,
                        const std::string& description) {
  return add_list(app, names, "a name", items, description,
                  {.value = "LIST", .otherwise = otherwise, .heading = kMeasured, .choices = choices});
}
/// Whole numbers, likewise.
inline Option add_values(CLI::App& app, const std::string& names, const Range<int64_t>& range,
                         std::vector<int64_t>& items, const std::string& description, const OptionText& text = {}) {
  const auto take = [range, &items](const std::string& item) { return train::into(items.emplace_back(), range)(item); };
  return add_items(
      app, names, to_string(range), [&items] { items.clear(); }, take, description, text);
}
/// Texts as they are, each after the option's name, which may come several times; they replace those in `items`.
Option add_repeated(CLI::App& app, const std::string& names, const std::string& what, std::vector<std::string>& items,
                    const std::string& description, const OptionText& text = {});
/// Words of the command line without an option's name, any number of them; `name` is for the help.
Option add_words(CLI::App& app, const std::string& name, std::vector<std::string>& items,
                 const std::string& description, const OptionText& text = {});
/// A switch: "--name", or "--name,!--no-name" for one that can be turned off. `take` gets "true" or "false".
Option add_switch(CLI::App& app, const std::string& names, TakeWord take, const std::string& description,
                  const OptionText& text = {});
inline Option add_switch(CLI::App& app, const std::string& names, bool& value, const std::string& description,
                         const OptionText& text = {}) {
  return add_switch(app, names, train::into(value), description, text);
}
/// The items of a list of add_items().
std::vector<std::string> split_list(const std::string& text);

inline constexpr const char* kConfigOption = "--config";
/// --config, whose lines run_command() gives to the options.
Option add_config(CLI::App& app, const OptionText& text);

/// Allows at most one of two options of a command.
void exclude(CLI::App& app, const std::string& one, const std::string& other);

// CLI11 has no place for these facts about an option.

/// What its value must be, for error texts: "a whole number from 1 to 8"; "" for a switch.
const std::string& expected_of(const CLI::Option& option);
/// OptionText::choices.
const std::vector<std::string>& choices_of(const CLI::Option& option);
/// Forgets the facts about the options of an earlier program.
void forget_options();

// What run_command() does with the words of the command line, and the lines of files, around CLI11's parsing.

/// A value for a message: on one line, and shortened if it is long.
std::string shown(const std::string& text);

/// Checks the words before parsing: throws Error for an option without its value, and for a switch with one. Returns
/// the words, with a word "--name=" (an empty value) cut into "--name" and "": CLI11 would take the next word for the
/// value.
std::vector<std::string> checked_words(const CLI::App& app, const std::vector<std::string>& words);
/// The values after an option, "--config", in words that may be unchecked, and the first of them; "" if they lack the
/// option.
std::vector<std::string> values_in(const std::vector<std::string>& words, const std::string& name);
std::string value_in(const std::vector<std::string>& words, const std::string& name);
/// Gives the options of these lines their values, before parsing. Options that the words or an earlier file have or
/// exclude are left out: the first one holds. Throws Error for a line that names no option, one that belongs only on
/// the command line, and a value that a switch cannot have.
void give_lines(CLI::App& app, const std::vector<std::string>& words, const std::vector<ConfigLine>& lines);
/// Checks the options after parsing: throws Error for a switch that came twice.
void check_given(const CLI::App& app);

}  // namespace norma::cli
