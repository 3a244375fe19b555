#pragma once

#include "data/dataset.h"
#include "nn/module.h"
#include "nn/norm/calibrate.h"
#include "train/checkpoint.h"
#include "train/recipe.h"

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace norma::train {

/// What of a network a file of weights need not have.
struct FitOptions {
  bool start_values = false;  ///< the classifier, and tensors of norm layers, keep theirs where the file lacks them
  bool reset_head = false;    ///< the classifier keeps its start values in any case
  bool others = true;         ///< the file may have tensors of modules that the network lacks
};

/// Loads the weights of a file, as load_weights() gives them, into `model`, the network of `recipe`. Returns a line
/// that begins with `op` and names what was taken and what was not; "" if that is all of the file and of the network,
/// under its names. A ViT's positions are resized where the file has another grid of patches, as by timm. Throws Error
/// "op: FILE: …" for numbers that are not finite, and "weights: FILE: …" for tensors that do not fit: with the file's
/// own network, the number of names that differ, and the first of them.
std::string load_model_weights(std::string_view op, nn::Module& model, const Recipe& recipe,
                               const std::filesystem::path& file, const LoadedWeights& weights,
                               const FitOptions& fit = {});

/// Makes the network of a recipe, in its full precision, with the weights of a file. Where a ViT's recipe leaves them
/// open, it gets the patch_size (but under timm's names, which say it), layer_scale, global_pool, qkv_bias and qk_norm
/// that the file's tensors show. Before it takes memory for them, it throws Error "weights: FILE: …" for a file of
/// another network, or with another number of classes. `say` gets the line of load_model_weights() unless it is "".
std::shared_ptr<nn::Module> load_network(std::string_view op, Recipe& recipe, int64_t classes,
                                         const std::filesystem::path& file, const WeightsOptions& options,
                                         const std::function<void(const std::string&)>& say);

/// Begins a run with the weights of Recipe::initial_checkpoint: of Norma, timm, torchvision, Facebook's ConvNeXt or
/// Hugging Face. The classifier keeps its start values where the file's has another number of classes, or with
/// Recipe::reset_head. So do tensors of norm layers, own norms included, that the file lacks; those of its norm layers
/// that the network lacks are left out. With Recipe::strict, both are an Error. Returns the line of
/// load_model_weights(), never "".
std::string load_initial_weights(nn::Module& model, const Recipe& recipe);

/// The key in Checkpoint::options under which an averaged checkpoint lists its files.
inline constexpr const char* kAveragedKey = "averaged";

/// The mean of the weights in these files, summed in float64 and rounded once, as timm's avg_checkpoints.py does it.
/// Integers (num_batches_tracked) come from the newest file: that of the latest step, or the last one given if the
/// files have no steps. `options` as in load_weights(). The result has the newest checkpoint's description, but no
/// optimizer, averages or metric: it can be evaluated, but not resumed. Averaged files of weights alone give no
/// description, and step -1.
/// Throws Error "average: FILE: tensor 'x': …" for the first tensor that another file lacks or has with other sizes or
/// dtype, and for one that is not finite.
Checkpoint average_checkpoints(const std::vector<std::filesystem::path>& files, const WeightsOptions& options = {});

/// The SHA-256 of a tensor's elements in row-major order, in its dtype and this machine's byte order.
std::string sha256_of(const Tensor& x);

/// Throws Error "op: where: tensor 'fc.weight': expected finite numbers, got 3 that are NaN or infinite" for the first
/// tensor that is not finite.
void check_finite(std::string_view op, std::string_view where, const nn::NamedTensors& tensors);

/// The names for Recipe::convert_norm: keep, fold, calibrate.
std::vector<std::string> convert_norm_names();

/// The norm of the network in the file Recipe::initial_checkpoint, as convert_network() finds it; "": the model's own.
std::string initial_norm(const Recipe& recipe);

/// A trained network with other norms, before it is trained further.
struct ConvertedNetwork {
  std::shared_ptr<nn::Module> model;  ///< in the recipe's full precision (in_full_precision())
  std::string initial;                ///< what load_initial_weights() says of the file
  std::string from;                   ///< the norm before: Recipe::from_norm, or what the file says
  int64_t images = 0;                 ///< that the weights and figures come from
  std::vector<nn::NormMatch> layers;  ///< one for each new norm; none if all norms stay

  /// A line for each layer, below a head.
  [[nodiscard]] std::string text(const Recipe& recipe) const;
};

struct ConvertOptions {
  int workers = 1;                ///< of the loader of images
  bool head_may_be_other = true;  ///< false: Error for a file whose classifier has other classes
};

/// Makes the network of a recipe with the weights of Recipe::initial_checkpoint (load_initial_weights()), and fits its
/// new norms to the network in the file, as Recipe::convert_norm says: nn::fold_statistics(), nn::calibrate_norms(), or
/// neither. Recipe::convert_batches training batches, as training would see them, are the images of the calibration and
/// of the comparison.
///
/// The norm before is Recipe::from_norm; or that of the checkpoint's run, policy included, or of the metadata `norm`;
/// or batch if the file has running statistics; or the model's own norm if that has none. Throws Error for a file that
/// leaves it open, whose tensors are not those of the network with that norm, or that nn's functions refuse.
ConvertedNetwork convert_network(const Recipe& recipe, const std::shared_ptr<const data::Dataset>& train_set,
                                 const ConvertOptions& options = {});

}  // namespace norma::train
