#pragma once

#include "cli/config_file.h"
#include "cli/option.h"
#include "core/memory_format.h"
#include "core/range.h"
#include "train/recipe.h"

#include <fmt/format.h>

#include <charconv>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <system_error>
#include <type_traits>
#include <utility>
#include <vector>

namespace norma::cli {

/// Where the recipe is what checks a number.
inline constexpr Range<double> kAnyNumber{std::numeric_limits<double>::lowest(), std::numeric_limits<double>::max()};

/// "a, b or c".
std::string or_list(const std::vector<std::string>& names);
/// The norms that --norm takes, for its help.
std::string describe_norm_specs();
/// The same for --conv-layer.
std::string describe_conv_layers();

/// What a command that trains a grid takes several values of; empty: not given.
struct GridAxes {
  std::vector<int64_t> batch_sizes;
  std::vector<double> lrs;
  std::vector<std::string> precisions;
  std::vector<MemoryFormat> formats;
  std::vector<std::string> datasets;

  [[nodiscard]] bool any() const {
    return !batch_sizes.empty() || !lrs.empty() || !precisions.empty() || !formats.empty() || !datasets.empty();
  }
};

/// The changes that the command line makes to a recipe. They are kept apart from the recipe, because what they change
/// may be known only after parsing: the defaults of a command, or the recipe of a checkpoint.
class RecipeOptions {
 public:
  /// `defaults` is shown in the help.
  explicit RecipeOptions(train::Recipe defaults) : defaults_(std::move(defaults)), edits_(std::make_shared<Edits>()) {}

  /// From here on, options for what is an axis of a grid take lists, which go there and not into the recipe.
  void set_axes(GridAxes& axes) { axes_ = &axes; }

  // Which options a command has. The object must live as long as the command.
  void add_model(CLI::App& app);          ///< --model and --norm
  void add_model_details(CLI::App& app);  ///< stem, patch size, drop path, norm policy, …
  void add_data(CLI::App& app);           ///< where the images come from
  void add_image_shape(CLI::App& app);    ///< size, batch, format; add_data() has them too
  void add_training_data(CLI::App& app);  ///< length of the run; add_augmentation() is in it
  void add_augmentation(CLI::App& app);   ///< what is done to training images
  void add_optimisation(CLI::App& app);
  void add_update(CLI::App& app);  ///< what one step does; add_optimisation() has it too
  void add_seed(CLI::App& app);
  /// --precision, --cast-policy and --cast.
  void add_precision(CLI::App& app);

  [[nodiscard]] const train::Recipe& defaults() const { return defaults_; }
  /// True iff an option was given.
  [[nodiscard]] bool any() const { return !edits_->empty(); }
  /// The recipe as the text of a file for --config: a line for each option of the command, as far as it has a value.
  [[nodiscard]] std::string config_text(const train::Recipe& recipe) const;
  /// "lr 1e-07 → 1" for each option of the command that is not the same in both.
  [[nodiscard]] std::vector<std::string> changes(const train::Recipe& before, const train::Recipe& after) const;
  /// `recipe` with what was given on the command line.
  [[nodiscard]] train::Recipe applied_to(train::Recipe recipe) const {
    const std::string dataset = recipe.dataset;
    const std::string folder = std::exchange(recipe.data_dir, "");
    for (const auto& edit : *edits_) {
      edit(recipe);
    }
    if (recipe.data_dir.empty() && recipe.dataset == dataset) {
      recipe.data_dir = folder;  // another dataset is not in the folder of the former
    }
    return recipe;
  }

 private:
  using Edits = std::vector<std::function<void(train::Recipe&)>>;

  /// An option for one field; `default_text` "" shows the field's default.
  template <class T>
  Option add(CLI::App& app, const std::string& name, T train::Recipe::*field, const Range<T>& range,
             const std::string& type, const std::string& description, const std::string& default_text = "");
  /// The same for a field that need not be set; `none` on the command line unsets it.
  template <class T>
  Option add(CLI::App& app, const std::string& name, std::optional<T> train::Recipe::*field, const Range<T>& range,
             const std::string& type, const std::string& description, const std::string& default_text);
  /// The same for a text; `what` is "a name".
  Option add(CLI::App& app, const std::string& name, std::string train::Recipe::*field, const std::string& what,
             const std::string& type, const std::string& description, const std::string& default_text = "");
  /// The same for a text that may be absent: empty in the recipe, `none` on the command line.
  Option add_or_none(CLI::App& app, const std::string& name, std::string train::Recipe::*field, const std::string& what,
                     const std::string& type, const std::string& description);
  /// The same for numbers, separated by commas, or `none`; `what` is one of them, "a number", and each must be in
  /// `range`.
  template <class T>
  Option add(CLI::App& app, const std::string& name, std::vector<T> train::Recipe::*field, const Range<T>& range,
             const std::string& what, const std::string& description, const std::string& default_text);
  void add_norm_policy(CLI::App& app);
  void add_formats(CLI::App& app);
  void add_learning_rate(CLI::App& app);
  void add_schedule(CLI::App& app);
  void add_model_ema(CLI::App& app);
  Option add_flag(CLI::App& app, const std::string& names, bool train::Recipe::*field, const std::string& description);
  /// What changes one field to `value`.
  template <class F, class T>
  void note(F train::Recipe::*field, const T& value) {
    edits_->push_back([field, value](train::Recipe& recipe) { recipe.*field = value; });
  }

