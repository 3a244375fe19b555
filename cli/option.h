#pragma once

#include "core/range.h"

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace norma::cli {

/// One line of a configuration file: an option, and its value as it would stand on the command line.
struct ConfigLine {
  std::string name;                     ///< of the option without its dashes: "batch-size"
  std::string value;                    ///< the items of an array with commas between them
  std::vector<std::string> items = {};  ///< of an array, or the value alone
  bool on_or_off = false;               ///< the value is "true" or "false" of TOML, as switches have them
  std::string place;                    ///< "r50.toml:2:1", for error texts
};

/// The lines of a TOML file without tables, in its order: `batch-size = 128`, `flip = true`, `norms = ["batch",
/// "group:8"]`. Throws Error of `op` that names file, line and column for a file that cannot be read, for invalid TOML,
/// and for a value that no option can have.
std::vector<ConfigLine> read_config(std::string_view op, const std::filesystem::path& file);

// The edge to CLI11. Only option.cpp, option_words.cpp, option_table.cpp, help.cpp and program.cpp include CLI11 (and
// info.cpp its version), since it takes longer to compile than a subcommand.

/// A handle on one option of a command. The setters change its text in --help.
class Option {
 public:
  Option() = default;
  explicit Option(CLI::Option* option) : option_(option) {}

  Option& type_name(const std::string& name);    ///< the word for the value: "N", "FILE"
  Option& default_str(const std::string& text);  ///< the text for the default
  Option& group(const std::string& heading);
  /// Makes it an error if the command line lacks it.
  Option& required();
  /// True iff the parsed command line, or a line of a file, has it.
  [[nodiscard]] bool given() const;
  /// True iff the command line itself has it.
  [[nodiscard]] bool typed() const;

 private:
  CLI::Option* option_ = nullptr;
};

/// Adds a subcommand to the program; `footer` stands at the end of its help.
CLI::App& add_subcommand(CLI::App& program, const std::string& name, const std::string& description,
                         const std::string& footer = "");
/// The option of a command that has this name, "--model".
Option option_of(CLI::App& app, const std::string& name);

// These functions make every option of every command, so that all are refused in one form: "COMMAND: --name: expected
// …, got …". An option that takes one value is an error if it comes twice.

/// A number of type int64_t, uint64_t or double.
template <class T>
Option add_value(CLI::App& app, const std::string& names, const Range<T>& range, std::function<void(T)> take,
                 const std::string& description);
/// A word; `take` returns false for one that is not `what`.
Option add_item(CLI::App& app, const std::string& names, const std::string& what,
                std::function<bool(const std::string&)> take, const std::string& description);
/// A text that is not empty; `what` is "a name", "a norm".
Option add_text(CLI::App& app, const std::string& names, const std::string& what,
                std::function<void(const std::string&)> take, const std::string& description);
Option add_text(CLI::App& app, const std::string& names, const std::string& what, std::string& text,
                const std::string& description);
/// The name of a file or folder.
Option add_path(CLI::App& app, const std::string& names, std::string& path, const std::string& description);
/// Texts, separated by commas outside brackets ("batch[eps=1e-3,momentum=0.1],layer2d") or given as words; they replace
/// those in `items`.
Option add_list(CLI::App& app, const std::string& names, const std::string& what, std::vector<std::string>& items,
                const std::string& description);
/// Items of another kind: calls `begin` first, then `take` for each; `take` returns false for an invalid text.
Option add_items(CLI::App& app, const std::string& names, const std::string& what, std::function<void()> begin,
                 std::function<bool(const std::string&)> take, const std::string& description);
/// Texts as they are, each behind the option's name, which may come several times; they replace those in `items`.
Option add_repeated(CLI::App& app, const std::string& names, const std::string& what, std::vector<std::string>& items,
                    const std::string& description);
/// Numbers, given as add_list() takes texts.
template <class T>
Option add_values(CLI::App& app, const std::string& names, const Range<T>& range, std::vector<T>& items,
                  const std::string& description);
/// Words of the command line without an option's name, any number of them; `name` is for the help.
Option add_words(CLI::App& app, const std::string& name, std::vector<std::string>& items,
                 const std::string& description);
/// A switch: "--name", or "--name,!--no-name" for one that can be turned off.
Option add_switch(CLI::App& app, const std::string& names, std::function<void(bool)> take,
                  const std::string& description);
Option add_switch(CLI::App& app, const std::string& names, bool& value, const std::string& description);

inline constexpr const char* kConfigOption = "--config";
/// --config; run_command() adds its lines after the command line's words.
Option add_config(CLI::App& app);

/// Allows at most one of these options of a command.
void exclude(CLI::App& app, const std::vector<std::string>& names);

/// Checks the words before parsing: throws Error for an option without its value, and for a switch with one. Returns
/// the words, with a word "--name=" (an empty value) cut into "--name" and "": CLI11 would take the next word for the
/// value.
std::vector<std::string> checked_words(const CLI::App& app, const std::vector<std::string>& words);
/// The value after an option, "--config", in words that may be unchecked; "" if they lack the option.
std::string value_in(const std::vector<std::string>& words, const std::string& name);
/// Adds the options of these lines to `words`, as checked_words() returns them. Options that the words already have or
/// exclude are left out: the first one holds. Throws Error for a line that names no option, one that belongs only on
/// the command line, and a value that a switch cannot have.
std::vector<std::string> with_lines(const CLI::App& app, const std::vector<std::string>& words,
                                    const std::vector<ConfigLine>& lines);
/// Checks the options after parsing: throws Error for a switch that came twice and for options that exclude each other.
void check_given(const CLI::App& app);

}  // namespace norma::cli
