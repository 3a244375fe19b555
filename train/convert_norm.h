#pragma once

#include "data/dataset.h"
#include "nn/module.h"
#include "nn/norm/calibrate.h"
#include "train/recipe.h"

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace norma::train {

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
