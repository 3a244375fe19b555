#pragma once

#include "data/dataset.h"
#include "data/safetensors.h"
#include "models/state_dict_names.h"

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace norma::train {

/// The evaluation of a run with the highest accuracy on the test images; of equal ones the first.
struct BestEvaluation {
  double metric = 0;  ///< top-1 accuracy in [0, 1]; with averaged weights if the run has them, as in timm
  int64_t step = 0;
  int64_t epoch = 0;  ///< epochs begun, with that step's
};

/// All that a run needs to go on as if it had never stopped. In the file (safetensors) the model's tensors have their
/// plain names, so that it also serves as a file of weights. The optimizer's names begin with "optimizer.", the moving
/// averages' with "ema."; the rest is metadata.
struct Checkpoint {
  data::NamedTensors model;      ///< the state dict: parameters and buffers
  data::NamedTensors optimizer;  ///< names without the prefix
  data::NamedTensors ema = {};   ///< averages of the model's tensors (ema.h), names without the prefix; empty: none

  int64_t step = 0;   ///< optimizer steps done
  int64_t epoch = 0;  ///< epochs begun and finished
  uint64_t seed = 0;
  uint64_t generator_seed = 0;  ///< state of the default generator
  uint64_t generator_offset = 0;

  std::string model_name;
  std::string norm;
  std::map<std::string, std::string> options;  ///< of the command, as given, and the caller's other entries

  std::optional<double> metric = {};        ///< as BestEvaluation::metric, for these weights; none: not evaluated
  std::optional<BestEvaluation> best = {};  ///< so far, if the run keeps its best checkpoint

  /// An entry of `options`; none if it has no such key.
  [[nodiscard]] std::optional<std::string> option(const std::string& key) const {
    const auto found = options.find(key);
    return found == options.end() ? std::nullopt : std::optional(found->second);
  }
};

/// Writes all of it, or leaves an older checkpoint of that name as it was (see save_safetensors). Throws Error.
void save_checkpoint(const std::filesystem::path& file, const Checkpoint& checkpoint);

/// Throws Error when the file cannot be read, or is no checkpoint (weights only: use load_weights).
Checkpoint load_checkpoint(const std::filesystem::path& file);
/// Reads the metadata without the tensors, but checks that the whole file is there.
Checkpoint load_checkpoint_metadata(const std::filesystem::path& file);

/// True iff a file is a checkpoint of Norma; false: weights only, or a file of PyTorch's. Throws Error when it cannot
/// be read.
bool is_checkpoint(const std::filesystem::path& file);

/// The texts in a file of weights; none for one of PyTorch's. Throws Error when it cannot be read.
std::map<std::string, std::string> weights_metadata(const std::filesystem::path& file);

/// Which tensors of a file are the weights.
struct WeightsOptions {
  bool use_ema = false;  ///< their moving averages
  std::string prefix;    ///< a part of what stands before their names, where a file has several networks; "": any
  std::string model;     ///< the network they are for; if registered, its own checkpoint is taken under its own names
};

/// A network's weights, as load_weights() finds them in a file.
struct LoadedWeights {
  data::NamedTensors tensors;                   ///< under Norma's names where the network is known
  std::vector<std::string> in_file;             ///< the name of each in the file
  std::map<std::string, std::string> metadata;  ///< of a file of safetensors
  std::optional<models::Dialect> dialect;       ///< whose names they have in the file; none: of no known network
  bool as_they_are = true;                      ///< the file has nothing else, and no other names
  /// What was read, and what not, behind the file's name: ", under names of timm, behind 'module.'; left out: args
  /// (argparse.Namespace), optimizer (161 tensors)".
  std::string text;
};

/// The one reader of weights: from a checkpoint, any other safetensors file, or one of PyTorch's
/// (data/tensor_file.h), under any prefix and the names of any library that models::find_weights() knows. Counts of
/// batches in a floating dtype become integers, or are left out. Throws Error for what these functions refuse, a file
/// without tensors, and averages of a checkpoint without any.
LoadedWeights load_weights(const std::filesystem::path& file, const WeightsOptions& options = {});

/// The key in Checkpoint::options for the names of the classes.
inline constexpr const char* kClassNamesKey = "class_names";

/// The names of a dataset's classes as text for a checkpoint. Throws Error for names that are not UTF-8.
std::string class_names_text(const data::DatasetInfo& dataset);

/// The key in Checkpoint::options for what is subtracted from images, and what they are divided by.
inline constexpr const char* kNormalizationKey = "normalization";

/// {"mean": [0.5, …], "std": […]} of the three channels of a network's images, values scaled to [0, 1].
std::string normalization_text(const data::DatasetInfo& dataset);
/// That text in a checkpoint; "" if it has none (earlier versions). Throws Error for another one.
std::string normalization_of(const Checkpoint& checkpoint);

/// The names of the classes that a checkpoint was trained on; empty if it has none (earlier versions). Throws Error for
/// another text than that of class_names_text().
std::vector<std::string> class_names_of(const Checkpoint& checkpoint);

/// The differences between a dataset's classes and those of training in words; "" for none, or if the classes of
/// training are unknown (empty).
std::string class_difference(const std::vector<std::string>& of_training, const data::DatasetInfo& dataset);

}  // namespace norma::train
