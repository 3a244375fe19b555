#pragma once

#include "base/parse_number.h"
#include "base/range.h"

#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace norma::train {

/// One option of a command, with the place that gets its value: all that the command line, completion and Python know
/// of it.
struct OptionRow {
  std::vector<std::string> names;  ///< without dashes; the last one is its name in error texts
  std::string heading;             ///< in --help
  std::string value_name;          ///< the word for the value in --help: "N"; "" for a switch
  std::string expected;            ///< for error texts: "a whole number from 1 to 8"
  std::string help;
  std::function<bool(const std::string&)> take;  ///< a word; "true" or "false" for a switch. False: not as expected
  std::string otherwise = {};                    ///< the default in --help
  std::vector<std::string> choices = {};         ///< values that a shell offers: some, or all
  std::function<void()> begin = {};              ///< is called before the first word
  bool is_list = false;
  bool has_opposite = false;               ///< a switch with a --no-name
  std::vector<std::string> excludes = {};  ///< options that may not be given beside it

  [[nodiscard]] bool is_switch() const { return value_name.empty(); }
};

// OptionRow::take for the usual kinds of values.

inline auto into(bool& value) {
  return [&value](const std::string& word) {
    value = word == "true";
    return true;
  };
}

inline auto into(std::string& text) {
  return [&text](const std::string& word) {
    text = word;
    return !word.empty();
  };
}

/// A number in the range.
template <class T>
auto into(T& number, const Range<T>& range) {
  return [&number, range](const std::string& word) {
    const std::optional<T> parsed = parse_number<T>(word);
    number = parsed.value_or(T{});
    return parsed && range.contains(*parsed);
  };
}

template <class T>
auto into(std::optional<T>& number, const Range<T>& range) {
  return [&number, range](const std::string& word) { return into(number.emplace(), range)(word); };
}

/// A text for `set`, which may throw an Error.
template <class F>
auto as_text(F set) {
  return [set = std::move(set)](const std::string& word) {
    if (!word.empty()) {
      set(word);
    }
    return !word.empty();
  };
}

}  // namespace norma::train
