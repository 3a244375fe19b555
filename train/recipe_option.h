#pragma once

#include "base/parse_number.h"
#include "base/range.h"
#include "train/recipe.h"

#include <cstdint>
#include <functional>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

// Each option of a recipe is described once, in recipe_options.cpp. From that description follow the command line,
// --help, completion, man page, args.toml, the JSON of checkpoints, the checks of a recipe, the changes that a resumed
// run may make, the command that repeats a run and the table in docs/command.md.

namespace norma::train {

/// The ranges of the numbers of recipes, trainings and benchmarks, which the library and the command line check. Upper
/// ends are far beyond what makes sense, but so low that no product of a few of them overflows.
namespace ranges {

inline constexpr Range<int64_t> kImageSize{1, 8192};
inline constexpr Range<int64_t> kBatchSize{1, data::kMaxBatchSize};
inline constexpr Range<int64_t> kEpochs{1, 1'000'000};
inline constexpr Range<double> kLr{.low = 0, .high = 1000, .with_low = false};
inline constexpr Range<uint64_t> kSeed{0, std::numeric_limits<uint64_t>::max()};

inline constexpr Range<int64_t> kClasses{1, 1'000'000};
inline constexpr Range<int64_t> kChannels{1, 65'536};
inline constexpr Range<int64_t> kThreads{0, 1024};  ///< 0: as many as there are cores
inline constexpr Range<int64_t> kWorkers{0, data::kMaxWorkers};
inline constexpr Range<int64_t> kCheckpointHist{1, 1'000'000};
inline constexpr Range<int64_t> kLogInterval{1, 1'000'000'000};
/// Steps of a benchmark, batches of a recalibration.
inline constexpr Range<int64_t> kSteps{1, 1'000'000};
inline constexpr Range<int64_t> kStepsOrNone{0, 1'000'000};
/// With kChannels channels and kImageSize² pixels of float32, so many images stay below 2^63 bytes.
inline constexpr Range<int64_t> kSweepBatch{1, 65'536};
inline constexpr Range<int64_t> kProcesses{1, 65'536};
inline constexpr Range<int64_t> kTimeout{1, 1'000'000};  ///< seconds
inline constexpr Range<int64_t> kMebibytes{1, 1'048'576};

}  // namespace ranges

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

/// The subject of an option. A command has the options of some of these parts.
enum class RecipePart : uint8_t {
  model,         ///< --model and --norm
  network,       ///< the making of that network
  data,          ///< the source of the images
  shape,         ///< the size, number and memory format of the images in a step
  length,        ///< the length of the training
  augmentation,  ///< random changes to training images
  update,        ///< the work of one step
  steps,         ///< the sequence of the steps
  start,         ///< the weights to begin with
  conversion,    ///< the change of norms in trained weights
  run,           ///< options of a single training that a comparison lacks
  seed,
  precision,
};

/// The changes to an option that are allowed when a run is resumed.
enum class OnResume : uint8_t {
  change,       ///< allowed: it steers the steps to come
  always,       ///< allowed even when all steps are done: it makes the run longer, or is for evaluations
  another_run,  ///< refused: another value would be another run
};

template <class T>
struct ItemOf {
  using Type = T;
};
template <class T>
struct ItemOf<std::optional<T>> {
  using Type = T;
};
template <class T>
struct ItemOf<std::vector<T>> {
  using Type = T;
};

/// A number, a number that may be absent, or a list of numbers.
template <class T>
struct NumberField {
  T Recipe::*at;
  Range<typename ItemOf<T>::Type> range;  ///< of each number
};
struct SwitchField {
  bool Recipe::*at;
};
struct TextField {
  std::string Recipe::*at;
  void (*check)(const std::string& text) = nullptr;  ///< throws Error for an invalid text; null: checked elsewhere
};
struct TextsField {
  std::vector<std::string> Recipe::*at;
  void (*check)(const std::string& text);  ///< throws Error for an invalid text
};
/// The text of a file, and its name. The command line and args.toml have the name.
struct FileField {
  std::string Recipe::*at;
  std::string Recipe::*name;
  std::string (*read)(const std::string& name);  ///< throws Error
};
using RecipeField =
    std::variant<SwitchField, NumberField<int64_t>, NumberField<uint64_t>, NumberField<double>,
                 NumberField<std::optional<int64_t>>, NumberField<std::optional<double>>,
                 NumberField<std::vector<int64_t>>, NumberField<std::vector<double>>, TextField, TextsField, FileField>;

/// For numbers that a check of several fields limits.
inline constexpr Range<double> kAnyNumber{std::numeric_limits<double>::lowest(), std::numeric_limits<double>::max()};
/// The word for no value on the command line.
inline constexpr const char* kNone = "none";

/// An option that another one needs to have an effect.
struct Needed {
  const char* name = nullptr;  ///< "model-ema"
  bool (*is_given)(const Recipe& recipe) = nullptr;
};

/// Details that only some options have.
struct RecipeOptionDetails {
  std::optional<OnResume> on_resume = {};  ///< none: that of its group
  std::string absent = {};                 ///< the default in --help, if that is not the value itself
  std::string value_name = {};             ///< the word for the value in --help; "": N, X, NAME, LIST or FILE.toml
  std::string expected = {};               ///< for error texts: "a norm"; "": by the kind of the field
  bool or_none = false;                    ///< a text that may be absent
  std::vector<std::string> (*names)() = nullptr;  ///< for completion, and for "{names}" in `help`
  std::string kind = {};                          ///< the kind of these names, "optimizer", if the value must be one of
                                                  ///< them
  Needed needs = {};
  std::string replaces = {};     ///< the option that this one replaces when it is above 0
  std::string replaced_by = {};  ///< the inverse
  std::string key = {};          ///< in JSON; "": the name with underscores
  char letter = 0;               ///< for its short name: 'b' for -b
};

/// An option of a recipe.
struct RecipeOption : RecipeOptionDetails {
  RecipeOption(std::string long_name, RecipeField its_field, std::string text, RecipeOptionDetails details = {});
  RecipeOption(std::string long_name, bool Recipe::*at, std::string text, RecipeOptionDetails details = {})
      : RecipeOption(std::move(long_name), SwitchField{at}, std::move(text), std::move(details)) {}
  RecipeOption(std::string long_name, std::string Recipe::*at, std::string text, RecipeOptionDetails details = {})
      : RecipeOption(std::move(long_name), TextField{at}, std::move(text), std::move(details)) {}
  template <class T>
  RecipeOption(std::string long_name, T Recipe::*at, const Range<typename ItemOf<T>::Type>& range, std::string text,
               RecipeOptionDetails details = {})
      : RecipeOption(std::move(long_name), NumberField<T>{at, range}, std::move(text), std::move(details)) {}

  std::string name;  ///< on the command line and in TOML, without dashes: "batch-size"
  RecipeField field;
  std::string help;
  RecipePart part = RecipePart::model;
  std::string heading = {};  ///< its heading in --help

  [[nodiscard]] bool is_switch() const { return std::holds_alternative<SwitchField>(field); }
  /// True iff it takes several values.
  [[nodiscard]] bool is_list() const;
  [[nodiscard]] bool is_text() const;
  /// True iff the word "none" removes the value.
  [[nodiscard]] bool may_be_absent() const;
  /// `help` with the names filled in.
  [[nodiscard]] std::string help_text() const;
  /// The default in --help for a command with these defaults.
  [[nodiscard]] std::string default_text(const Recipe& defaults) const;
  /// Its row for such a command, without `begin` and `take`.
  [[nodiscard]] OptionRow row(const Recipe& defaults) const;

  /// The value as words: "true" or "false", a number, a text, all of a list. Empty without a value, or if another
  /// option replaces this one.
  [[nodiscard]] std::vector<std::string> items(const Recipe& recipe) const;
  /// The value as TOML: `"sgd"`, `[3, 5]`; "" if there is none. TOML's whole numbers end at 2^63 - 1: greater ones
  /// become texts, which are read as well.
  [[nodiscard]] std::string toml(const Recipe& recipe) const;
  /// Takes a word of the command line as the value, or as one more of a list. Returns false for an invalid word. Throws
  /// Error for a file that cannot be read.
  bool take(Recipe& recipe, const std::string& word) const;
  /// Makes the value zero, empty or absent.
  void clear(Recipe& recipe) const;
  /// Gives `to` the value of `from`; an option that would replace this one no longer does.
  void give(const Recipe& from, Recipe& to) const;
  /// Throws Error "train: name: expected …, got …" for a value outside its range, and "train: unknown KIND …".
  void check_value(const Recipe& recipe) const;
};

/// All options, in the order of --help and args.toml.
const std::vector<RecipeOption>& recipe_options();
/// The option of that name; nullptr if there is none.
const RecipeOption* find_recipe_option(std::string_view name);
/// The option of that name, which must exist.
const RecipeOption& recipe_option(std::string_view name);

/// The recipe as the text of a file for --config: a line for each option that has a value.
std::string to_toml(const Recipe& recipe);

}  // namespace norma::train
