#pragma once

#include "core/memory_format.h"
#include "train/recipe.h"
#include "train/recipe_option.h"

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace norma::lab {

/// The place of a training run in a grid: its value on each axis. All else is the same in the whole comparison.
struct Settings {
  std::string model;
  std::string norm;
  uint64_t seed = 0;
  // The members below mean the same as in train::Recipe, unless a comment says otherwise.
  int64_t batch_size = 128;
  double lr = 2e-3;
  std::string precision = "float32";
  MemoryFormat format = MemoryFormat::channels_last;
  std::string dataset = "fashion_mnist";
  /// Values on the axes of option_axes(), by the option's name, as words of the command line. An axis that the
  /// comparison lacks has none.
  std::map<std::string, std::string> options = {};

  /// The value of such an option; "" if there is none.
  [[nodiscard]] std::string option(const std::string& name) const {
    const auto found = options.find(name);
    return found == options.end() ? "" : found->second;
  }

  friend bool operator==(const Settings&, const Settings&) = default;
};

/// The settings in a recipe.
Settings settings_of(const train::Recipe& recipe);

/// An option that some families of networks alone have: --patch-size.
struct FamilyOption {
  const train::RecipeOption* option;
  std::string key;  ///< for models::model_takes()
};
const std::vector<FamilyOption>& family_options();
/// Throws Error "compare: patch-size: expected a network that has this option, …" unless one of the networks has it, or
/// each of them if `all`.
void check_is_taken(const FamilyOption& option, const std::vector<std::string>& models, bool all = false);

/// `common` with these settings. It leaves out options of the other family of networks, a cast policy if the precision
/// has none, and the data's folder if the dataset is generated.
train::Recipe recipe_of(const train::Recipe& common, const Settings& settings);

/// The settings shared by norms whose steps are timed together: norm, seed, lr and the options that change no step's
/// work are empty.
Settings timing_group(Settings settings);

/// An axis of a grid.
struct Axis {
  std::string_view name;  ///< for people: "batch size"
  std::function<std::string(const Settings& settings)> value;
};

/// An axis whose values are those of an option of the recipe, or of one that comparisons alone have. A comparison may
/// have it or not.
struct OptionAxis {
  const char* option;  ///< "opt"
  const char* flag;    ///< its name on the command line, beside the option's: "optimizers"
  const char* name;    ///< Axis::name
  bool changes_work;   ///< a step takes another time with another value
  // An axis that comparisons alone have says these, too:
  std::vector<std::string> words = {};  ///< empty: an option of the recipe
  const char* heading = "";             ///< in --help
  const char* help = "";
};
/// The optimizer, the weight decay, QK-norm, the place of norms and the number of training images; and of comparisons
/// alone the weights that are tested, and those that a run starts from.
const std::vector<OptionAxis>& option_axes();

/// The axis of the weights that a run starts from: random ones ("scratch"), or those of another run, with their norms
/// kept as they are ("keep"), kept with frozen running statistics ("frozen"), or converted ("fold", "calibrate"). The
/// other run is the file Recipe::initial_checkpoint of the comparison, or source_file().
inline constexpr const char* kStart = "start";
inline constexpr const char* kScratch = "scratch";

/// The axis of the weights that are tested, and its word for averaged weights whose batch norms get new statistics,
/// from this many training batches.
inline constexpr const char* kWeights = "weights";
inline constexpr const char* kRecalibrated = "ema-recalibrated";
inline constexpr int64_t kRecalibrationBatches = 50;

/// The checkpoint of the network that a comparison has trained itself for its runs to start from, in its output folder.
std::string source_file(const std::string& model);

/// Gives an option of a recipe, or those that an axis of comparisons alone stands for, the value of a word. Returns the
/// word by which a comparison tells values apart: "0.05" for "5e-2". Throws Error, in the name of `op`, for a word that
/// is none.
std::string take_option(train::Recipe& recipe, std::string_view op, const std::string& name, const std::string& word);

/// All axes but model, norm and seed, in the order of display: dataset, batch size, lr, precision, format, and those of
/// option_axes().
const std::vector<Axis>& further_axes();

}  // namespace norma::lab