  /// Notes how the option is written into a file: `text` is empty where it has no value.
  void note_config(const std::string& names, std::function<std::string(const train::Recipe&)> text);

  train::Recipe defaults_;
  std::shared_ptr<Edits> edits_;
  std::vector<std::pair<std::string, std::function<std::string(const train::Recipe&)>>> config_;
  GridAxes* axes_ = nullptr;
};

template <class T>
Option RecipeOptions::add(CLI::App& app, const std::string& name, T train::Recipe::*field, const Range<T>& range,
                          const std::string& type, const std::string& description, const std::string& default_text) {
  const std::string shown = default_text.empty() ? fmt::format("{}", defaults_.*field) : default_text;
  note_config(name, [field](const train::Recipe& recipe) { return toml_number(recipe.*field); });
  return add_value<T>(
             app, name, range, [this, field](T value) { note(field, value); }, description)
      .type_name(type)
      .default_str(shown);
}

template <class T>
Option RecipeOptions::add(CLI::App& app, const std::string& name, std::optional<T> train::Recipe::*field,
                          const Range<T>& range, const std::string& type, const std::string& description,
                          const std::string& default_text) {
  note_config(name,
              [field](const train::Recipe& recipe) { return recipe.*field ? toml_number(*(recipe.*field)) : ""; });
  return add_optional_value<T>(
             app, name, range, [this, field](std::optional<T> value) { note(field, value); }, description)
      .type_name(type)
      .default_str(default_text);
}

template <class T>
Option RecipeOptions::add(CLI::App& app, const std::string& name, std::vector<T> train::Recipe::*field,
                          const Range<T>& range, const std::string& what, const std::string& description,
                          const std::string& default_text) {
  const auto numbers = std::make_shared<std::vector<T>>();
  const auto begin = [edits = edits_, field, numbers] {
    numbers->clear();
    edits->push_back([field, numbers](train::Recipe& recipe) { recipe.*field = *numbers; });
  };
  const auto take = [range, numbers](const std::string& item) {
    if (item == "none") {
      return numbers->empty();
    }
    T& number = numbers->emplace_back();
    const auto [end, error] = std::from_chars(item.data(), item.data() + item.size(), number);
    return error == std::errc() && end == item.data() + item.size() && range.contains(number);
  };
  note_config(name, [field](const train::Recipe& recipe) {
    std::string list;
    for (const T number : recipe.*field) {
      list += (list.empty() ? "" : ", ") + toml_number(number);
    }
    return list.empty() ? list : "[" + list + "]";
  });
  return add_items(app, name, what, begin, take, description).type_name("LIST").default_str(default_text);
}

/// What does not change the result of a run.
struct RunOptions {
  int64_t workers = 1;
  int64_t threads = 0;  ///< 0: as many as there are cores, or OMP_NUM_THREADS
  int64_t log_interval = 50;
  bool quiet = false;
  std::string device;                ///< "": the default device
  std::vector<std::string> plugins;  ///< loaded by main(), before there are options

  void add_threads(CLI::App& app);
  void add_device(CLI::App& app);  ///< --device, where tensors lie
  void add_plugin(CLI::App& app);  ///< --plugin, norms of one's own
  /// " --plugin FILE…" with the absolute names of those that are loaded, for a command line that goes on; "" where
  /// there are none.
  [[nodiscard]] static std::string plugin_words();
  /// Lines of args.toml: what is not as it is without options, but for --quiet.
  [[nodiscard]] std::string config_text() const;
  void add_workers(CLI::App& app);
  void add_display(CLI::App& app);  ///< --log-interval and --quiet
  void add_quiet(CLI::App& app);
  /// All of them, for what trains.
  void add_all(CLI::App& app);
  /// Sets the number of threads and the default device. Throws Error, in the name of the command, for a device that
  /// cannot be used here, and when OMP_NUM_THREADS asks for too many threads.
  void apply(std::string_view command) const;
};

/// Says so if the default device is slow in a precision, or has another one instead.
void print_precision_note(const train::Precision& precision);

/// The exit code of a command that a signal ended: 128 + the signal; for a closed pipe that of a failure.
int interrupted_code();

/// "runs/train-20261121-140307", with a number behind it if that is taken.
std::string new_run_folder(const std::string& kind);

}  // namespace norma::cli
