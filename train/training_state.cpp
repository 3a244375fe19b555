#include "train/training_state.h"

#include "base/error.h"
#include "base/excerpt.h"
#include "base/parse_number.h"
#include "core/copy.h"
#include "models/registry.h"
#include "ops/shape/copy.h"
#include "train/weights.h"

#include <fmt/format.h>

#include <limits>
#include <string_view>
#include <unordered_map>
#include <utility>

namespace norma::train {

namespace {

// Keys of Checkpoint::options.
constexpr const char* kClassesKey = "num_classes";
constexpr const char* kImagesKey = "train_images";
constexpr const char* kBatchesPerEpochKey = "batches_per_epoch";
constexpr const char* kBatchesKey = "batches";
constexpr const char* kLossScaleKey = "grad_scaler.factor";
constexpr const char* kLossScaleStepsKey = "grad_scaler.growth_tracker";
constexpr const char* kOverflowsKey = "overflows";

/// Visits the sums and counts of a run with their keys in Checkpoint::options.
template <class State, class F>
void visit_counts(State& state, const F& visit) {
  visit("loss_sum", state.row_loss.sum);
  visit("loss_steps", state.row_loss.steps);
  visit("epoch_loss_sum", state.epoch_loss.sum);
  visit("epoch_loss_steps", state.epoch_loss.steps);
  visit("left_out", state.left_out);
  visit("left_out_in_row", state.left_out_in_row);
}

/// A number in a checkpoint, or `missing`, since earlier versions kept less. Throws Error for another text.
template <class T>
T number_of(const Checkpoint& checkpoint, const char* key, T missing) {
  const std::optional<std::string> text = checkpoint.option(key);
  if (!text) {
    return missing;
  }
  const std::optional<T> value = parse_number<T>(*text);
  check(value && *value >= 0 && *value <= std::numeric_limits<T>::max(), "checkpoint",
        "{}: expected a number of at least 0, got '{}'", key, excerpt(*text));
  return *value;
}

}  // namespace

StepPlan plan_of(const Recipe& recipe, const std::shared_ptr<const data::Dataset>& train_set) {
  const data::Loader loader = make_train_loader(recipe, train_set, /* workers= */ 0);
  return {.batches_per_epoch = loader.batches_per_epoch(),
          .total_batches = loader.num_steps(),
          .accumulate = recipe.grad_accum_steps};
}

Recipe recipe_of(const Checkpoint& checkpoint) {
  const std::optional<std::string> text = checkpoint.option(kRecipeKey);
  check(text.has_value(), "checkpoint", "expected the recipe of its run, got none");
  Recipe recipe = recipe_from_json(*text, "checkpoint: recipe");
  const auto same = [](std::string_view name, const auto& in_recipe, const auto& in_metadata) {
    check(in_recipe == in_metadata, "checkpoint", "{}: '{}' in the recipe, but '{}' in the metadata", name,
          excerpt(fmt::format("{}", in_recipe)), excerpt(fmt::format("{}", in_metadata)));
  };
  same("model", recipe.model, checkpoint.model_name);
  same("norm", recipe.norm, checkpoint.norm);
  same("seed", recipe.seed, checkpoint.seed);
  if (!checkpoint.model.empty() && models::is_built_in(recipe.model)) {  // before somebody makes a large network for it
    const std::string network = models::recognize_model(checkpoint.model);
    check(network == models::network_of(recipe.model), "checkpoint", "expected the tensors of {}, got those of {}",
          recipe.model, network.empty() ? "no known network" : network);
  }
  return recipe;
}

TrainingState::TrainingState(Recipe of_run, std::shared_ptr<parallel::ProcessGroup> group, bool resumed)
    : recipe(std::move(of_run)), processes(std::move(group)) {
  check_recipe(recipe);
  check_training(recipe);
  precision = precision_of(recipe);
  train_set = make_dataset(recipe, data::Split::train);
  test_set = make_dataset(recipe, data::Split::test);
  model = make_model(in_full_precision(recipe), train_set->info().num_classes(), /* initialize= */ !resumed);
  if (!resumed && !recipe.initial_checkpoint.empty()) {
    if (recipe.convert_norm == Recipe{}.convert_norm) {
      initial = load_initial_weights(*model, recipe);
    } else {
      const ConvertedNetwork converted = convert_network(recipe, train_set);
      model->load_state_dict(converted.model->state_dict());
      initial = converted.initial + "\n" + converted.text(recipe);
    }
  }
  freeze(*model, recipe);
  nn::NamedTensors unrounded;
  if (is_half(precision.dtype)) {
    for (const auto& [name, x] : model->named_parameters()) {
      unrounded.emplace_back(name, copy_of(x.detach()));
      if (!x.requires_grad()) {
        frozen_wide_.insert(unrounded.back());
      }
    }
  }
  convert_model(*model, precision);
  optimizer = make_optimizer(recipe, *model);
  optimizer->set_master_weights(unrounded);
  frozen = FrozenTensors(*model);
  plan = plan_of(recipe, train_set);
  if (precision.scales_gradients()) {
    scaler.emplace();
  }
  schedules = make_schedules(recipe, total_steps(), steps_per_epoch());
  if (recipe.model_ema) {
    ema.emplace(
        EmaOptions{.decay = recipe.model_ema_decay, .warmup = recipe.model_ema_warmup, .constant = frozen.names()});
  }
  random = Generator(recipe.seed);
}

std::string TrainingState::resume(const Checkpoint& checkpoint) {
  const data::DatasetInfo& info = train_set->info();
  const int64_t classes = info.num_classes();
  const int64_t classes_before = number_of(checkpoint, kClassesKey, classes);
  check(classes == classes_before, "resume",
        "num_classes: the run was started with {}, and cannot go on with the {} of dataset '{}'", classes_before,
        classes, info.name);
  const std::string other_classes = class_difference(class_names_of(checkpoint), info);
  check(other_classes.empty(), "resume", "{}", other_classes);
  std::string change = images_change(checkpoint);
  check_finite("train", "the checkpoint", checkpoint.model);
  model->load_state_dict(checkpoint.model);
  for (const auto& [name, x] : checkpoint.model) {
    if (const auto found = frozen_wide_.find(name); found != frozen_wide_.end()) {
      copy_into(x, found->second);
    }
  }
  optimizer->load_state_dict(checkpoint.optimizer);
  if (ema && optimizer->steps() > 0) {
    check_finite("train", "the checkpoint's averages", checkpoint.ema);
    ema->load(checkpoint.ema, model->state_dict());
  }
  if (!frozen.empty()) {
    const std::optional<std::string> hashes = checkpoint.option(kFrozenKey);
    check(hashes.has_value(), "resume",
          "freeze: expected the hashes of the frozen tensors in the checkpoint, got none");
    frozen = FrozenTensors(*hashes);
    frozen.check(*this);
  }
  random.set_state(checkpoint.generator_seed, checkpoint.generator_offset);
  step = checkpoint.step;
  visit_counts(*this, [&](const char* key, auto& value) { value = number_of(checkpoint, key, value); });
  overflows = number_of(checkpoint, kOverflowsKey, overflows);
  best = checkpoint.best;
  if (checkpoint.metric) {
    evaluated = {.metric = *checkpoint.metric, .step = step};
  }
  check(step <= total_steps(), "train", "the checkpoint is at step {}, but the run has only {}", step, total_steps());
  check(checkpoint.epoch == step / steps_per_epoch(), "train",
        "the checkpoint is at step {} in epoch {}, but an epoch has {} steps", step, checkpoint.epoch,
        steps_per_epoch());
  check(optimizer->steps() == step - left_out - overflows, "train",
        "the checkpoint is at step {}, but its optimizer at step {}", step, optimizer->steps());
  const int64_t batches = number_of(checkpoint, kBatchesKey, plan.batches_before(step));
  check(batches == plan.batches_before(step), "resume",
        "images: the run ended with a step of fewer batches than --grad-accum-steps, and cannot go on behind its {} "
        "images",
        batches * recipe.batch_size);
  if (scaler) {
    scaler->set_state(number_of(checkpoint, kLossScaleKey, scaler->factor()),
                      number_of(checkpoint, kLossScaleStepsKey, int64_t{0}));
  }
  return change;
}

std::string TrainingState::images_change(const Checkpoint& checkpoint) const {
  const int64_t images = train_set->info().size;
  const int64_t images_before = number_of(checkpoint, kImagesKey, images);  // earlier versions kept none
  if (images == images_before) {
    return "";
  }
  StepPlan before = plan;
  before.batches_per_epoch = std::max<int64_t>(number_of(checkpoint, kBatchesPerEpochKey, plan.batches_per_epoch), 1);
  std::string reason;
  if (const int64_t done = checkpoint.step % before.steps_per_epoch(); done != 0) {
    reason = fmt::format("it is {} of {} steps into an epoch, whose order is that of {} images", done,
                         before.steps_per_epoch(), images_before);
  } else if (before.batches_per_epoch != plan.batches_per_epoch) {
    reason =
        fmt::format("its epochs have {} batches, and would have {}", before.batches_per_epoch, plan.batches_per_epoch);
  }
  const std::string folder = recipe.data_dir.empty() ? "" : fmt::format(" in '{}'", excerpt(recipe.data_dir));
  check(reason.empty(), "resume",
        "images: the run was trained on {} images, and dataset '{}'{} has {}: {}; put the same images there again, or "
        "begin a new run",
        images_before, train_set->info().name, folder, images, reason);
  return fmt::format("images {} → {}", images_before, images);
}

nn::NamedTensors TrainingState::wide_state() const {
  const nn::NamedTensors masters = optimizer->master_weights();
  const std::unordered_map<std::string, Tensor> by_name(masters.begin(), masters.end());
  // A parameter in several places has its wide numbers under its first name alone.
  std::unordered_map<const TensorImpl*, std::string> first_names;
  std::unordered_map<std::string, std::string> first_name_of;
  for (const auto& [name, x] : model->named_parameters(/* remove_duplicate= */ false)) {
    first_name_of[name] = first_names.emplace(x.impl_pointer().get(), name).first->second;
  }
  nn::NamedTensors state = model->state_dict();
  for (auto& [own_name, x] : state) {
    const auto parameter = first_name_of.find(own_name);
    const std::string& name = parameter != first_name_of.end() ? parameter->second : own_name;
    if (const auto master = by_name.find(name); master != by_name.end()) {
      x = master->second;
    } else if (const auto wide = frozen_wide_.find(name); wide != frozen_wide_.end()) {
      x = wide->second;
    } else {
      x = to(x, compute_dtype(x.dtype()));
    }
  }
  return state;
}

Checkpoint TrainingState::checkpoint() const {
  Checkpoint result{.model = wide_state(),
                    .optimizer = optimizer->state_dict(),
                    .ema = ema ? ema->averages() : nn::NamedTensors(),
                    .step = step,
                    .epoch = step / steps_per_epoch(),
                    .seed = recipe.seed,
                    .generator_seed = random.seed(),
                    .generator_offset = random.offset(),
                    .model_name = recipe.model,
                    .norm = recipe.norm,
                    .options = {{kRecipeKey, to_json(recipe)},
                                {kImagesKey, std::to_string(train_set->info().size)},
                                {kBatchesPerEpochKey, std::to_string(plan.batches_per_epoch)},
                                {kBatchesKey, std::to_string(plan.batches_before(step))},
                                {kClassesKey, std::to_string(train_set->info().num_classes())},
                                {kClassNamesKey, class_names_text(train_set->info())},
                                {kNormalizationKey, normalization_text(train_set->info())}},
                    .metric = evaluated && evaluated->step == step ? std::optional(evaluated->metric) : std::nullopt,
                    .best = best};
  visit_counts(*this, [&](const char* key, const auto& value) { result.options[key] = fmt::format("{}", value); });
  result.options.insert(notes.begin(), notes.end());
  if (!frozen.empty()) {
    result.options[kFrozenKey] = frozen.json();
  }
  if (scaler) {
    result.options[kLossScaleKey] = fmt::format("{}", scaler->factor());
    result.options[kLossScaleStepsKey] = std::to_string(scaler->growth_tracker());
    result.options[kOverflowsKey] = std::to_string(overflows);
  }
  return result;
}

}  // namespace norma::train
