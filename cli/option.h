#pragma once

#include "cli/config_file.h"
#include "core/range.h"

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace norma::cli {

// The edge to CLI11. Only option.cpp, option_words.cpp, option_table.cpp, help.cpp and main.cpp include it: it takes
// longer to compile than a subcommand.

/// A handle on one option of a command. The setters change what --help shows of it.
class Option {
 public:
  Option() = default;
  explicit Option(CLI::Option* option) : option_(option) {}

  Option& type_name(const std::string& name);    ///< what stands for the value: "N", "FILE"
  Option& default_str(const std::string& text);  ///< what holds where the option is not given
  Option& group(const std::string& heading);
  /// The command line must have it.
  Option& required();
  /// True iff the command line, parsed by now, has it.
  [[nodiscard]] bool given() const;
  /// The same, but false where a line of a file has it.
  [[nodiscard]] bool typed() const;

 private:
  CLI::Option* option_ = nullptr;
};

/// Adds a subcommand to the program; `footer` stands at the end of its help.
CLI::App& add_subcommand(CLI::App& program, const std::string& name, const std::string& description,
                         const std::string& footer = "");
/// The option of a command that has this name, "--model".
Option option_of(CLI::App& app, const std::string& name);

// Every option of every command is made by one of these functions, so that all are refused alike:
// "COMMAND: --name: expected …, got …". An option that takes one value is an error where it comes twice.

/// A number of type int64_t, uint64_t or double.
template <class T>
Option add_value(CLI::App& app, const std::string& names, const Range<T>& range, std::function<void(T)> take,
                 const std::string& description);
/// A word: `take` returns false for one that is not `what`.
Option add_item(CLI::App& app, const std::string& names, const std::string& what,
                std::function<bool(const std::string&)> take, const std::string& description);
/// A text that is not empty; `what` is "a name", "a norm".
Option add_text(CLI::App& app, const std::string& names, const std::string& what,
                std::function<void(const std::string&)> take, const std::string& description);
Option add_text(CLI::App& app, const std::string& names, const std::string& what, std::string& text,
                const std::string& description);
/// The same for the name of a file or folder.
Option add_path(CLI::App& app, const std::string& names, std::string& path, const std::string& description);
/// Texts, separated by commas that stand outside brackets ("batch[eps=1e-3,momentum=0.1],layer2d") or as words; they
/// take the place of what is in `items`.
Option add_list(CLI::App& app, const std::string& names, const std::string& what, std::vector<std::string>& items,
                const std::string& description);
/// The same for items of another kind: `begin` is called first, and `take` for one after another; it returns false for
/// a text that is no value.
Option add_items(CLI::App& app, const std::string& names, const std::string& what, std::function<void()> begin,
                 std::function<bool(const std::string&)> take, const std::string& description);
/// The same for numbers.
template <class T>
Option add_values(CLI::App& app, const std::string& names, const Range<T>& range, std::vector<T>& items,
                  const std::string& description);
/// What stands on the command line without the name of an option, any number of it; `name` is for the help.
Option add_words(CLI::App& app, const std::string& name, std::vector<std::string>& items,
                 const std::string& description);
/// "--name", or "--name,!--no-name" for one that can be turned off.
Option add_switch(CLI::App& app, const std::string& names, std::function<void(bool)> take,
                  const std::string& description);
Option add_switch(CLI::App& app, const std::string& names, bool& value, const std::string& description);

inline constexpr const char* kConfigOption = "--config";
/// --config, whose lines main() puts behind the command line's words.
Option add_config(CLI::App& app);

/// The items of a list, separated by commas that stand outside brackets.
std::vector<std::string> split_list(const std::string& text);

/// Of these options of a command at most one may be given.
void exclude(CLI::App& app, const std::vector<std::string>& names);

/// Before parsing: throws Error for an option without its value, and for a switch with one. Returns the words with
/// "--name=" cut in two, which CLI11 takes for an option whose value comes next.
std::vector<std::string> checked_words(const CLI::App& app, const std::vector<std::string>& words);
/// What stands behind an option, "--config", in words that may be unchecked yet; "" where they do not have it.
std::string value_in(const std::vector<std::string>& words, const std::string& name);
/// `words`, as checked_words() returns them, and behind them the options of these lines, but for those that the words
/// have themselves or exclude: what came first holds. Throws Error for a line that names no option, one that belongs on
/// the command line only, and a value that a switch cannot have.
std::vector<std::string> with_lines(const CLI::App& app, const std::vector<std::string>& words,
                                    const std::vector<ConfigLine>& lines);
/// After parsing: throws Error for a switch that came twice and for options that exclude each other.
void check_given(const CLI::App& app);

}  // namespace norma::cli
