#pragma once

#include "cli/option.h"
#include "nn/plugin.h"
#include "session/run_folder.h"
#include "train/checkpoint.h"
#include "train/recipe_option.h"

#include <filesystem>
#include <memory>
#include <utility>
#include <variant>

namespace norma::cli {

/// The changes that the command line makes to a recipe. They are kept apart from it, since the recipe may be known only
/// after parsing: the defaults of a command, or the recipe of a checkpoint.
class RecipeOptions {
 public:
  /// The help shows `defaults`.
  explicit RecipeOptions(train::Recipe defaults) : defaults_(std::move(defaults)), given_(std::make_shared<Given>()) {}

  /// Adds the options of these parts, except those in `but`, in the order of train::recipe_options().
  void add(CLI::App& app, const std::vector<train::RecipePart>& parts, const std::vector<std::string>& but = {});
  /// Adds all options.
  void add_all(CLI::App& app);

  [[nodiscard]] const train::Recipe& defaults() const { return defaults_; }
  /// The names of the options that the command line itself gives a value; switches are not among them.
  [[nodiscard]] std::vector<std::string> typed() const;
  /// `recipe` with the values of the command line. Where these name another network by timm's name of a ViT, and no
  /// size of images, that in the name is taken, too.
  [[nodiscard]] train::Recipe applied_to(train::Recipe recipe) const;

 private:
  /// An option and a recipe that has its value.
  using Given = std::vector<std::pair<const train::RecipeOption*, std::shared_ptr<train::Recipe>>>;

  void add(CLI::App& app, const train::RecipeOption& option);

  train::Recipe defaults_;
  std::shared_ptr<Given> given_;
  std::vector<std::pair<std::string, Option>> with_value_;
};

/// The options that do not change the result of a run. Each has a row in run_options(), except --plugin.
struct RunOptions {
  int64_t workers = 1;
  int64_t threads = 0;  ///< 0: as many as there are cores, or OMP_NUM_THREADS
  int64_t log_interval = 50;
  int64_t procs = 0;      ///< 0: those that mpirun started, or one
  int64_t timeout = 300;  ///< seconds; see parallel::ProcessGroupOptions
  bool verbose_ranks = false;
  bool quiet = false;
  std::string device;                ///< "": the default device
  std::string conv;                  ///< "", "fast" or "exact": set_conv2d_implementation()
  std::string cuda_graph = "auto";   ///< one of train::graph_mode_names()
  std::vector<std::string> plugins;  ///< run_command() loads them, before there are options
  // The files that `norma train` writes beside last.safetensors and the tables.
  bool telemetry = false;
  std::string dynamics;  ///< lab::parse_dynamics(); with any, there is telemetry, too
  bool tensorboard = false;
  bool log_json = false;
  int64_t checkpoint_hist = train::KeepOptions{}.history;
  int64_t recovery_interval = train::KeepOptions{}.recovery_interval;

  /// The rows of the options that a command has.
  [[nodiscard]] std::vector<train::OptionRow> rows(std::string_view command);
  /// Adds these rows, and --plugin, norms of your own, where a command takes them.
  void add(CLI::App& app);
  /// The loaded plug-ins as " --plugin FILE…" with absolute names, to continue a command line; "" if there are none.
  [[nodiscard]] static std::string plugin_words();
  /// Lines of args.toml for the options that differ from their defaults, and for the loaded plug-ins.
  [[nodiscard]] std::string config_text() const;
  [[nodiscard]] train::KeepOptions keep() const;
  /// Sets the number of threads, the default device and the implementation of convolutions. Throws Error for a device
  /// that cannot be used here, for an unknown `conv`, and for more threads than are allowed (by OMP_NUM_THREADS) or
  /// than the system gives.
  void apply(std::string_view command) const;
};

/// The runs that take the value of an option from a run's args.toml.
enum class FromFile : uint8_t {
  none,     ///< the file does not have it
  new_run,  ///< a run that `--config` starts
  any_run,  ///< also one that `--resume` continues
};

/// Details that only some of RunOptions have.
struct RunOptionDetails {
  std::string otherwise = {};  ///< the default in --help; "": the value
  FromFile from_file = FromFile::any_run;
  std::string value_name = {};  ///< the word for the value in --help; "": N for a number
  char letter = 0;              ///< for its short name: 'j' for -j
  bool has_opposite = false;    ///< a switch with a --no-name
  std::vector<std::string> (*choices)() = nullptr;
};

/// One of RunOptions.
struct RunOption : RunOptionDetails {
  struct Number {
    int64_t RunOptions::*at;
    Range<int64_t> range;
  };
  using Field = std::variant<Number, bool RunOptions::*, std::string RunOptions::*>;

  RunOption(std::string its_name, std::string of, Field its_field, std::string text, RunOptionDetails details = {})
      : RunOptionDetails(std::move(details)),
        name(std::move(its_name)),
        commands(std::move(of)),
        field(its_field),
        help(std::move(text)) {}

  std::string name;      ///< without dashes
  std::string commands;  ///< those that have it, with spaces between them
  Field field;
  std::string help;

  /// Its row, for a command with these defaults. Its words go there.
  [[nodiscard]] train::OptionRow row(RunOptions& options) const;
  /// The value as TOML.
  [[nodiscard]] std::string toml(const RunOptions& options) const;
};
/// All but --plugin, in the order of --help and args.toml.
const std::vector<RunOption>& run_options();

/// Prints a note if the default device is slow in a precision, or replaces it by another.
void print_precision_note(const train::Precision& precision);

/// The exit code of a command that a signal ended: 128 + the signal; for a closed pipe kFailure.
int interrupted_code();

/// The folder of a new run, "runs/train-20261121-140307", with a number at its end if that is taken.
std::string new_run_folder(const std::string& kind);

/// A checkpoint's record of its run.
struct Trained {
  train::Recipe recipe;
  std::vector<std::string> class_names;
  std::vector<nn::PluginRecord> plugins = {};
  std::string normalization = {};  ///< as train::normalization_text(); "": unknown
  bool of_run = true;              ///< false: a file of weights alone
};

/// The recipe with what the command line says. A network's own name, as vit_tiny, leaves timm's name of it in the
/// record, which says a size of patches.
train::Recipe recipe_for(const Trained& trained, const RecipeOptions& options);
/// The norms that such a recipe has from the run, its own and that of queries and keys; "" for another one, which is
/// the user's, who may have mistyped it.
std::vector<std::string> kept_norms(const Trained& trained, const train::Recipe& recipe);

/// Warns of a network with another norm, or norm of queries and keys, than that of the run whose weights it
/// gets.
void warn_of_other_norm(std::string_view op, const Trained& trained, const train::Recipe& recipe);

/// Adds --use-ema and --weights-prefix, which say what of a file the weights are.
void add_weights_options(CLI::App& app, train::WeightsOptions& options);

/// The file that `given` names, or the newest checkpoint of a run where it is a folder. Warns of half-written ones.
std::filesystem::path checkpoint_file(std::string_view op, const std::filesystem::path& given);

/// The record of a checkpoint; the defaults of `options` for a file of weights alone. That one says nothing of its
/// network, so `names_model` must be true: the command line has --model. Throws Error otherwise.
Trained trained_in(const std::filesystem::path& file, std::string_view op, const RecipeOptions& options,
                   bool names_model);

}  // namespace norma::cli
