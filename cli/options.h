#pragma once

#include "cli/option.h"
#include "train/recipe_option.h"

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace norma::cli {

/// The changes that the command line makes to a recipe. They are kept apart from the recipe, because what they change
/// may be known only after parsing: the defaults of a command, or the recipe of a checkpoint.
class RecipeOptions {
 public:
  /// `defaults` is shown in the help.
  explicit RecipeOptions(train::Recipe defaults) : defaults_(std::move(defaults)), given_(std::make_shared<Given>()) {}

  /// Adds the options of these parts, but for some, in the order of train::recipe_options().
  void add(CLI::App& app, const std::vector<train::RecipePart>& parts, const std::vector<std::string>& but = {});
  /// Adds all options.
  void add_all(CLI::App& app);

  [[nodiscard]] const train::Recipe& defaults() const { return defaults_; }
  /// True iff an option was given.
  [[nodiscard]] bool any() const { return !given_->empty(); }
  /// The names of the options with a value that the command line itself has.
  [[nodiscard]] std::vector<std::string> typed() const;
  /// `recipe` with what was given on the command line.
  [[nodiscard]] train::Recipe applied_to(train::Recipe recipe) const;

 private:
  /// An option and a recipe that has its value.
  using Given = std::vector<std::pair<const train::RecipeOption*, std::shared_ptr<train::Recipe>>>;

  void add(CLI::App& app, const train::RecipeOption& option);

  train::Recipe defaults_;
  std::shared_ptr<Given> given_;
  std::vector<std::pair<std::string, Option>> with_value_;
};

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
