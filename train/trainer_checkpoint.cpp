#include "core/error.h"
#include "core/excerpt.h"
#include "nn/plugin.h"
#include "ops/shape/copy.h"
#include "train/checkpoint.h"
#include "train/dataset_notes.h"
#include "train/environment.h"
#include "train/kept_checkpoints.h"
#include "train/resume.h"
#include "train/run_folder.h"
#include "train/trainer.h"
#include "train/weights.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <system_error>
#include <unordered_map>
#include <utility>

// Of Trainer: what a checkpoint has of a run, when it is written, and how a run goes on from it.

namespace norma::train {

namespace {

// Of Checkpoint::options.
constexpr const char* kLossSumKey = "loss_sum";
constexpr const char* kLossStepsKey = "loss_steps";
constexpr const char* kEpochLossSumKey = "epoch_loss_sum";
constexpr const char* kEpochLossStepsKey = "epoch_loss_steps";
constexpr const char* kLeftOutKey = "left_out";
constexpr const char* kLeftOutInRowKey = "left_out_in_row";
constexpr const char* kClassesKey = "num_classes";
constexpr const char* kImagesKey = "train_images";
constexpr const char* kBatchesPerEpochKey = "batches_per_epoch";
constexpr const char* kBatchesKey = "batches";
constexpr const char* kLossScaleKey = "grad_scaler.factor";
constexpr const char* kLossScaleStepsKey = "grad_scaler.growth_tracker";
constexpr const char* kOverflowsKey = "overflows";

/// A number that a checkpoint keeps, or `missing`: earlier versions kept less. Throws Error for another text.
template <class T>
T number_of(const Checkpoint& checkpoint, const char* key, T missing) {
  const auto found = checkpoint.options.find(key);
  if (found == checkpoint.options.end()) {
    return missing;
  }
  const std::string& text = found->second;
  T value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  const bool whole = error == std::errc() && end == text.data() + text.size();
  check(whole && value >= 0 && value <= std::numeric_limits<T>::max(), "checkpoint",
        "{}: expected a number of at least 0, got '{}'", key, excerpt(text));
  return value;
}

}  // namespace

Recipe recipe_of(const Checkpoint& checkpoint) {
  const auto found = checkpoint.options.find(kRecipeKey);
  check(found != checkpoint.options.end(), "checkpoint", "expected the recipe of its run, got none");
  Recipe recipe = recipe_from_json(found->second, "checkpoint: recipe");
  const auto same = [](std::string_view name, const auto& in_recipe, const auto& in_metadata) {
    check(in_recipe == in_metadata, "checkpoint", "{}: '{}' in the recipe, but '{}' in the metadata", name,
          excerpt(fmt::format("{}", in_recipe)), excerpt(fmt::format("{}", in_metadata)));
  };
  same("model", recipe.model, checkpoint.model_name);
  same("norm", recipe.norm, checkpoint.norm);
  same("seed", recipe.seed, checkpoint.seed);
  return recipe;
}

Trainer::Trainer(Recipe recipe, TrainerOptions options, const Checkpoint& checkpoint)
    : Trainer(std::move(recipe), std::move(options)) {
  if (checkpoint.options.contains(kRecipeKey)) {
    check_same_run(recipe_of(checkpoint), recipe_);
  }
  const int64_t classes = train_set_->info().num_classes();
  const int64_t classes_before = number_of(checkpoint, kClassesKey, classes);
  check(classes == classes_before, "resume",
        "num_classes: the run was started with {}, and cannot go on with the {} of dataset '{}'", classes_before,
        classes, train_set_->info().name);
  const std::string other_classes = class_difference(class_names_of(checkpoint), train_set_->info());
  check(other_classes.empty(), "resume", "{}", other_classes);
  check_images(checkpoint);
  check_finite("train", "the checkpoint", checkpoint.model);
  model_->load_state_dict(checkpoint.model);
  optimizer_->load_state_dict(checkpoint.optimizer);
  left_out_ = number_of<int64_t>(checkpoint, kLeftOutKey, 0);
  left_out_in_row_ = number_of<int64_t>(checkpoint, kLeftOutInRowKey, 0);
  if (ema_ && optimizer_->steps() > 0) {
    check_finite("train", "the checkpoint's averages", checkpoint.ema);
    ema_->load(checkpoint.ema, model_->state_dict());
  }
  random_.set_state(checkpoint.generator_seed, checkpoint.generator_offset);
  step_ = checkpoint.step;
  loss_sum_ = number_of<double>(checkpoint, kLossSumKey, 0);
  loss_steps_ = number_of<int64_t>(checkpoint, kLossStepsKey, 0);
  epoch_loss_sum_ = number_of<double>(checkpoint, kEpochLossSumKey, 0);
  epoch_loss_steps_ = number_of<int64_t>(checkpoint, kEpochLossStepsKey, 0);
  best_ = checkpoint.best;
  if (checkpoint.metric) {
    evaluated_ = {.metric = *checkpoint.metric, .step = step_};
  }
  check(step_ <= total_steps_, "train", "the checkpoint is at step {}, but the run has only {}", step_, total_steps_);
  if (step_ == total_steps_ && checkpoint.options.contains(kRecipeKey)) {
    check_changes_count(recipe_of(checkpoint), recipe_, step_);
  }
  check(checkpoint.epoch == step_ / steps_per_epoch_, "train",
        "the checkpoint is at step {} in epoch {}, but an epoch has {} steps", step_, checkpoint.epoch,
        steps_per_epoch_);
  overflows_ = number_of<int64_t>(checkpoint, kOverflowsKey, 0);
  check(optimizer_->steps() == step_ - left_out_ - overflows_, "train",
        "the checkpoint is at step {}, but its optimizer at step {}", step_, optimizer_->steps());
  const auto batches = number_of<int64_t>(checkpoint, kBatchesKey, plan_.batches_before(step_));
  check(batches == plan_.batches_before(step_), "resume",
        "images: the run ended with a step of fewer batches than --grad-accum-steps, and cannot go on behind its {} "
        "images",
        batches * recipe_.batch_size);
  if (scaler_) {
    scaler_->set_state(number_of<double>(checkpoint, kLossScaleKey, scaler_->factor()),
                       number_of<int64_t>(checkpoint, kLossScaleStepsKey, 0));
  }
}

void Trainer::check_images(const Checkpoint& checkpoint) {
  const int64_t images = train_set_->info().size;
  const int64_t images_before = number_of(checkpoint, kImagesKey, images);
  if (images == images_before) {
    return;
  }
  StepPlan before = plan_;
  before.batches_per_epoch = std::max<int64_t>(number_of(checkpoint, kBatchesPerEpochKey, plan_.batches_per_epoch), 1);
  std::string reason;
  if (const int64_t done = checkpoint.step % before.steps_per_epoch(); done != 0) {
    reason = fmt::format("it is {} of {} steps into an epoch, whose order is that of {} images", done,
                         before.steps_per_epoch(), images_before);
  } else if (before.batches_per_epoch != plan_.batches_per_epoch) {
    reason =
        fmt::format("its epochs have {} batches, and would have {}", before.batches_per_epoch, plan_.batches_per_epoch);
  }
  const std::string folder = recipe_.data_dir.empty() ? "" : fmt::format(" in '{}'", excerpt(recipe_.data_dir));
  check(reason.empty(), "resume",
        "images: the run was trained on {} images, and dataset '{}'{} has {}: {}; put the same images there again, or "
        "begin a new run",
        images_before, train_set_->info().name, folder, images, reason);
  images_change_ = fmt::format("images {} → {}", images_before, images);
}

std::filesystem::path Trainer::checkpoint_file() const {
  return options_.output.empty() ? std::filesystem::path() : options_.output / kLastName;
}

nn::NamedTensors Trainer::wide_state() const {
  const nn::NamedTensors masters = optimizer_->master_weights();
  const std::unordered_map<std::string, Tensor> by_name(masters.begin(), masters.end());
  nn::NamedTensors state = model_->state_dict();
  for (auto& [name, x] : state) {
    const auto found = by_name.find(name);
    x = found != by_name.end() ? found->second : to(x, compute_dtype(x.dtype()));
  }
  return state;
}

Checkpoint Trainer::checkpoint() const {
  Checkpoint result{
      .model = wide_state(),
      .optimizer = optimizer_->state_dict(),
      .ema = ema_ ? ema_->averages() : nn::NamedTensors(),
      .step = step_,
      .epoch = step_ / steps_per_epoch_,
      .seed = recipe_.seed,
      .generator_seed = random_.seed(),
      .generator_offset = random_.offset(),
      .model_name = recipe_.model,
      .norm = recipe_.norm,
      .options = {{kRecipeKey, to_json(recipe_)},
                  {kLossSumKey, fmt::format("{}", loss_sum_)},
                  {kLossStepsKey, std::to_string(loss_steps_)},
                  {kEpochLossSumKey, fmt::format("{}", epoch_loss_sum_)},
                  {kEpochLossStepsKey, std::to_string(epoch_loss_steps_)},
                  {kLeftOutKey, std::to_string(left_out_)},
                  {kLeftOutInRowKey, std::to_string(left_out_in_row_)},
                  {kImagesKey, std::to_string(train_set_->info().size)},
                  {kBatchesPerEpochKey, std::to_string(plan_.batches_per_epoch)},
                  {kBatchesKey, std::to_string(plan_.batches_before(step_))},
                  {kClassesKey, std::to_string(train_set_->info().num_classes())},
                  {kClassNamesKey, class_names_},
                  {kVersionsKey, versions_json()}},
      .metric = evaluated_ && evaluated_->step == step_ ? std::optional(evaluated_->metric) : std::nullopt,
      .best = best_};
  if (!nn::loaded_plugins().empty()) {
    result.options[kPluginsKey] = plugins_json(nn::loaded_plugins());
  }
  if (scaler_) {
    result.options[kLossScaleKey] = fmt::format("{}", scaler_->factor());
    result.options[kLossScaleStepsKey] = std::to_string(scaler_->growth_tracker());
    result.options[kOverflowsKey] = std::to_string(overflows_);
  }
  return result;
}

void Trainer::save() {
  if (!options_.output.empty() && saved_step_ != step_) {
    check_finite("train", "the network", wide_state());  // an earlier checkpoint is worth more
    const Checkpoint now = checkpoint();
    enter("save");  // the look at the folder: right before the file is written
    save_checkpoint(checkpoint_file(), now);
    saved_step_ = step_;
  }
}

void Trainer::save_for_recovery() {
  if (!options_.output.empty()) {
    check_finite("train", "the network", wide_state());
    const Checkpoint now = checkpoint();
    enter("save");
    save_recovery(options_.output, options_.keep, now, step_ % steps_per_epoch_);
  }
}

void Trainer::save_with_metric(const TrainResult& result) {
  if (!options_.keep.best) {
    return;
  }
  evaluated_ = {.metric = (ema_ ? result.ema_test : result.test).accuracy,
                .step = step_,
                .epoch = (step_ + steps_per_epoch_ - 1) / steps_per_epoch_};
  if (!best_ || best_->step == step_ || evaluated_->metric > best_->metric) {  // the same step: it was killed here
    best_ = evaluated_;
  }
  if (!options_.output.empty()) {
    const Checkpoint now = checkpoint();
    enter("save");
    save_evaluated(options_.output, options_.keep, now, evaluated_->epoch);
  }
}

}  // namespace norma::train
