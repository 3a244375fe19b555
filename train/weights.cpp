#include "train/weights.h"

#include "base/error.h"
#include "base/excerpt.h"
#include "base/lists.h"
#include "base/sha256.h"
#include "core/copy.h"
#include "core/dtype.h"
#include "core/factory.h"
#include "core/tape.h"
#include "data/resize.h"
#include "models/parameter_depths.h"
#include "models/registry.h"
#include "models/vit.h"
#include "nn/norm/norm.h"
#include "ops/matmul/matmul.h"
#include "ops/pointwise/pointwise.h"
#include "ops/shape/copy.h"
#include "ops/shape/join.h"
#include "ops/shape/view.h"
#include "train/training_state.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <set>
#include <tuple>
#include <utility>

namespace norma::train {

namespace {

constexpr const char* kOp = "weights";
constexpr const char* kAverage = "average";

/// The network of a file: "of resnet50 with norm group:32 (by its metadata)", "of resnet50 (by its names)", "of another
/// resnet50 (by its names)" where that is what was expected, or "of no known network".
std::string origin_of(const LoadedWeights& weights, const std::string& expected) {
  const auto text = [&](const char* key) {
    const auto found = weights.metadata.find(key);
    return found == weights.metadata.end() ? "" : excerpt(found->second);
  };
  if (const std::string model = text("model"); !model.empty()) {
    const std::string norm = text("norm");
    return fmt::format("of {}{} (by its metadata)", model, norm.empty() ? "" : " with norm " + norm);
  }
  const std::string model = models::recognize_model(weights.tensors);
  return model.empty()
             ? "of no known network"
             : fmt::format("of {}{} (by its names)", model == models::network_of(expected) ? "another " : "", model);
}

int64_t count_not_finite(const Tensor& x) {
  const Tensor rows = copy_of(to_device(x, kCpu), MemoryFormat::contiguous);
  return dispatch_any_floating(kOp, rows.dtype(), [&]<class T>(T) {
    const T* values = rows.data<T>();
    int64_t count = 0;
    for (int64_t i = 0; i < rows.numel(); ++i) {
      count += std::isfinite(static_cast<compute_t<T>>(values[i])) ? 0 : 1;
    }
    return count;
  });
}

std::string first_part(const std::string& name) {
  return name.substr(0, name.find('.'));
}

/// The path of the module that a tensor of this name belongs, or would belong, to; "" for the network itself.
std::string module_of(const std::string& name) {
  const size_t dot = name.rfind('.');
  return dot == std::string::npos ? "" : name.substr(0, dot);
}

/// The norm layers of a recipe's network. A norm of one's own need not be an nn::Norm: batch norm would be, in its
/// place.
std::set<std::string> paths_of_norms(const nn::Module& model, const Recipe& recipe) {
  models::ModelOptions options = model_options(recipe);
  options.num_classes = 1;
  options.norm = "batch";
  options.norm_policy.rules.clear();
  options.initialize = false;
  if (models::model_takes(recipe.model, "qk_norm")) {
    options.qk_norm = "batch";
  }
  const auto with_batch = models::create_model(recipe.model, options);
  std::set<std::string> paths;
  for (const nn::Module* const network : {&model, static_cast<const nn::Module*>(with_batch.get())}) {
    for (const auto& [path, module] : network->named_modules()) {
      if (dynamic_cast<const nn::Norm*>(module) != nullptr) {
        paths.insert(path);
      }
    }
  }
  paths.insert(std::string(models::kPatchNorm));  // a policy alone puts it there
  return paths;
}

/// The (to, from) matrix that resizes a row of pixels, float64.
Tensor resizing(int64_t from, int64_t to) {
  const Tensor matrix = zeros({to, from}, {.dtype = DType::float64});
  double* values = matrix.data<double>();
  for (const data::FilterWindow& window : data::filter_windows(from, to, 0, to, data::ResizeFilter::bicubic)) {
    std::ranges::copy(window.weights, values + window.first);
    values += from;
  }
  return matrix;
}

/// The side of a square grid of patches for a ViT's positions (1, 1 + side², C), the first of the class token; 0 if
/// they are none.
int64_t side_of(const Tensor& positions) {
  if (positions.rank() != 3 || positions.size(0) != 1 || positions.size(1) < 2) {
    return 0;
  }
  const auto side = static_cast<int64_t>(std::lround(std::sqrt(static_cast<double>(positions.size(1) - 1))));
  return side * side == positions.size(1) - 1 ? side : 0;
}

/// A ViT's positions for another grid, by timm's rule (resample_abs_pos_embed): the class token keeps its own, the grid
/// is resized as an image with a bicubic filter that widens where it shrinks. The result is float32.
Tensor resized_positions(const Tensor& positions, int64_t from, int64_t to) {
  const NoGradGuard no_grad;
  const int64_t width = positions.size(2);
  const Tensor rows = norma::to(to_device(positions.detach(), kCpu), DType::float64);
  const Tensor matrix = resizing(from, to);
  const Tensor grid = reshape(narrow(rows, 1, 1, from * from), {from, from * width});
  const Tensor columns = reshape(matmul(matrix, grid), {to, from, width});  // (from, C) of each new row
  const Tensor resized = reshape(matmul(matrix, columns), {1, to * to, width});
  return norma::to(cat({narrow(rows, 1, 0, 1), resized}, 1), DType::float32);
}

/// Throws Error for a ViT whose patches have another size than the file's.
void check_patch_size(const std::filesystem::path& file, const Recipe& recipe, const Tensor& own, const Tensor& given) {
  check(given.rank() != 4 || given.size(2) == own.size(2), kOp,
        "{}: expected patches of {} pixels, as of this {}, got {}; --patch-size says which the network has",
        file.string(), own.size(2), recipe.model, given.rank() == 4 ? given.size(2) : 0);
}

/// Where a ViT's recipe leaves options open, those that the names and sizes of its weights show. timm's name of a ViT
/// leaves no size of patches open.
void take_options_of(Recipe& recipe, const nn::NamedTensors& tensors) {
  if (!models::model_takes(recipe.model, "global_pool")) {
    return;
  }
  const std::string q_norm = "blocks.0.attn.q_norm.";
  const std::map<std::string, Tensor> by_name(tensors.begin(), tensors.end());
  const auto patches = by_name.find("patch_embed.proj.weight");
  if (leaves_patches_open(recipe) && patches != by_name.end() && patches->second.rank() == 4 &&
      patches->second.size(2) > 0) {
    recipe.patch_size = patches->second.size(2);
  }
  if (!recipe.layer_scale && by_name.contains("blocks.0.ls1.gamma")) {
    recipe.layer_scale = 1;
  }
  if (recipe.global_pool.empty() && by_name.contains("fc_norm.weight")) {
    recipe.global_pool = "avg";
  }
  if (by_name.contains("blocks.0.attn.qkv.weight") && !by_name.contains("blocks.0.attn.qkv.bias")) {
    recipe.qkv_bias = false;
  }
  if (recipe.qk_norm.empty() && by_name.contains(q_norm + "weight")) {
    recipe.qk_norm = by_name.contains(q_norm + "bias") ? "layer2d" : "rms2d";
  }
}

std::string list_text(std::string_view before, const std::vector<std::string>& names) {
  return names.empty() ? "" : fmt::format("; {}: {}", before, excerpt_list(names));
}

using ByName = std::map<std::string, Tensor>;

/// Throws Error for the first difference from the tensors of the first file.
void check_same_tensors(const std::filesystem::path& file, const ByName& tensors,
                        const std::filesystem::path& first_file, const ByName& first) {
  auto expected = first.begin();
  for (const auto& [name, x] : tensors) {
    check(expected != first.end(), kAverage, "{}: tensor '{}': {} has none of this name", file.string(), excerpt(name),
          first_file.string());
    const auto& [first_name, y] = *expected++;
    check(name == first_name, kAverage, "{}: tensor '{}': expected '{}', as in {}", file.string(), excerpt(name),
          excerpt(first_name), first_file.string());
    check(x.sizes() == y.sizes(), kAverage, "{}: tensor '{}': expected sizes {}, as in {}, got {}", file.string(),
          excerpt(name), to_string(y.sizes()), first_file.string(), to_string(x.sizes()));
    check(x.dtype() == y.dtype(), kAverage, "{}: tensor '{}': expected dtype {}, as in {}, got {}", file.string(),
          excerpt(name), to_string(y.dtype()), first_file.string(), to_string(x.dtype()));
  }
  if (expected != first.end()) {
    fail(kAverage, "{}: tensor '{}' of {} is missing", file.string(), excerpt(expected->first), first_file.string());
  }
}

/// None if the library wrote the checkpoint without a recipe.
std::optional<Recipe> recipe_in(const Checkpoint& checkpoint) {
  return checkpoint.options.contains(kRecipeKey) ? std::optional(recipe_of(checkpoint)) : std::nullopt;
}

/// Throws Error for checkpoints of other networks, which may have tensors of the same names and sizes.
void check_same_model(const std::filesystem::path& file, const Checkpoint& checkpoint,
                      const std::filesystem::path& first_file, const Checkpoint& first) {
  const auto norm = [](const Checkpoint& of) {
    return of.norm.empty() && models::is_built_in(of.model_name) ? models::own_norm(of.model_name) : of.norm;
  };
  for (const auto& [name, text, expected] :
       {std::tuple("model", checkpoint.model_name, first.model_name), {"norm", norm(checkpoint), norm(first)}}) {
    check(text == expected, kAverage, "{}: {}: expected '{}', as in {}, got '{}'", file.string(), name,
          excerpt(expected), first_file.string(), excerpt(text));
  }
  const std::optional<Recipe> recipe = recipe_in(checkpoint);
  const std::optional<Recipe> first_recipe = recipe_in(first);
  if (recipe && first_recipe) {
    check(recipe->conv_layer == first_recipe->conv_layer, kAverage, "{}: conv-layer: expected '{}', as in {}, got '{}'",
          file.string(), first_recipe->conv_layer, first_file.string(), recipe->conv_layer);
    check(recipe->qk_norm == first_recipe->qk_norm, kAverage, "{}: qk-norm: expected '{}', as in {}, got '{}'",
          file.string(), excerpt(first_recipe->qk_norm), first_file.string(), excerpt(recipe->qk_norm));
    check(recipe->norm_policy == first_recipe->norm_policy, kAverage,
          "{}: norm-policy: expected that of {}, got another", file.string(), first_file.string());
  }
  const std::vector<std::string> classes = class_names_of(checkpoint);
  const std::vector<std::string> first_classes = class_names_of(first);  // earlier versions kept none
  check(classes.empty() || first_classes.empty() || classes == first_classes, kAverage,
        "{}: expected the classes of {}, in their order, got others", file.string(), first_file.string());
}

/// A checkpoint's own description; for weights alone an empty one, at step -1.
Checkpoint description_of(const std::filesystem::path& file) {
  if (is_checkpoint(file)) {
    return load_checkpoint_metadata(file);
  }
  Checkpoint none;
  none.step = -1;
  return none;
}

constexpr const char* kConvert = "convert-norm";
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
  check(running || own != "batch", kConvert,
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

std::string load_model_weights(std::string_view op, nn::Module& model, const Recipe& recipe,
                               const std::filesystem::path& file, const LoadedWeights& given, const FitOptions& fit) {
  check_finite(op, file.string(), given.tensors);
  const std::string head = models::classifier_path(model);
  std::map<std::string, Tensor> left(given.tensors.begin(), given.tensors.end());
  std::optional<std::set<std::string>> norms;
  const auto of_norm = [&](const std::string& name) {
    if (!fit.start_values) {
      return false;
    }
    if (!norms) {
      norms = paths_of_norms(model, recipe);
    }
    for (std::string path = module_of(name); !path.empty(); path = module_of(path)) {  // a norm may have parts
      if (norms->contains(path)) {
        return true;
      }
    }
    return false;
  };

  nn::NamedTensors dict;
  std::vector<std::string> anew;
  std::vector<std::string> unused;
  std::string resized;
  std::set<std::string> parts;  // of the network
  size_t taken = 0;
  const nn::NamedTensors own = model.state_dict();
  for (const auto& [name, x] : own) {
    parts.insert(first_part(name));
    const auto found = left.find(name);
    if (found != left.end() && name == "patch_embed.proj.weight") {
      check_patch_size(file, recipe, x, found->second);
    }
    if (found != left.end() && name == "pos_embed" && found->second.numel() != x.numel()) {
      const int64_t from = side_of(found->second);
      const int64_t to = side_of(x);
      if (from > 0 && to > 0 && found->second.size(2) == x.size(2)) {
        found->second = resized_positions(found->second, from, to);
        resized = fmt::format("; pos_embed is resized from {0} x {0} to {1} x {1} patches", from, to);
      }
    }
    const bool fits = found != left.end() && found->second.numel() == x.numel();
    const bool of_head = module_of(name) == head;
    if (fits && !(of_head && fit.reset_head)) {
      dict.emplace_back(name, found->second);
      ++taken;
    } else if (of_head ? fit.reset_head || fit.start_values : of_norm(name)) {
      dict.emplace_back(name, copy_of(x.detach(), MemoryFormat::contiguous));
      if (!nn::is_counter(name)) {
        anew.push_back(name);
      }
    } else if (found != left.end()) {
      dict.emplace_back(name, found->second);  // load_state_dict() refuses it
    }
    if (found != left.end()) {
      left.erase(found);
    }
  }
  for (const auto& [name, x] : given.tensors) {
    if (left.contains(name)) {
      const bool of_head = fit.start_values && name.starts_with(head + ".");
      if ((fit.others && !parts.contains(first_part(name))) || of_head || of_norm(name)) {
        if (!nn::is_counter(name)) {
          unused.push_back(name);
        }
      } else {
        dict.emplace_back(name, x);  // likewise
      }
    }
  }
  try {
    model.load_state_dict(dict);
  } catch (const Error& error) {
    const auto placement = models::recognize_norm_placement(model.state_dict());
    const auto in_blocks = models::recognize_norm_placement(given.tensors);
    check(!placement || !in_blocks || placement == in_blocks, kOp,
          "{}: expected weights for the norm placement {}, as of this {}, got {}", file.string(),
          nn::to_string(placement.value_or(nn::NormPlacement{})), recipe.model,
          nn::to_string(in_blocks.value_or(nn::NormPlacement{})));
    fail(kOp, "{}: expected those of this {}, got a file {}: {}", file.string(), recipe.model,
         origin_of(given, recipe.model), error.what());
  }
  const bool all = given.as_they_are && anew.empty() && unused.empty() && resized.empty();
  return all && !fit.start_values
             ? ""
             : fmt::format("{}: {} of {} tensors are taken from {}{}{}{}{}", op, taken, own.size(), file.string(),
                           given.text, list_text("start values", anew), list_text("not used", unused), resized);
}

std::shared_ptr<nn::Module> load_network(std::string_view op, Recipe& recipe, int64_t classes,
                                         const std::filesystem::path& file, const WeightsOptions& options,
                                         const std::function<void(const std::string&)>& say) {
  const bool built_in = models::is_built_in(recipe.model);
  const LoadedWeights given =
      load_weights(file, {.use_ema = options.use_ema, .prefix = options.prefix, .model = recipe.model});
  const std::string network = models::recognize_model(given.tensors);
  check(network == models::network_of(recipe.model) || !built_in, kOp,
        "{}: expected those of this {}, got a file {}, with the tensors {}", file.string(), recipe.model,
        origin_of(given, recipe.model), excerpt_list(given.in_file));
  for (const auto& [name, x] : given.tensors) {
    if (built_in && x.rank() == 2 && x.size(0) != classes &&
        (name == "fc.weight" || name == "head.fc.weight" || name == "head.weight")) {
      fail(kOp, "{}: expected a classifier of {} classes, got one of {}; --num-classes says how many the file has",
           file.string(), classes, x.size(0));
    }
  }
  take_options_of(recipe, given.tensors);
  Recipe plain = in_full_precision(recipe);
  plain.channels_last = false;
  if (plain.patch_size) {
    models::check_image_size(op, plain.model, plain.image_size, *plain.patch_size);
  }
  const auto model = make_model(plain, classes, /* initialize= */ false);
  if (const std::string line = load_model_weights(op, *model, plain, file, given); !line.empty()) {
    say(line);
  }
  if (recipe.channels_last) {
    model->to(MemoryFormat::channels_last);
  }
  return model;
}

std::string load_initial_weights(nn::Module& model, const Recipe& recipe) {
  const bool strict = recipe.strict;
  return load_model_weights(
      "initial-checkpoint", model, recipe, recipe.initial_checkpoint,
      load_weights(recipe.initial_checkpoint,
                   {.use_ema = recipe.use_ema, .prefix = recipe.weights_prefix, .model = recipe.model}),
      {.start_values = !strict, .reset_head = recipe.reset_head, .others = !strict});
}

Checkpoint average_checkpoints(const std::vector<std::filesystem::path>& files, const WeightsOptions& options) {
  check(!files.empty(), kAverage, "expected checkpoints, got none");
  const NoGradGuard no_grad;
  Checkpoint newest = description_of(files.front());
  const Checkpoint first = newest;
  data::NamedTensors like;  // of the first file, in its order
  ByName sums;
  ByName latest;  // of the newest file
  for (const std::filesystem::path& file : files) {
    Checkpoint described = description_of(file);
    check((described.step < 0) == (first.step < 0), kAverage, "{}: expected {}, as {} is, got {}", file.string(),
          first.step < 0 ? "weights only" : "a checkpoint", files.front().string(),
          first.step < 0 ? "a checkpoint" : "weights only");
    check_same_model(file, described, files.front(), first);
    const data::NamedTensors tensors =
        load_weights(file, {.use_ema = options.use_ema, .prefix = options.prefix, .model = first.model_name}).tensors;
    check_finite(kAverage, file.string(), tensors);
    ByName by_name(tensors.begin(), tensors.end());
    if (sums.empty()) {
      like = tensors;
      for (const auto& [name, x] : by_name) {
        sums[name] = is_floating(x.dtype()) ? copy_of(x, MemoryFormat::contiguous, DType::float64) : x;
      }
    } else {
      check_same_tensors(file, by_name, files.front(), ByName(like.begin(), like.end()));
      for (const auto& [name, x] : by_name) {
        if (is_floating(x.dtype())) {
          add_(sums.at(name), to(x, DType::float64));
        }
      }
    }
    if (latest.empty() || described.step >= newest.step) {
      latest = std::move(by_name);
      newest = std::move(described);
    }
  }
  for (const auto& [name, x] : like) {
    newest.model.emplace_back(name, is_floating(x.dtype())
                                        ? to(div(sums.at(name), static_cast<double>(files.size())), x.dtype())
                                        : latest.at(name));
  }
  newest.metric.reset();
  newest.best.reset();
  const auto names = mapped(files, [](const std::filesystem::path& file) { return file.string(); });
  newest.options[kAveragedKey] = fmt::format("{}", fmt::join(names, ", "));
  return newest;
}

std::string sha256_of(const Tensor& x) {
  const Tensor rows = copy_of(to_device(x.detach(), kCpu), MemoryFormat::contiguous);
  return sha256({static_cast<const char*>(rows.raw_data()), static_cast<size_t>(rows.numel()) * size_of(rows.dtype())});
}

void check_finite(std::string_view op, std::string_view where, const nn::NamedTensors& tensors) {
  for (const auto& [name, x] : tensors) {
    if (is_floating(x.dtype())) {
      const int64_t count = count_not_finite(x);
      check(count == 0, op, "{}: tensor '{}': expected finite numbers, got {} of {} that are NaN or infinite", where,
            excerpt(name), count, x.numel());
    }
  }
}

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
  ConvertedNetwork network{
      .model = make_model(in_full_precision(recipe), classes), .initial = {}, .from = norm_of(before)};
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
  const std::string to = norm_of(recipe);
  if (layers.empty()) {
    return fmt::format("{}: all norms are {} as before, and stay as they are", kConvert, to);
  }
  size_t width = 5;
  for (const nn::NormMatch& layer : layers) {
    width = std::max(width, layer.path.size());
  }
  std::string text = fmt::format(
      "{}: {} → {}, {}; differences over {} training images, in deviations of the layer's old output\n"
      "{:<{}}      mean deviation    output",
      kConvert, from, to, recipe.convert_norm, images, "layer", width);
  for (const nn::NormMatch& layer : layers) {
    text += fmt::format("\n{:<{}} {:>9.2g} {:>9.2g} {:>9.2g}{}", layer.path, width, layer.mean, layer.deviation,
                        layer.output, layer.is_constant ? "  (absolute: the old output is constant)" : "");
  }
  return text;
}

}  // namespace norma::train
