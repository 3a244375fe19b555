#include "train/convert_norm.h"

#include "base/error.h"
#include "models/registry.h"
#include "nn/norm/norm.h"
#include "train/checkpoint.h"
#include "train/training_state.h"
#include "train/weights.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <optional>
#include <string_view>

namespace norma::train {

namespace {

constexpr const char* kOp = "convert-norm";
constexpr std::string_view kRunningMean = ".running_mean";

bool has_running_statistics(const nn::NamedTensors& tensors) {
  return std::ranges::any_of(tensors, [](const auto& tensor) { return tensor.first.ends_with(kRunningMean); });
}

/// The recipe with the norm, and the norm policy, of the network in the file.
Recipe recipe_before(const Recipe& recipe) {
  Recipe before = recipe;
  before.norm_policy.clear();
  before.norm_policy_file.clear();
  before.norm = recipe.from_norm;
  if (!before.norm.empty()) {
    return before;
  }
  const std::filesystem::path file = recipe.initial_checkpoint;
  if (is_checkpoint(file)) {
    const Checkpoint head = load_checkpoint_metadata(file);
    if (head.options.contains(kRecipeKey)) {
      const Recipe of_run = recipe_of(head);
      before.norm_policy = of_run.norm_policy;
      before.norm_policy_file = of_run.norm_policy_file;
      before.qk_norm = of_run.qk_norm;
    }
    before.norm = head.norm;
    return before;
  }
  const std::map<std::string, std::string> metadata = weights_metadata(file);
  if (const auto norm = metadata.find("norm"); norm != metadata.end() && !norm->second.empty()) {
    before.norm = norm->second;
    return before;
  }
  const std::string own = models::own_norm(recipe.model);
  const bool running =
      has_running_statistics(load_weights(file, {.use_ema = recipe.use_ema, .prefix = recipe.weights_prefix}).tensors);
  check(running || own != "batch", kOp,
        "{}: expected running statistics of batch norm, or a norm in the metadata, got neither; say --from-norm SPEC",
        file.string());
  before.norm = running ? "batch" : own;
  return before;
}

std::vector<data::Batch> batches_of(const Recipe& recipe, const std::shared_ptr<const data::Dataset>& train_set,
                                    int workers, Device device) {
  data::Loader loader = make_train_loader(recipe, train_set, workers, /* first_step= */ 0, device);
  std::vector<data::Batch> batches;
  while (static_cast<int64_t>(batches.size()) < recipe.convert_batches) {
    std::optional<data::Batch> batch = loader.next();
    if (!batch) {
      break;
    }
    batches.push_back(*std::move(batch));
  }
  return batches;
}

}  // namespace

std::vector<std::string> convert_norm_names() {
  return {"keep", "fold", "calibrate"};
}

std::string initial_norm(const Recipe& recipe) {
  return recipe_before(recipe).norm;
}

ConvertedNetwork convert_network(const Recipe& recipe, const std::shared_ptr<const data::Dataset>& train_set,
                                 const ConvertOptions& options) {
  const int64_t classes = train_set->info().num_classes();
  Recipe before = recipe_before(recipe);
  before.strict = true;                           // a norm that lacks tensors would have start values
  before.reset_head = options.head_may_be_other;  // no norm depends on it
  const auto old = make_model(in_full_precision(before), classes);
  load_initial_weights(*old, before);
  ConvertedNetwork network{.model = make_model(in_full_precision(recipe), classes),
                           .initial = {},
                           .from = before.norm.empty() ? models::own_norm(recipe.model) : before.norm};
  network.initial = load_initial_weights(*network.model, recipe);
  const Device device = network.model->device();
  const std::vector<data::Batch> batches = batches_of(recipe, train_set, options.workers, device);
  const nn::ImageBatches images{.count = static_cast<int64_t>(batches.size()), .at = [&](int64_t number) {
                                  return data::images_on(batches[static_cast<size_t>(number)], device);
                                }};
  if (recipe.convert_norm == "fold") {
    nn::fold_statistics(*network.model, *old);
  } else if (recipe.convert_norm == "calibrate") {
    nn::calibrate_norms(*network.model, *old, images);
  }
  network.layers = nn::compare_norms(*network.model, *old, images);
  for (const data::Batch& batch : batches) {
    network.images += batch.images.size(0);
  }
  return network;
}

std::string ConvertedNetwork::text(const Recipe& recipe) const {
  const std::string to = recipe.norm.empty() ? models::own_norm(recipe.model) : recipe.norm;
  if (layers.empty()) {
    return fmt::format("{}: all norms are {} as before, and stay as they are", kOp, to);
  }
  size_t width = 5;
  for (const nn::NormMatch& layer : layers) {
    width = std::max(width, layer.path.size());
  }
  std::string text = fmt::format(
      "{}: {} → {}, {}; differences over {} training images, in deviations of the layer's old output\n"
      "{:<{}}      mean deviation    output",
      kOp, from, to, recipe.convert_norm, images, "layer", width);
  for (const nn::NormMatch& layer : layers) {
    text += fmt::format("\n{:<{}} {:>9.2g} {:>9.2g} {:>9.2g}{}", layer.path, width, layer.mean, layer.deviation,
                        layer.output, layer.is_constant ? "  (absolute: the old output is constant)" : "");
  }
  return text;
}

}  // namespace norma::train
